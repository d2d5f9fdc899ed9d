"""Published encoders through every direction, each step a fresh process on the command line.

    python lab/exams/directions.py DIRECTORY …

Every directory is converted, embedded, embedded as it is (converted into a cache), trained for two
updates, and exported to every format that can hold it; what a format cannot hold must be refused in
one line. Exports are read by the library they are for. Prints a Markdown table; a cell is "ok" with
the largest difference of vectors of length 1, "refused", or what went wrong. Exits with 1 for the
latter.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

TEXTS = ["A dog runs.", "Ein Hund rennt.", "La [MASK] est bleue.", "今日は良い天気です", "x"]
PAIRS = "en\tde\n" + "".join(f"Line {i} of this.\tZeile {i} von diesem.\n" for i in range(64))
READERS = {
    "sentence-transformers": "from sentence_transformers import SentenceTransformer as S; "
    "v = S(path, device='cpu').encode(texts)",
    "model2vec": "from model2vec import StaticModel as S; "
    "v = S.from_pretrained(path).encode(texts)",
    "laser": "import xling_jax; v = xling_jax.load(path).encode(texts)",
    "onnx": "import onnxruntime, tokenizers; t = tokenizers.Tokenizer.from_file("
    "path + '/tokenizer.json'); s = onnxruntime.InferenceSession(path + '/model.onnx'); "
    "v = s.run(None, {'tokens': np.array([e.ids for e in t.encode_batch(texts)], np.int32)})[0]",
}


def run(*words: str, cwd: Path) -> tuple[int, str]:
    """Runs a program; returns its status and the last line of what it said."""
    done = subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True)
    lines = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
    return done.returncode, lines[-1]


def xling(*words: str, cwd: Path) -> tuple[int, str]:
    """Runs `xling`."""
    return run("-m", "xling_jax.cli.main", *words, cwd=cwd)


def unit(path: Path) -> np.ndarray:
    """Vectors in a file, scaled to length 1."""
    vectors = np.load(path).astype(np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def directions(source: str, top: Path) -> dict[str, str]:
    """Takes every direction with an encoder; returns what came of each."""
    (top / "texts").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    (top / "pairs.tsv").write_text(PAIRS, encoding="utf-8")
    cells: dict[str, str] = {}

    def step(name: str, *words: str) -> bool:
        status, said = xling(*words, cwd=top)
        is_refused = status == 1 and said.startswith("xling export: error: ")
        cells[name] = "ok" if not status else "refused" if is_refused else f"{status}: {said}"
        return not status

    def embed(name: str, model: str, output: str) -> bool:
        return step(name, "embed", "--model", model, "--input", "texts", "--output", output)

    def compare(name: str, output: str, expected: str) -> None:
        difference = np.abs(unit(top / output) - unit(top / expected)).max()
        cells[name] += f", {difference:.0e}"

    if not step("convert", "convert", source, "--output", "m") or not embed("load", "m", "m.npy"):
        return cells
    if embed("as it is", source, "s.npy"):
        compare("as it is", "s.npy", "m.npy")
    train = ["train", "--config", "finetune:pairs=de-en", "--workdir", "run"]
    train += [f"--config.train.model_init={source}", "--config.train.total_steps=2"]
    train += ["--config.data.corpora=('tsv:pairs.tsv',)", "--config.data.batch_size=16"]
    train += ["--config.data.bucket_lengths=(24,)", "--config.data.truncate=True"]
    train += ["--config.schedule.peak_value=1e-12"]
    if step("train", *train) and embed("train", "run", "run.npy"):
        compare("train", "run.npy", "m.npy")
    for format, program in READERS.items():
        if not step(
            f"export {format}", "export", "--to", format, "--model", "m", "--output", format
        ):
            continue
        read = f"import sys, numpy as np; path, texts = '{format}', {TEXTS!r}; {program}; "
        status, said = run("-c", read + f"np.save('{format}.npy', v)", cwd=top)
        if status:
            cells[f"export {format}"] = f"{status}: {said}"
        else:
            compare(f"export {format}", f"{format}.npy", "m.npy")
    return cells


def main() -> int:
    """Prints the table; returns the exit status."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    rows = {}
    for source in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as top:
            os.environ["XDG_CACHE_HOME"] = f"{top}/cache"
            rows[Path(source).name] = directions(os.path.abspath(source), Path(top))
    names = list(dict.fromkeys(name for cells in rows.values() for name in cells))
    print("| encoder |", " | ".join(names), "|")
    print("| --- |", " | ".join("---" for _ in names), "|")
    for encoder, cells in rows.items():
        print(f"| {encoder} |", " | ".join(cells.get(name, "–") for name in names), "|")
    good = ("ok", "refused")
    return int(any(not cell.startswith(good) for cells in rows.values() for cell in cells.values()))


if __name__ == "__main__":
    sys.exit(main())
