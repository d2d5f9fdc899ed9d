"""SentEval's tasks, read from the files that its download script writes.

Those that the papers measure have their published names and layouts; any other is a text file of
`tr|va|te<TAB>label<TAB>text`, in any language, such as SentEval's probing tasks, with its name.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xling_jax.eval.classification_data import LabeledText
from xling_jax.files.hashes import hash_texts
from xling_jax.options import OptionError

# Files in `downstream`; of the first four the first has label 1 and the second label 0.
_DOWNSTREAM = {
    "MR": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": ("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
    "SST2": tuple(f"SST/binary/sentiment-{part}" for part in ("train", "dev", "test")),
    "TREC": ("TREC/train_5500.label", "TREC/TREC_10.label"),
}
_PARTS = {"tr": "train", "va": "dev", "te": "test"}


@dataclass(frozen=True)
class ProbingTask:
    """One task.

    Attributes:
        name: begins the names of its metrics.
        splits: {"all"} is cross-validated, {"train", "test"} cross-validates on train, {"train",
            "dev", "test"} selects on dev.
        path: where it was read from.
    """

    name: str
    splits: dict[str, LabeledText]
    path: str = ""

    @property
    def description(self) -> dict[str, str]:
        """Plain values for results.json."""
        sha256 = hash_texts(
            (f"{name}.{column}", values)
            for name, split in sorted(self.splits.items())
            for column, values in (
                ("texts", split.texts),
                ("seconds", ()),  # SentEval's pairs of texts had them
                ("labels", split.labels),
            )
        )
        return {"name": self.name, "path": self.path, "sha256": sha256}


def load_tasks(directory: str | Path, names: Sequence[str] | None = None) -> list[ProbingTask]:
    """Reads the tasks in SentEval's `data`, its `downstream` or `probing`, or another directory.

    Another has files of `tr|va|te<TAB>label<TAB>text`. Tasks are read in the order of `names`;
    OptionError if one is unknown.
    """
    root = Path(directory).expanduser()
    if root.is_file():
        raise ValueError(f"{directory}: must be a directory, such as SentEval's data; found a file")
    found = _find_tasks(root)
    if not found:
        rule = "must hold SentEval's downstream or probing tasks, or tr|va|te<TAB>label<TAB>text"
        raise ValueError(f"{directory}: {rule}; none found")
    for name in names or ():
        if name not in found:
            raise OptionError(
                f"tasks={name}: {directory} has no such task; it has {', '.join(found)}"
            )
    return [replace(found[name](), path=str(directory)) for name in (names or found)]


def list_tasks(directory: str | Path) -> list[str]:
    """The names of the tasks in a directory, see `load_tasks`."""
    return [*_find_tasks(Path(directory).expanduser())]


def _find_tasks(root: Path) -> dict[str, Callable[[], ProbingTask]]:
    """The tasks in a directory, name -> function that reads it."""
    found: dict[str, Callable[[], ProbingTask]] = {}
    for place in (root / "downstream", root):
        for name, files in _DOWNSTREAM.items():
            paths = [place / file for file in files]
            if name not in found and all(path.is_file() for path in paths):
                found[name] = lambda name=name, paths=paths: _read_downstream(name, paths)
    for place in (root / "probing", root):
        for path in sorted(place.glob("*.txt")):
            with open(path, "rb") as stream:
                if re.match(rb"(tr|va|te)\t", stream.read(3)):
                    found.setdefault(path.stem, lambda path=path: _read_probing(path))
    return found


def _lines(path: Path) -> list[str]:
    """Lines of a file in UTF-8 or, like some of the originals, in Latin-1."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    lines = re.split(r"\r?\n", text)
    return lines[:-1] if not lines[-1] else lines


def _read_downstream(name: str, files: list[Path]) -> ProbingTask:
    if name == "SST2":
        rule = "must be text<TAB>label", r"(?P<text>[^\t]*)\t(?P<label>[^\t]*)(\t.*)?|\s*"
        splits = {part: _read(path, *rule) for part, path in zip(_PARTS.values(), files)}
    elif name == "TREC":
        rule = "must be LABEL:fine question", r"\s*(?P<label>\w+):\S+\s+(?P<text>.*)"
        splits = {part: _read(path, *rule) for part, path in zip(("train", "test"), files)}
    else:
        columns = [[" ".join(line.split()) for line in _lines(file)] for file in files]
        labels = ["1"] * len(columns[0]) + ["0"] * len(columns[1])
        splits = {"all": LabeledText(columns[0] + columns[1], labels)}
    return ProbingTask(name, splits)


def _read(path: Path, rule: str, pattern: str) -> LabeledText:
    split = LabeledText([], [])
    for number, line in enumerate(_lines(path), start=1):
        match = re.fullmatch(pattern, line)
        if not match:
            raise ValueError(f"{path}:{number}: {rule}; found {line!r:.40}")
        if match["label"] is not None:
            split.labels.append(match["label"].strip())
            split.texts.append(" ".join(match["text"].split()))
    return split


def _read_probing(path: Path) -> ProbingTask:
    splits = {part: LabeledText([], []) for part in _PARTS.values()}
    for number, line in enumerate(_lines(path), start=1):
        part, *cells = line.split("\t")
        if not line.strip():
            continue
        if part not in _PARTS or len(cells) < 2:
            rule = f"must be tr, va or te, label and text; found {line!r:.40}"
            raise ValueError(f"{path}:{number}: {rule}")
        splits[_PARTS[part]].texts.append(" ".join(cells[-1].split()))
        splits[_PARTS[part]].labels.append(cells[0])
    for part, split in splits.items():
        if not split.texts:
            raise ValueError(f"{path}: must have {part} lines; found none")
    return ProbingTask(path.stem, splits)
