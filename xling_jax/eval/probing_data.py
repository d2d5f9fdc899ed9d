"""SentEval's tasks, read from the files that its download script writes.

Downstream tasks have their published names and layouts; a probing task is any text file of
`tr|va|te<TAB>label<TAB>text`, in any language.
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from xling_jax.files.hashes import hash_texts
from xling_jax.options import OptionError

# Published names of the probing tasks; other tasks are named after their files.
PROBING = {
    "sentence_length": "Length",
    "word_content": "WordContent",
    "tree_depth": "Depth",
    "top_constituents": "TopConstituents",
    "bigram_shift": "BigramShift",
    "past_present": "Tense",
    "subj_number": "SubjNumber",
    "obj_number": "ObjNumber",
    "odd_man_out": "OddManOut",
    "coordination_inversion": "CoordinationInversion",
}
# First file (label 1), second file (label 0).
_POLARITY = {
    "MR": ("rt-polarity.pos", "rt-polarity.neg"),
    "CR": ("custrev.pos", "custrev.neg"),
    "SUBJ": ("subj.objective", "subj.subjective"),
    "MPQA": ("mpqa.pos", "mpqa.neg"),
}
_PARTS = {"tr": "train", "va": "dev", "te": "test"}
_PARTS_LONG = tuple(_PARTS.values())
# Files; kind; columns of the first text, of the second and of the label; whether there is a header.
_SICK = tuple(f"SICK/SICK_{part}.txt" for part in ("train", "trial", "test_annotated"))
_PAIRS = {
    "MRPC": (
        tuple(f"MRPC/msr_paraphrase_{part}.txt" for part in ("train", "test")),
        ("downstream", (3, 4, 0), True),
    ),
    "SICK-E": (_SICK, ("downstream", (1, 2, 4), True)),
    "SICK-R": (_SICK, ("relatedness", (1, 2, 3), True)),
    "STSB": (
        tuple(f"STS/STSBenchmark/sts-{part}.csv" for part in _PARTS_LONG),
        ("relatedness", (5, 6, 4), False),
    ),
}


@dataclass(frozen=True)
class Split:
    """Texts, or pairs of texts where `seconds` is filled, and a label or score of each."""

    texts: list[str]
    labels: list[str] | list[float]
    seconds: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ProbingTask:
    """One task.

    Attributes:
        name: begins the names of its metrics.
        splits: {"all"} is cross-validated, {"train", "test"} cross-validates on train, {"train",
            "dev", "test"} selects on dev; in "similarity" the splits are the sets of one year.
        kind: "probing" and "downstream" have labels, "relatedness" has scores to learn,
            "similarity" scores to compare with cosines.
        path: where it was read from.
    """

    name: str
    splits: dict[str, Split]
    kind: str
    path: str = ""

    @property
    def texts(self) -> list[str]:
        """All texts of all splits."""
        return [text for split in self.splits.values() for text in split.texts + split.seconds]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of names, texts and labels."""
        return hash_texts(
            (f"{name}.{column}", [str(value) for value in getattr(split, column)])
            for name, split in sorted(self.splits.items())
            for column in ("texts", "seconds", "labels")
        )

    @property
    def description(self) -> dict[str, str]:
        """Plain values for results.json."""
        return {"name": self.name, "path": self.path, "sha256": self.fingerprint}


def load_tasks(directory: str | Path, names: Sequence[str] | None = None) -> list[ProbingTask]:
    """Reads the tasks in SentEval's `data`, its `downstream` or `probing`, or another directory.

    Another has files of `tr|va|te<TAB>label<TAB>text`. Tasks are read in the order of `names`.

    Raises:
        OptionError: if a name is unknown.
        ValueError, OSError: if there are no tasks, or a file is broken or cannot be read.
    """
    if Path(directory).is_file():
        raise ValueError(f"{directory}: must be a directory, such as SentEval's data; found a file")
    found = find_tasks(directory)
    for name in names or ():
        if name not in found:
            raise OptionError(f"tasks: {directory} has no task {name}; it has {', '.join(found)}")
    if not found:
        rule = "must hold SentEval's downstream or probing tasks, or tr|va|te<TAB>label<TAB>text"
        raise ValueError(f"{directory}: {rule}; none found")
    return [replace(found[name](), path=str(directory)) for name in (names or found)]


def find_tasks(directory: str | Path) -> dict[str, Callable[[], ProbingTask]]:
    """Returns the tasks in a directory, name -> function that reads it."""
    root = Path(directory).expanduser()
    readers: dict[str, Callable[[], ProbingTask]] = {}

    def add(name: str, place: Path, files: Iterable[str], read: Callable) -> None:
        paths = [place / file for file in files]
        if name not in readers and paths and all(path.is_file() for path in paths):
            readers[name] = lambda: read(name, paths)

    for place in (root / "downstream", root):
        for name, files in _POLARITY.items():
            add(name, place / name, files, _read_polarity)
        for name, sub in (("SST2", "binary"), ("SST5", "fine")):
            add(name, place / "SST" / sub, (f"sentiment-{p}" for p in _PARTS_LONG), _read_sst)
        add("TREC", place / "TREC", ("train_5500.label", "TREC_10.label"), _read_trec)
        for name, (files, _) in _PAIRS.items():
            add(name, place, files, _read_pairs)
        for year in sorted(place.glob("STS/STS*")):
            files = sorted(file.name for file in year.glob("STS.input.*.txt"))
            add(year.name.split("-")[0], year, files, _read_sts)
    for place in (root / "probing", root):
        for path in sorted(place.glob("*.txt")):
            with open(path, "rb") as stream:
                is_task = re.match(rb"(tr|va|te)\t", stream.read(3))
            if is_task:
                add(PROBING.get(path.stem, path.stem), place, [path.name], _read_probing)
    return readers


def _lines(path: Path) -> list[str]:
    """Lines of a file in UTF-8 or, like some of the originals, in Latin-1."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    lines = re.split(r"\r?\n", text)
    return lines[:-1] if not lines[-1] else lines


def _rows(path: Path, width: int) -> Iterator[tuple[str, list[str]]]:
    """Yields the cells of each row, and where it is, for errors."""
    for number, line in enumerate(_lines(path), start=1):
        cells = line.split("\t")
        if line.strip() and len(cells) < width:
            rule = f"must have {width} cells separated by tabs; found {len(cells)}"
            raise ValueError(f"{path}:{number}: {rule}")
        if line.strip():
            yield f"{path}:{number}", cells


def _score(where: str, text: str) -> float:
    with contextlib.suppress(ValueError):
        if math.isfinite(score := float(text)):
            return score
    raise ValueError(f"{where}: a score must be a number; found {text!r:.40}")


def _words(text: str) -> str:
    return " ".join(text.split())


def _read_polarity(name: str, files: list[Path]) -> ProbingTask:
    parts = [[_words(line) for line in _lines(file)] for file in files]
    labels = ["1"] * len(parts[0]) + ["0"] * len(parts[1])
    return ProbingTask(name, {"all": Split(parts[0] + parts[1], labels)}, "downstream")


def _read_sst(name: str, files: list[Path]) -> ProbingTask:
    splits = {}
    for part, path in zip(_PARTS_LONG, files):
        if name == "SST2":
            rows = [(text, label) for _, (text, label, *_) in _rows(path, 2)]
        else:
            cells = (line.partition(" ") for line in _lines(path) if line.strip())
            rows = [(text, label) for label, _, text in cells]
        splits[part] = Split([_words(text) for text, _ in rows], [y.strip() for _, y in rows])
    return ProbingTask(name, splits, "downstream")


def _read_trec(name: str, files: list[Path]) -> ProbingTask:
    splits = {}
    for part, path in zip(("train", "test"), files):
        splits[part] = Split([], [])
        for number, line in enumerate(_lines(path), start=1):
            match = re.fullmatch(r"\s*(\w+):\S+\s+(.*)", line)
            if not match:
                rule = f"must be LABEL:fine question; found {line!r:.40}"
                raise ValueError(f"{path}:{number}: {rule}")
            splits[part].labels.append(match[1])
            splits[part].texts.append(_words(match[2]))
    return ProbingTask(name, splits, "downstream")


def _read_pairs(name: str, files: list[Path]) -> ProbingTask:
    kind, (first, second, label), has_header = _PAIRS[name][1]
    parts = _PARTS_LONG if len(files) > 2 else ("train", "test")
    splits = {}
    for part, path in zip(parts, files):
        rows = list(_rows(path, max(first, second, label) + 1))[has_header:]
        labels = [row[label].strip() for _, row in rows]
        if kind == "relatedness":
            labels = [_score(where, text) for (where, _), text in zip(rows, labels)]
        firsts, seconds = ([_words(row[column]) for _, row in rows] for column in (first, second))
        splits[part] = Split(firsts, labels, seconds)
    return ProbingTask(name, splits, kind)


def _read_sts(name: str, files: list[Path]) -> ProbingTask:
    splits = {}
    for path in files:
        gold = path.with_name(path.name.replace("STS.input.", "STS.gs."))
        pairs, scores = _lines(path), _lines(gold)
        if len(pairs) != len(scores):
            raise ValueError(f"{gold}: must have {len(pairs)} lines like {path}; has {len(scores)}")
        found = Split([], [])
        for number, (pair, score) in enumerate(zip(pairs, scores), start=1):
            if not score.strip():
                continue
            first, tab, rest = pair.partition("\t")
            if not tab:
                raise ValueError(f"{path}:{number}: must be two texts separated by a tab")
            found.texts.append(_words(first))
            found.labels.append(_score(f"{gold}:{number}", score))
            found.seconds.append(_words(rest.partition("\t")[0]))
        splits[path.name.removeprefix("STS.input.").removesuffix(".txt")] = found
    return ProbingTask(name, splits, "similarity")


def _read_probing(name: str, files: list[Path]) -> ProbingTask:
    splits = {part: Split([], []) for part in _PARTS_LONG}
    for where, cells in _rows(files[0], 3):
        part, label, *_, text = cells
        if part not in _PARTS:
            raise ValueError(f"{where}: a line must begin with tr, va or te; found {part!r:.20}")
        splits[_PARTS[part]].texts.append(_words(text))
        splits[_PARTS[part]].labels.append(label)
    for part, split in splits.items():
        if not split.texts:
            raise ValueError(f"{files[0]}: must have {part} lines; found none")
    return ProbingTask(name, splits, "probing")
