"""`python -m xling_jax.eval.mldoc`: MLDoc, Reuters news in eight languages on four topics.

Schwenk and Li (2018) publish only which documents belong to it, as lists of index entries
(https://github.com/facebookresearch/MLDoc). The news themselves are RCV1 and RCV2, which NIST
distributes under its own licence (https://trec.nist.gov/data/reuters/reuters.html); nothing is
downloaded here.
"""

import argparse
import functools
import logging
import os
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from xling_jax.files.lines import iterate_lines
from xling_jax.files.untrusted import open_archive, printable, read_member
from xling_jax.files.whole import whole_directory
from xling_jax.options import OptionError

_logger = logging.getLogger(__name__)

# Names in the lists -> codes of our files.
LANGUAGES = {
    "english": "en",
    "german": "de",
    "spanish": "es",
    "spanish-latam": "es_419",
    "french": "fr",
    "italian": "it",
    "japanese": "ja",
    "russian": "ru",
    "chinese": "zh",
}
TRAIN_SIZES = (1000, 2000, 5000, 10000)

_TOPICS = {"CCAT": "C", "ECAT": "E", "GCAT": "G", "MCAT": "M"}
_TOPIC_CODES = ".//codes[@class='bip:topics:1.0']/code"
_ENTRY = re.compile(r"(?P<folder>[^-\s/\\]+)-(?P<name>[^\s/\\]+)")
_COPYRIGHT = re.compile(r"\([cC]\) Reuters Limited 199[0-9]\.")

_EXAMPLE = """\
example:
  git clone https://github.com/facebookresearch/MLDoc
  python -m xling_jax.eval.mldoc --rcv rcv1 RCV2_Multilingual_Corpus \\
      --indices MLDoc/mldoc-indices --languages en,de,fr,es,it --output mldoc
  xling evaluate classification --model M --data mldoc --classifiers mlp --output O
"""


class Entry(NamedTuple):
    """One line of a list: 19970617-667588newsML is 19970617/667588newsML.xml."""

    folder: str
    name: str


_Place = tuple[Path, str | None]  # where a document is: a file, or a member of an archive


def build_mldoc(
    rcv_directories: Sequence[str | os.PathLike[str]],
    index_directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    languages: Sequence[str] | None = None,
    train_size: int = 1000,
    clean: bool = True,
) -> dict[str, int]:
    """Writes MLDoc as `{train,dev,test}.LANG.tsv`, whole or not at all; returns counts by file.

    Args:
        rcv_directories: RCV1 (for English) and RCV2, anywhere below: folders or zip archives of
            XML files, named as in the lists (19970617, REUTFR11).
        index_directory: the lists, english.train.1000, english.dev, english.test and so on.
        output: the directory to write, replaced if it exists.
        languages: codes, such as en and de; None for all that have their three lists.
        train_size: of the training list: 1000, 2000, 5000 or 10000 documents.
        clean: drop Reuters' copyright line and rejoin "Co ." and "Inc ." as LASER does.

    Raises:
        OptionError: if a language or the size is unknown.
        ValueError, OSError: if a list or document is missing or broken, or writing fails.
    """
    lists = _find_lists(Path(index_directory).expanduser(), languages, train_size)
    entries = {name: _read_list(path) for name, path in lists.items()}
    wanted = {entry for each in entries.values() for entry in each}
    found = _find_documents(rcv_directories, wanted)
    for name, each in entries.items():
        missing = [entry for entry in each if entry not in found]
        if missing:
            raise ValueError(
                f"{lists[name]}: {len(missing)} of {len(each)} documents are not below "
                f"{', '.join(map(str, rcv_directories))}, first {'-'.join(missing[0]):.100}; "
                f"name the directories of both RCV1 and RCV2"
            )
    counts = {}
    with whole_directory(Path(output).expanduser()) as directory, ExitStack() as stack:
        archive = functools.cache(lambda path: stack.enter_context(open_archive(path)))
        for name, each in entries.items():
            with open(directory / name, "w", encoding="utf-8") as file:
                for path, member in (found[entry] for entry in each):
                    content = read_member(archive(path), member) if member else path.read_bytes()
                    where = f"{path}: {member}" if member else str(path)
                    label, text = read_newsml(content, where, clean=clean)
                    file.write(f"{label}\t{text}\n")
            counts[name] = len(each)
            _logger.info("%s: %d documents", name, len(each))
    return counts


def read_newsml(content: bytes, where: str, *, clean: bool = True) -> tuple[str, str]:
    """Reads one news item, XML that errors call `where`: its topic and its text on one line.

    Raises:
        ValueError: if it is not XML, or has not exactly one topic.
    """
    try:
        item = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise ValueError(f"{where}: must be NewsML; {error}") from error
    codes = [code.get("code") for code in item.findall(_TOPIC_CODES)]
    topics = [code for code in codes if code in _TOPICS]
    if len(topics) != 1:
        found = f"{topics or codes}"
        raise ValueError(f"{where}: must have one topic of {[*_TOPICS]}; found {found:.100}")
    text = " ".join("".join(paragraph.itertext()) for paragraph in item.findall(".//p"))
    if clean:
        text = text.replace(" Co .", " Co.").replace(" Inc . ", " Inc. ")
        text = _COPYRIGHT.sub("", text)
    return _TOPICS[topics[0]], " ".join(text.split())


def _find_lists(
    directory: Path, languages: Sequence[str] | None, train_size: int
) -> dict[str, Path]:
    """The files to write, to their lists."""
    if train_size not in TRAIN_SIZES:
        raise OptionError(f"train_size must be one of {TRAIN_SIZES}; got {train_size}")
    for code in languages or ():
        if code not in LANGUAGES.values():
            known = ", ".join(LANGUAGES.values())
            raise OptionError(f"languages: MLDoc has no {code}; it has {known}")
    parts = {"train": f"train.{train_size}", "dev": "dev", "test": "test"}
    found = {}
    for name, code in LANGUAGES.items():
        lists = {f"{split}.{code}.tsv": directory / f"{name}.{end}" for split, end in parts.items()}
        missing = [path for path in lists.values() if not path.is_file()]
        if languages is None:
            found |= {} if missing else lists
        elif code in languages:
            if missing:
                raise ValueError(f"{missing[0]}: no such list; give the directory of MLDoc's lists")
            found |= lists
    if not found:
        lists = f"english.train.{train_size}, english.dev and english.test"
        raise ValueError(f"{directory}: must hold MLDoc's lists, such as {lists}")
    return found


def _read_list(path: Path) -> list[Entry]:
    entries = []
    for number, line in enumerate(iterate_lines(path), start=1):
        match = _ENTRY.fullmatch(line.strip())
        if match:
            entries.append(Entry(match["folder"], match["name"]))
        elif line.strip():
            rule = f"must be FOLDER-NAME as in 19970617-667588newsML; found {line.strip()!r:.40}"
            raise ValueError(f"{path}:{number}: {rule}")
    return entries


def _find_documents(
    directories: Sequence[str | os.PathLike[str]], wanted: Collection[Entry]
) -> dict[Entry, _Place]:
    """Where the wanted documents are; RCV1 and RCV2 share no folder names."""
    where: dict[Entry, _Place] = {}
    for root in directories:
        if not Path(root).expanduser().is_dir():
            raise ValueError(f"{root}: must be a directory of Reuters news; there is none")
        for directory, folders, files in os.walk(Path(root).expanduser()):
            folders.sort()  # of several copies the first by name
            for path in (Path(directory, file) for file in sorted(files)):
                if path.suffix == ".xml":
                    found = [(Entry(path.parent.name, path.stem), (path, None))]
                else:
                    found = _list_archive(path) if path.suffix == ".zip" else []
                for entry, place in found:
                    if entry in wanted:
                        where.setdefault(entry, place)
    return where


def _list_archive(path: Path) -> Iterator[tuple[Entry, _Place]]:
    """The documents of an archive, of one folder that it is named after, or of several."""
    with open_archive(path) as archive:
        members = archive.namelist()
    for member in members:
        folder, _, file = member.rpartition("/")
        stem, suffix = os.path.splitext(file)
        if suffix == ".xml":
            for name in {folder.rpartition("/")[2], path.stem}:
                yield Entry(name, stem), (path, member)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0 done, 1 failed, 2 wrong use."""
    parser = argparse.ArgumentParser(
        prog="python -m xling_jax.eval.mldoc",
        description="Builds MLDoc from the Reuters corpora RCV1 and RCV2, which NIST licenses, and "
        "the published\nlists of documents. Writes {train,dev,test}.LANG.tsv.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    rcv_help = "directories of RCV1 and RCV2: folders or zip archives of XML files, at any depth"
    add("--rcv", required=True, nargs="+", action="extend", metavar="DIR", help=rcv_help)
    add("--indices", required=True, metavar="DIR", help="MLDoc's lists, english.train.1000 ...")
    add("--output", required=True, metavar="DIR", help="the directory to write")
    add("--languages", metavar="CODE,CODE", help="such as en,de (default: all)")
    add("--train-size", type=int, default=1000, metavar="N", help="documents (default: 1000)")
    add("--raw", action="store_true", help="keep the copyright lines and spacing LASER removes")
    add("--overwrite", action="store_true", help="replace an existing output")
    args = parser.parse_args(argv)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr
    )
    try:
        for path in (*args.rcv, args.indices):
            if not Path(path).exists():
                raise OptionError(f"{path}: no such file or directory")
        if Path(args.output).exists() and not args.overwrite:
            raise OptionError(f"{args.output}: exists; choose another --output or add --overwrite")
        build_mldoc(
            args.rcv,
            args.indices,
            args.output,
            languages=args.languages and args.languages.split(","),
            train_size=args.train_size,
            clean=not args.raw,
        )
    except (ValueError, OSError) as error:
        text = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            text = f"{error.filename}: {error.strerror}"
        print(f"{parser.prog}: error: {printable(' '.join(text.split()))}", file=sys.stderr)
        return 2 if isinstance(error, OptionError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
