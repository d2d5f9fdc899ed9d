"""`python -m xling_jax.eval.mldoc`: MLDoc, Reuters news in eight languages on four topics.

Schwenk and Li (2018) publish only which documents belong to it, as lists of index entries
(https://github.com/facebookresearch/MLDoc). The news themselves are RCV1 and RCV2, which NIST
distributes under its own licence (https://trec.nist.gov/data/reuters/reuters.html); nothing is
downloaded here.
"""

import argparse
import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from xling_jax.files.lines import iterate_lines
from xling_jax.files.untrusted import printable
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
_ENTRY = re.compile(r"[^-\s/\\]+-[^\s/\\]+")  # 19970617-667588newsML: folder and name
_COPYRIGHT = re.compile(r"\([cC]\) Reuters Limited 199[0-9]\.")

_EXAMPLE = """\
example:
  git clone https://github.com/facebookresearch/MLDoc
  python -m xling_jax.eval.mldoc --rcv rcv1 RCV2_Multilingual_Corpus \\
      --indices MLDoc/mldoc-indices --languages en,de,fr,es,it --output mldoc
  xling evaluate classification --model M --data mldoc --classifiers mlp --output O
"""


def build_mldoc(
    rcv_directories: Sequence[str | os.PathLike[str]],
    index_directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    languages: Sequence[str] | None = None,
    train_size: int = 1000,
) -> dict[str, int]:
    """Writes MLDoc as `{train,dev,test}.LANG.tsv`, whole or not at all; returns counts by file.

    Args:
        rcv_directories: RCV1 (for English) and RCV2, anywhere below: folders of XML files, named as
            in the lists (19970617, REUTFR11).
        index_directory: the lists, english.train.1000, english.dev, english.test and so on.
        output: the directory to write, replaced if it exists.
        languages: codes, such as en and de; None for all that have their three lists.
        train_size: of the training list: 1000, 2000, 5000 or 10000 documents.

    Raises:
        OptionError: if a language or the size is unknown.
        ValueError, OSError: if a list or document is missing or broken, or writing fails.
    """
    lists = _find_lists(Path(index_directory).expanduser(), languages, train_size)
    entries = {name: _read_list(path) for name, path in lists.items()}
    found = _find_documents(rcv_directories)
    for name, each in entries.items():
        if missing := [entry for entry in each if entry not in found]:
            raise ValueError(
                f"{lists[name]}: {len(missing)} of {len(each)} documents are not below "
                f"{', '.join(map(str, rcv_directories))}, first {missing[0]:.100}; "
                "name the directories of both RCV1 and RCV2, with their archives unpacked"
            )
    with whole_directory(Path(output).expanduser()) as directory:
        for name, each in entries.items():
            with open(directory / name, "w", encoding="utf-8") as file:
                for path in (found[entry] for entry in each):
                    label, text = read_newsml(path.read_bytes(), str(path))
                    file.write(f"{label}\t{text}\n")
            _logger.info("%s: %d documents", name, len(each))
    return {name: len(each) for name, each in entries.items()}


def read_newsml(content: bytes, where: str) -> tuple[str, str]:
    """Reads one news item, XML that errors call `where`: its topic and its text on one line.

    Drops Reuters' copyright line and rejoins "Co ." and "Inc ." as LASER does.

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
    text = text.replace(" Co .", " Co.").replace(" Inc . ", " Inc. ")
    return _TOPICS[topics[0]], " ".join(_COPYRIGHT.sub("", text).split())


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


def _read_list(path: Path) -> list[str]:
    entries = []
    for number, line in enumerate(map(str.strip, iterate_lines(path)), start=1):
        if line and not _ENTRY.fullmatch(line):
            rule = f"must be FOLDER-NAME as in 19970617-667588newsML; found {line!r:.40}"
            raise ValueError(f"{path}:{number}: {rule}")
        entries += [line] if line else []
    return entries


def _find_documents(directories: Sequence[str | os.PathLike[str]]) -> dict[str, Path]:
    """All documents by FOLDER-NAME; of several copies the first. RCV1 and 2 share no folder."""
    found: dict[str, Path] = {}
    for root in map(Path, directories):
        for path in sorted(root.expanduser().rglob("*.xml")):
            found.setdefault(f"{path.parent.name}-{path.stem}", path)
    return found


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
    rcv_help = "directories of RCV1 and RCV2: folders of XML files, at any depth"
    add("--rcv", required=True, nargs="+", action="extend", metavar="DIR", help=rcv_help)
    add("--indices", required=True, metavar="DIR", help="MLDoc's lists, english.train.1000 ...")
    add("--output", required=True, metavar="DIR", help="the directory to write")
    add("--languages", metavar="CODE,CODE", help="such as en,de (default: all)")
    add("--train-size", type=int, default=1000, metavar="N", help="documents (default: 1000)")
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
