"""MLDoc: Reuters news in eight languages under four topics, built from the licensed corpora.

Schwenk and Li (2018) publish only which documents belong to it, as lists of index entries
(https://github.com/facebookresearch/MLDoc). The news themselves are RCV1 and RCV2, which NIST
gives out under a licence of its own (https://trec.nist.gov/data/reuters/reuters.html); nothing
here downloads them.
"""

import logging
import os
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from xling_jax.files.whole import whole_directory

_logger = logging.getLogger(__name__)

# The names in the lists, to the codes of our files.
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


class Entry(NamedTuple):
    """One line of a list: 19970617-667588newsML is 19970617/667588newsML.xml."""

    folder: str
    name: str


class _Place(NamedTuple):
    """Where a document is: a file, or a member of an archive."""

    path: Path
    member: str | None


def build_mldoc(
    rcv_directories: Sequence[str | os.PathLike[str]],
    index_directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    languages: Sequence[str] | None = None,
    train_size: int = 1000,
    clean: bool = True,
) -> dict[str, int]:
    """Writes MLDoc as `{train,dev,test}.LANG.tsv` of `label<TAB>text`, whole or not at all.

    Args:
        rcv_directories: RCV1 (for English) and RCV2, anywhere below: folders of XML files or zip
            archives of them, named as in the lists (19970617, REUTFR11).
        index_directory: the lists, english.train.1000, english.dev, english.test and so on.
        output: the directory to write, replaced if it exists.
        languages: codes, such as en and de; None takes all that have their three lists.
        train_size: which training list, of 1000, 2000, 5000 or 10000 documents.
        clean: drop Reuters' copyright line and close up "Co ." and "Inc ." as LASER does.

    Returns:
        The number of documents of each file written.

    Raises:
        ValueError: if a list or a document is missing, broken, or not under one of the topics.
        OSError: if reading or writing fails.
    """
    lists = _find_lists(Path(index_directory).expanduser(), languages, train_size)
    entries = {name: list(_read_list(path)) for name, path in lists.items()}
    wanted = {entry for each in entries.values() for entry in each}
    places = _find_documents(rcv_directories, wanted)
    for name, each in entries.items():
        missing = [entry for entry in each if entry not in places]
        if missing:
            raise ValueError(
                f"{lists[name]}: {len(missing)} of {len(each)} documents are not below "
                f"{', '.join(map(str, rcv_directories))}, first {'-'.join(missing[0])}; "
                f"name the directories of both RCV1 and RCV2"
            )
    archives: dict[Path, zipfile.ZipFile] = {}
    counts = {}
    try:
        with whole_directory(Path(output).expanduser()) as directory:
            for name, each in entries.items():
                rows = [_read_document(places[entry], archives, clean) for entry in each]
                text = "".join(f"{label}\t{document}\n" for label, document in rows)
                (directory / name).write_text(text, encoding="utf-8")
                counts[name] = len(rows)
                _logger.info("%s: %d documents", name, len(rows))
    finally:
        for archive in archives.values():
            archive.close()
    return counts


def read_newsml(content: bytes, where: str, *, clean: bool = True) -> tuple[str, str]:
    """Reads one news item.

    Args:
        content: the XML file.
        where: what to call it in errors.
        clean: as for `build_mldoc`.

    Returns:
        The topic, C, E, G or M; and the text of its paragraphs on one line.

    Raises:
        ValueError: if it is no XML, or not under exactly one of the topics.
    """
    try:
        item = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise ValueError(f"{where}: must be NewsML; {error}") from error
    codes = [code.get("code") for code in item.findall(_TOPIC_CODES)]
    topics = [code for code in codes if code in _TOPICS]
    if len(topics) != 1:
        raise ValueError(
            f"{where}: must have one of the topics {', '.join(_TOPICS)}; found {topics or codes}"
        )
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
        raise ValueError(f"train_size must be one of {TRAIN_SIZES}; got {train_size}")
    unknown = [code for code in languages or () if code not in LANGUAGES.values()]
    if unknown:
        raise ValueError(f"MLDoc has no {unknown[0]}; it has {', '.join(LANGUAGES.values())}")
    parts = {"train": f"train.{train_size}", "dev": "dev", "test": "test"}
    found = {}
    for name, code in LANGUAGES.items():
        lists = {f"{split}.{code}.tsv": directory / f"{name}.{end}" for split, end in parts.items()}
        missing = [path for path in lists.values() if not path.is_file()]
        if not missing and (languages is None or code in languages):
            found.update(lists)
        elif languages is not None and code in languages:
            raise ValueError(f"{missing[0]}: no such list; give the directory of MLDoc's lists")
    if not found:
        raise ValueError(
            f"{directory}: must hold MLDoc's lists, such as english.train.{train_size}, "
            f"english.dev and english.test; no language has all three"
        )
    return found


def _read_list(path: Path) -> Iterator[Entry]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        match = _ENTRY.fullmatch(line.strip())
        if not match:
            raise ValueError(
                f"{path}:{number}: must be FOLDER-NAME as in 19970617-667588newsML; "
                f"found {line.strip()!r:.40}"
            )
        yield Entry(match["folder"], match["name"])


def _find_documents(
    directories: Sequence[str | os.PathLike[str]], wanted: Collection[Entry]
) -> Mapping[Entry, _Place]:
    """Where the wanted documents are; RCV1 and RCV2 share no folder names."""
    folders = {entry.folder for entry in wanted}
    places: dict[Entry, _Place] = {}
    for root in directories:
        if not Path(root).expanduser().is_dir():
            raise ValueError(f"{root}: must be a directory of Reuters news; there is none")
        for directory, names, files in os.walk(Path(root).expanduser()):
            names.sort()  # Of copies the first by name is taken.
            here = Path(directory)
            for file in sorted(files):
                stem, suffix = os.path.splitext(file)
                if suffix == ".xml" and here.name in folders:
                    entry = Entry(here.name, stem)
                    if entry in wanted:
                        places.setdefault(entry, _Place(here / file, None))
                elif suffix == ".zip":
                    for entry, place in _list_archive(here / file):
                        if entry in wanted:
                            places.setdefault(entry, place)
    return places


def _list_archive(path: Path) -> Iterator[tuple[Entry, _Place]]:
    """The documents of an archive: of one folder, whose name it has, or of several."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path}: must be a zip archive; {error}") from error
    for member in members:
        folder, _, file = member.rpartition("/")
        stem, suffix = os.path.splitext(file)
        if suffix == ".xml":
            for name in {folder.rpartition("/")[2], path.stem}:
                yield Entry(name, stem), _Place(path, member)


def _read_document(
    place: _Place, archives: dict[Path, zipfile.ZipFile], clean: bool
) -> tuple[str, str]:
    if place.member is None:
        return read_newsml(place.path.read_bytes(), str(place.path), clean=clean)
    if place.path not in archives:
        archives[place.path] = zipfile.ZipFile(place.path)
    try:
        content = archives[place.path].read(place.member)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{place.path}: {place.member} is damaged; {error}") from error
    return read_newsml(content, f"{place.path}: {place.member}", clean=clean)
