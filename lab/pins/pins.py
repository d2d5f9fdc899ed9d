"""Prints hashes of what the library computes, to compare before and after a change of its code.

Everything is made by commands, in processes of their own, from the packaged sentences and from
published models in a folder, so that the same script runs on any version:

    PYTHONPATH=BEFORE python lab/pins/pins.py --output before.json
    PYTHONPATH=AFTER python lab/pins/pins.py --output after.json --compare before.json

Hashes are equal on one machine with one set of packages only. Products of NumPy have one thread;
by default they have as many as cores are free, which moves last bits.
"""

import argparse
import csv
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SENTENCES = Path(__file__).parents[2] / "configs" / "quickstart_sentences.tsv"
LANGUAGES = ("de", "en", "es", "fr", "it")
# Config and argument -> its overrides beside the common ones.
TWO = {"languages": "('de','en')", "data.pairs": "('de-en','en-de')", "vocab.size": 400}
RUNS = {
    "t_laser:smoke": TWO,
    "ct_laser:smoke": TWO,
    "ct_laser_bilingual:smoke": TWO,
    "laser:smoke": TWO,
    "claser:layers=2,smoke": TWO,
    "similarity_loss:smoke": TWO | {"vocab.model_type": "word"},
    "similarity_loss:loss=encoder_l2,smoke": TWO | {"vocab.model_type": "word"},
    "mixed:smoke": TWO,
    "lightweight:pair=de-en,smoke": TWO | {"data.pairs": "('de-en',)"},
    "static:smoke": {},
    "static:phase=2,smoke": {"train.model_init": "{static:smoke}"},
    "contextual:smoke": {},
    "mini:smoke": {},
    "distill:smoke": {},
    "distill:student=dual,smoke": {},
    "quickstart:smoke": {},
}
STEPS = {"train.total_steps": 6, "train.evaluate_every_steps": 6, "data.reader": "numpy"}


def run(*command: object) -> str:
    """Runs `xling COMMAND` and returns what it printed."""
    words = [sys.executable, "-m", "xling_jax.cli.main", *map(str, command)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}\n{done.stderr[-3000:]}")
    return done.stdout


def digest(*parts: bytes) -> str:
    """The hash of some bytes."""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def tensors(path: Path) -> str:
    """The hash of names, shapes and values in a safetensors file, whatever its metadata."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
    return digest(*(f"{n} {a.dtype} {a.shape}".encode() + a.tobytes() for n, a in arrays.items()))


def directory(path: Path, pattern: str = "*") -> str:
    """The hash of names and contents in a folder; of safetensors the values."""
    files = sorted(p for p in path.rglob(pattern) if p.is_file())
    return digest(
        *(
            f"{p.relative_to(path)} ".encode()
            + (tensors(p).encode() if p.suffix == ".safetensors" else p.read_bytes())
            for p in files
        )
    )


def write_inputs(folder: Path) -> None:
    """A corpus in five languages, texts, documents and sentence groups from the sentences."""
    with open(SENTENCES, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    shown = [[row[code] for code in LANGUAGES] for row in rows]
    # More rows: halves of neighboring sentences joined, so that the corpus is not too small.
    for shift in (1, 2, 3, 5, 7):
        for here, there in zip(shown[:100], shown[shift:100]):
            shown.append([f"{a} {b}" for a, b in zip(here, there)])
    lines = ["\t".join(LANGUAGES), *("\t".join(row) for row in shown)]
    (folder / "corpus.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for index, code in enumerate(LANGUAGES):
        text = [row[index] for row in shown[:400]]
        if code != "de":
            text = [text[i] for i in np.random.default_rng(index).permutation(len(text))]
        (folder / f"text.{code}").write_text("\n".join(text) + "\n", encoding="utf-8")
        sentences = [row[index] for row in shown[:100]]
        (folder / f"one.{code}").write_text("\n".join(sentences) + "\n", encoding="utf-8")
        with gzip.open(folder / f"documents.{code}.jsonl.gz", "wt", encoding="utf-8") as out:
            for start in range(0, 100, 4):
                record = {
                    "id": f"d{start}",
                    "lang": code,
                    "sentences": sentences[start : start + 4],
                }
                out.write(json.dumps(record, ensure_ascii=False) + "\n")


def of_runs(folder: Path) -> dict[str, str]:
    """Prepared bytes, vocabularies and encoders after six updates of every family."""
    found, common = {}, STEPS | {"data.corpora": f"('tsv:{folder}/corpus.tsv',)"}
    for name, overrides in RUNS.items():
        workdir = folder / "runs" / name.replace(":", "_").replace("=", "-")
        values = {"vocab.size": 500} | common | overrides
        if name.startswith("distill"):
            del values["vocab.size"]
        for key, value in values.items():
            if isinstance(value, str) and value.startswith("{"):
                before = folder / "runs" / value.strip("{}").replace(":", "_")
                values[key] = before
                values = values | {"vocab.model": before / "vocab" / "sentencepiece.model"}
        changes = [f"--config.{key}={value}" for key, value in values.items()]
        run("train", "--config", name, "--workdir", workdir, *changes)
        shards = sorted(
            p for p in (workdir / "data").rglob("*") if p.suffix in (".npy", ".npz", ".bin")
        )
        names = [str(p.relative_to(workdir / "data")).encode() + p.read_bytes() for p in shards]
        found[f"prepared {name}"] = f"{len(shards)} files {digest(*names)}"
        vocab = sorted((workdir / "vocab").glob("*.model"))
        found[f"vocab {name}"] = digest(*(path.read_bytes() for path in vocab))
        found[f"encoder {name}"] = tensors(workdir / "encoder" / "encoder.safetensors")
        records = [
            json.loads(line) for line in (workdir / "metrics.jsonl").read_text().split("\n") if line
        ]
        losses = [record["train/loss"] for record in records if "train/loss" in record]
        found[f"losses {name}"] = digest(json.dumps(losses).encode())
    for name in ("t_laser_smoke", "laser_smoke", "static_smoke", "lightweight_pair-de-en,smoke"):
        run("embed", "--model", folder / "runs" / name, "--input", folder / "text.de",
            "--output", folder / f"{name}.npy")  # fmt: skip
        found[f"vectors {name}"] = digest((folder / f"{name}.npy").read_bytes())
    return found


def of_mini(folder: Path) -> dict[str, str]:
    """Vectors, mined pairs, aligned documents and sentences with the packaged encoder."""
    found, model = {}, ("--model", "mini")
    for form in ("npy", "laser"):
        run("embed", *model, "--input", folder / "text.en", "--output", folder / f"e.{form}",
            "--format", form)  # fmt: skip
        found[f"embed {form}"] = digest((folder / f"e.{form}").read_bytes())
    run("embed", *model, "--documents", "--input", folder / "documents.de.jsonl.gz",
        "--output", folder / "documents.npy")  # fmt: skip
    found["embed documents"] = digest((folder / "documents.npy").read_bytes())
    sides = ("--source", folder / "text.de", "--target", folder / "text.fr")
    for margin in ("ratio", "distance", "absolute"):
        for retrieval in ("max", "intersect", "fwd", "bwd"):
            out = folder / f"{margin}.{retrieval}"
            run("mine", *model, *sides, "--margin", margin, "--retrieval", retrieval,
                "--output", out)  # fmt: skip
            found[f"mine {margin} {retrieval}"] = digest(out.read_bytes())
    run("mine", *model, *sides, "--precision", "0.9", "--output", folder / "precision")
    found["mine at a precision"] = digest((folder / "precision").read_bytes())
    sides = (
        "--source",
        folder / "documents.de.jsonl.gz",
        "--target",
        folder / "documents.fr.jsonl.gz",
    )
    for name, options in {
        "default": (),
        "lawdr": ("--debias", "4", "--weighting", "kde", "--similarity", "margin"),
        "plain": ("--debias", "0", "--weighting", "none", "--similarity", "cosine"),
        "windows": ("--debias", "2", "--document-mode", "windows"),
    }.items():
        out = folder / f"align.{name}"
        run("align", *model, *sides, *options, "--output", out)
        found[f"align {name}"] = digest(out.read_bytes())
    command = (
        ("align-sentences",) if "align-sentences" in run("--help") else ("align", "--sentences")
    )
    for form in ("groups", "tsv"):
        out = folder / f"groups.{form}"
        run(*command, *model, "--source", folder / "one.de", "--target", folder / "one.it",
            "--format", form, "--output", out)  # fmt: skip
        found[f"align-sentences {form}"] = digest(out.read_bytes())
    return found


def of_formats(folder: Path, originals: Path | None) -> dict[str, str]:
    """Exported files of packaged and trained encoders, converted encoders and their vectors."""
    found = {}
    for target, models in {
        "model2vec": ("static_smoke",),
        "sentence-transformers": ("lightweight_pair-de-en,smoke",),
        "onnx": ("mini", "laser_smoke", "t_laser_smoke"),
    }.items():
        for name in models:
            model = name if name == "mini" else folder / "runs" / name
            out = folder / "exported" / target / name
            run("export", "--to", target, "--model", model, "--output", out)
            found[f"export {target} {name}"] = directory(out, "[!R]*")
    for path in sorted(originals.iterdir()) if originals else ():
        target = (path / "from").read_text().strip()
        out = folder / "converted" / path.name
        source = next(p for p in path.iterdir() if p.name == "original" or p.suffix == ".pt")
        try:
            run("convert", "--from", target, source, "--output", out)
        except RuntimeError as error:  # of a kind that is gone
            found[f"convert {path.name}"] = str(error).strip().split("\n")[-1]
            continue
        found[f"convert {path.name}"] = tensors(out / "encoder.safetensors")
        run("embed", "--model", out, "--input", folder / "text.it", "--output",
            folder / f"{path.name}.npy")  # fmt: skip
        vectors = np.load(folder / f"{path.name}.npy")
        found[f"vectors of {path.name}"] = digest(vectors.tobytes())
        if target == "laser":
            run("export", "--to", target, "--model", out, "--output", folder / "laser" / path.name)
            found[f"export laser {path.name}"] = directory(folder / "laser" / path.name, "*.pt")
    return found


def main() -> int:
    """Prints what differs; status 1 if anything does."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="JSON, name -> hash")
    parser.add_argument("--compare", type=Path, help="JSON of another version")
    parser.add_argument("--originals", type=Path, help="folder of NAME/original and NAME/from")
    parser.add_argument("--only", default="runs,mini,formats", help="parts, separated by commas")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, found = Path(name), {}
        write_inputs(folder)
        parts = arguments.only.split(",")
        if "runs" in parts:
            found |= of_runs(folder)
        if "mini" in parts:
            found |= of_mini(folder)
        if "formats" in parts:
            found |= of_formats(folder, arguments.originals)
    arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    before = json.loads(arguments.compare.read_text()) if arguments.compare else found
    different = [key for key in found if before.get(key) != found[key]]
    missing = [key for key in before if key not in found] if len(parts) == 3 else []
    print(f"{len(found)} pins, {len(different)} different, {len(missing)} missing")
    for key in (*different, *missing):
        print(f"{key}: {before.get(key)} -> {found.get(key)}")
    return int(bool(different or missing))


if __name__ == "__main__":
    sys.exit(main())
