"""Labeled text, one file a split and language, read whole and strictly."""

import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xling_jax.corpora.readers.tables import read_strictly
from xling_jax.corpora.specs import open_table
from xling_jax.files.hashes import hash_texts
from xling_jax.files.lines import COMPRESSED, metric_name
from xling_jax.options import OptionError
from xling_jax.text import languages as languages_lib

_logger = logging.getLogger(__name__)

SPLITS = ("train", "dev", "test")

_FILE = re.compile(
    rf"({'|'.join(SPLITS)})\.([A-Za-z0-9_]+)\.(tsv|csv|jsonl|parquet)({COMPRESSED})?"
)


@dataclass(frozen=True)
class LabeledText:
    """Texts and the label of each, both of length n."""

    texts: list[str]
    labels: list[str]


@dataclass(frozen=True)
class ClassificationData:
    """One classification data set: "train", "dev", "test", if there, -> language -> texts."""

    name: str
    splits: dict[str, dict[str, LabeledText]]
    path: str = ""

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of all splits."""
        return tuple(dict.fromkeys(code for parts in self.splits.values() for code in parts))

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels of the training text, sorted."""
        return tuple(sorted({y for part in self.splits["train"].values() for y in part.labels}))

    @property
    def test_split(self) -> str:
        """The split to test on: "test", or "dev" where there is none."""
        return "test" if "test" in self.splits else "dev"

    @property
    def description(self) -> dict[str, str]:
        """Plain values for results.json; the hash is not of file names or compression."""
        sha256 = hash_texts(
            (f"{split}.{code}.{kind}", column)
            for split, parts in sorted(self.splits.items())
            for code, part in sorted(parts.items())
            for kind, column in (("texts", part.texts), ("labels", part.labels))
        )
        return {"name": self.name, "path": self.path, "sha256": sha256}


def list_languages(directory: str | Path, splits: Sequence[str] = SPLITS) -> list[str]:
    """Returns the languages of the files of some splits in a directory, sorted."""
    found = _find_files(Path(directory).expanduser())
    return sorted({code for split in splits for code in found.get(split, ())})


def load_classification_data(
    path: str | Path, languages: Sequence[str] | None = None
) -> ClassificationData:
    """Reads `{train,dev,test}.LANG.tsv` files of `label<TAB>text`.

    TSV, CSV, JSON lines or Parquet, maybe compressed. A first line with the cells `label` and
    `text` is a header, and further columns are then ignored. Languages are in the order given, as
    far as there are files; None for all.

    Raises:
        OptionError: if none of the languages has training text, or text to test on.
        ValueError, OSError: if `train`, or both `dev` and `test` are missing; if a file breaks a
            rule (names file and line), or seems to have label and text swapped.
    """
    directory = Path(path).expanduser()
    found = _find_files(directory)
    if "train" not in found or len(found) < 2:
        names = [file.name for files in found.values() for file in files.values()]
        rule = "must hold train.LANG.tsv, and dev.LANG.tsv or test.LANG.tsv"
        raise ValueError(f"{directory}: {rule}; found {', '.join(names) or 'no such file'}")
    known = list_languages(directory)
    wanted = known if languages is None else languages_lib.check_languages(languages)
    splits = {
        split: {code: _read(files[code]) for code in wanted if code in files}
        for split, files in found.items()
    }
    data = ClassificationData(metric_name(directory.resolve()), splits, str(path))
    for split in ("train", data.test_split):
        if not data.splits[split]:
            there = f"there are files in {', '.join(known)}"
            raise OptionError(
                f"{directory}: none of {', '.join(wanted)} has a {split} file; {there}"
            )
    spelled = {label.casefold(): label for label in data.labels}
    for split, parts in splits.items():
        for code, part in parts.items():
            unknown = sorted({*part.labels} - {*data.labels})
            if alike := [label for label in unknown if label.casefold() in spelled]:
                raise ValueError(
                    f"{data.path}: the label {alike[0]!r:.60} of {split}.{code} is "
                    f"{spelled[alike[0].casefold()]!r:.60} in the training text; write it alike"
                )
            if unknown:
                _logger.warning(
                    "%s: labels of %s.%s that the training text does not have count as errors: %s",
                    *(data.path, split, code, ", ".join(unknown)[:200]),
                )
    return data


def _find_files(directory: Path) -> dict[str, dict[str, Path]]:
    """Split to language to file."""
    if directory.exists() and not directory.is_dir():
        rule = "must be a directory of files such as train.en.tsv and test.en.tsv"
        raise ValueError(f"{directory}: {rule}; found a file")
    found: dict[str, dict[str, Path]] = {}
    for file in sorted(directory.iterdir()):
        if match := _FILE.fullmatch(file.name):
            split, code = match.groups()[:2]
            other = found.setdefault(split, {}).setdefault(code, file)
            if other != file:
                raise ValueError(f"{file} and {other}: keep one file a split and language")
    return found


def _read(path: Path) -> LabeledText:
    found, names = LabeledText([], []), ("label", "text")
    table = open_table(str(path), names)
    for line, (label, text) in read_strictly(table, names):
        if not label:
            raise ValueError(f"{path}:{line}: the label must not be empty; remove the row")
        found.labels.append(label)
        found.texts.append(text)
    if not found.labels:
        raise ValueError(f"{path}: must hold rows of label<TAB>text; found none")
    _check_labels(path, found, getattr(table, "has_header", True))
    return found


def _check_labels(path: Path, found: LabeledText, has_header: bool) -> None:
    """Refuses swapped columns; warns of a first line that may be a header."""
    counts = Counter(found.labels)
    ((label, count),) = counts.most_common(1)
    if len(counts) > len(set(found.texts)):
        raise ValueError(
            f"{path}: must have at least as many texts as labels; found {len(set(found.texts))} "
            f"texts and {len(counts)} labels, the most common ({label[:40]}) in {count} of "
            f"{len(found.labels)} lines; are label and text swapped? a line must be label<TAB>text"
        )
    if not has_header and count > counts[found.labels[0]] == 1:
        _logger.warning(
            "%s:1: the label %s occurs nowhere else in the file; if this line is a header, name "
            "its columns label and text",
            *(path, found.labels[0][:40]),
        )
