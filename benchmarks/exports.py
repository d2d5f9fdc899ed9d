"""Exported forms of an encoder beside itself: text to vectors on a CPU, and size.

    python benchmarks/exports.py --text FILE.tsv.gz --model mini --model runs/dual

Columns of the file are translations of each other. Contestants are the encoder itself, its ONNX
file, and its form for sentence-transformers where there is one. Each is a process; they take turns.
The ONNX file gets batches of 64 sentences of similar length, in the words of its model card. P@1 is
the share of sentences whose nearest neighbor by cosine is their translation, a mean over all pairs
of columns and both directions, on the first sentences.
"""

import argparse
import gzip
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import interleaved
import numpy as np

BATCH = 64
FORMS = ("xling_jax", "onnx", "sentence-transformers")


def write_form(form: str, model: str, directory: Path) -> bool:
    """Exports an encoder; False if it has no such form."""
    from xling_jax.encode.model_directory import find_model_directory
    from xling_jax.formats.registry import EXPORTERS

    if form == "xling_jax":
        return True
    try:
        EXPORTERS[form](find_model_directory(model), directory)
    except ValueError as error:
        print(f"{model}: {error}", file=sys.stderr)
        return False
    return True


def load(form: str, model: str, directory: str) -> Callable[[Sequence[str]], np.ndarray]:
    """A contestant's function of texts to vectors."""
    if form == "xling_jax":
        import xling_jax

        return xling_jax.load(model).encode
    if form == "sentence-transformers":
        from sentence_transformers import SentenceTransformer

        encoder = SentenceTransformer(directory, device="cpu")
        return lambda texts: encoder.encode(list(texts), batch_size=BATCH)
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{directory}/tokenizer.json")
    session = onnxruntime.InferenceSession(f"{directory}/model.onnx")

    def encode(texts: Sequence[str]) -> np.ndarray:
        vectors, order = [], sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            rows = tokenizer.encode_batch([texts[i] for i in batch])
            tokens = np.array([row.ids for row in rows], np.int32)
            vectors.append(session.run(None, {"tokens": tokens})[0])
        result = np.concatenate(vectors)
        result[order] = result.copy()
        return result

    return encode


def read_columns(text: str, count: int) -> list[list[str]]:
    """The first sentences of each language of a TSV with a header."""
    with gzip.open(text, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in itertools.islice(lines, count + 1)]
    places = [i for i, name in enumerate(rows[0]) if name in ("en", "de", "fr", "es", "it")]
    return [[row[place] for row in rows[1:]] for place in places]


def precision_at_1(columns: Sequence[np.ndarray]) -> float:
    """Mean over all ordered pairs of languages, in percent."""
    unit = [c / np.maximum(np.linalg.norm(c, axis=1, keepdims=True), 1e-9) for c in columns]
    found = [
        (source @ target.T).argmax(axis=1) == np.arange(len(source))
        for source, target in itertools.permutations(unit, 2)
    ]
    return 100 * float(np.mean(found))


def serve(form: str, model: str, directory: str, text: str, count: int) -> None:
    """Serves turns of the whole text."""
    columns = read_columns(text, count)
    sentences = list(itertools.chain(*columns))
    encode = load(form, model, directory)
    vectors = np.split(encode(sentences), len(columns))

    def run() -> dict[str, Any]:
        began = time.perf_counter()
        encode(sentences)
        return {"sentences_per_second": len(sentences) / (time.perf_counter() - began)}

    interleaved.serve(run, {"p_at_1": precision_at_1(vectors)})


def size_mb(model: str, directory: Path) -> float:
    """Of all files."""
    from xling_jax.encode.model_directory import find_model_directory

    directory = directory if directory.is_dir() else find_model_directory(model)
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6


def main() -> None:
    """Runs the contestants in turns and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", required=True, help="a TSV with a header of languages, .gz")
    parser.add_argument("--model", action="append", required=True, help="an encoder; repeatable")
    parser.add_argument("--sentences", type=int, default=500, help="of each language")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        form, model, directory = args.worker
        serve(form, model, directory, args.text, args.sentences)
        return
    rows = []
    for model in args.model:
        with tempfile.TemporaryDirectory() as top:
            places = {form: Path(top) / form.replace(" ", "_") for form in FORMS}
            forms = [form for form in FORMS if write_form(form, model, places[form])]
            common = ["--text", args.text, "--model", model, "--sentences", str(args.sentences)]
            arguments = {
                form: [*common, "--worker", form, model, str(places[form])] for form in forms
            }
            numbers, facts = interleaved.take_turns(__file__, arguments, args.rounds)
            for form in forms:
                rate = interleaved.median(numbers[form], "sentences_per_second")
                size, hits = size_mb(model, places[form]), facts[form]["p_at_1"]
                rows.append((model, form, f"{size:.1f}", f"{rate:,.0f}", f"{hits:.2f}"))
    print(f"{interleaved.circumstances()}, {args.rounds} rounds\n")
    header = ("encoder", "form", "size MB", "sentences/s", "P@1 %")
    print(interleaved.markdown_table(header, rows))


if __name__ == "__main__":
    main()
