"""`python -m xling_jax.eval.mldoc`: MLDoc, Reuters news in eight languages on four topics.

Schwenk and Li (2018) publish only which documents belong to it, as lists of index entries
(https://github.com/facebookresearch/MLDoc). The news themselves are RCV1 and RCV2, which NIST
distributes under its own licence (https://trec.nist.gov/data/reuters/reuters.html); nothing is
downloaded here.
"""

import argparse
import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from xling_jax.files.lines import iterate_lines
from xling_jax.files.whole import whole_directory

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
_SPLITS = {"train": "train.1000", "dev": "dev", "test": "test"}  # as in the published tables
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
    rcv: Sequence[Path], indices: Path, output: Path, languages: Sequence[str] | None = None
) -> dict[str, int]:
    """Writes MLDoc as `{train,dev,test}.LANG.tsv`, whole or not at all; returns counts by file.

    Args:
        rcv: directories of RCV1 (for English) and RCV2, anywhere below: folders of XML files, named
            as in the lists (19970617, REUTFR11).
        indices: directory of the lists, english.train.1000, english.dev, english.test and so on.
        output: the directory to write, replaced if it exists.
        languages: codes, such as en and de; None for all that have their three lists.

    Raises:
        ValueError, OSError: if a list or document is missing or broken, or writing fails.
    """
    entries = {name: _read_list(path) for name, path in _find_lists(indices, languages).items()}
    # Of several copies the first. RCV1 and RCV2 share no folder.
    found: dict[str, Path] = {}
    for path in (path for root in rcv for path in sorted(root.rglob("*.xml"))):
        found.setdefault(f"{path.parent.name}-{path.stem}", path)
    for name, each in entries.items():
        if missing := [entry for entry in each if entry not in found]:
            raise ValueError(
                f"{name}: {len(missing)} of {len(each)} documents are not below "
                f"{', '.join(map(str, rcv))}, first {missing[0]:.100}; "
                "name the directories of both RCV1 and RCV2, with their archives unpacked"
            )
    with whole_directory(output) as directory:
        for name, each in entries.items():
            with open(directory / name, "w", encoding="utf-8") as file:
                for path in (found[entry] for entry in each):
                    label, text = read_newsml(path.read_bytes(), str(path))
                    file.write(f"{label}\t{text}\n")
            _logger.info("%s: %d documents", name, len(each))
    return {name: len(each) for name, each in entries.items()}


def read_newsml(content: bytes, where: str) -> tuple[str, str]:
    """Reads one news item, XML that errors call `where`: its topic and its text on one line.

    Drops Reuters' copyright line and rejoins "Co ." and "Inc ." as LASER does. ValueError if it is
    not XML, or has not exactly one topic.
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


def _find_lists(directory: Path, languages: Sequence[str] | None) -> dict[str, Path]:
    """The files to write, to their lists."""
    for code in languages or ():
        if code not in LANGUAGES.values():
            known = ", ".join(LANGUAGES.values())
            raise ValueError(f"languages: MLDoc has no {code}; it has {known}")
    found = {}
    for name, code in LANGUAGES.items():
        lists = {f"{s}.{code}.tsv": directory / f"{name}.{end}" for s, end in _SPLITS.items()}
        missing = [path for path in lists.values() if not path.is_file()]
        if missing and code in (languages or ()):
            raise ValueError(f"{missing[0]}: no such list; give the directory of MLDoc's lists")
        if not missing and (languages is None or code in languages):
            found |= lists
    if not found:
        raise ValueError(f"{directory}: must hold MLDoc's lists, such as english.train.1000")
    return found


def _read_list(path: Path) -> list[str]:
    entries = []
    for number, line in enumerate(map(str.strip, iterate_lines(path)), start=1):
        if line and not _ENTRY.fullmatch(line):
            rule = f"must be FOLDER-NAME as in 19970617-667588newsML; found {line!r:.40}"
            raise ValueError(f"{path}:{number}: {rule}")
        entries += [line] if line else []
    return entries


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        prog="python -m xling_jax.eval.mldoc",
        description="Builds MLDoc from the Reuters corpora RCV1 and RCV2, which NIST licenses, and "
        "the published\nlists of documents. Writes {train,dev,test}.LANG.tsv.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    rcv_help = "directories of RCV1 and RCV2: folders of XML files, at any depth"
    many = {"nargs": "+", "action": "extend", "type": Path}
    add("--rcv", required=True, metavar="DIR", help=rcv_help, **many)
    indices_help = "MLDoc's lists, english.train.1000 ..."
    add("--indices", required=True, type=Path, metavar="DIR", help=indices_help)
    add("--output", required=True, type=Path, metavar="DIR", help="the directory to write")
    add("--languages", metavar="CODE,CODE", help="such as en,de (default: all)")
    add("--overwrite", action="store_true", help="replace an existing output")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if args.output.exists() and not args.overwrite:
        parser.error(f"{args.output}: exists; choose another --output or add --overwrite")
    languages = args.languages and args.languages.split(",")
    try:
        build_mldoc(args.rcv, args.indices, args.output, languages)
    except (ValueError, OSError) as error:
        sys.exit(f"{parser.prog}: error: {error}")


if __name__ == "__main__":
    main()
