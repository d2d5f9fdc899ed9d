"""TFDS builders of the papers' corpora, found by `tfds:NAME` in a config.

A language code is the one that the corpus uses in its file names. Importing this module registers
the datasets, and imports `tensorflow_datasets`.
"""

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import tensorflow_datasets as tfds

from xling_jax.corpora.readers.base import Row
from xling_jax.corpora.readers.moses import read_moses
from xling_jax.files.lines import read_line_blocks


@dataclasses.dataclass(kw_only=True)
class LanguagesConfig(tfds.core.BuilderConfig):
    """A configuration of a parallel corpus: its languages, as in its file names."""

    languages: tuple[str, ...] = ()


def pair_configs(languages: str, version: str) -> list[LanguagesConfig]:
    """A configuration "a-b" for every two of the languages, in alphabetical order."""
    return [
        LanguagesConfig(name="-".join(pair), description=f"{version}, {pair}", languages=pair)
        for pair in itertools.combinations(sorted(languages.split()), 2)
    ]


class FetchedCorpus(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """`Translation`s from files that the user downloads: nothing is fetched here.

    They belong in DATA_DIR/downloads/manual/NAME, where TFDS keeps what it cannot download itself.
    Subclasses describe the corpus and generate its examples.
    """

    DESCRIPTION: str
    HOMEPAGE: str
    LICENSE: str
    CITATION: str

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.DESCRIPTION,
            features=tfds.features.Translation(languages=self.builder_config.languages),
            homepage=self.HOMEPAGE,
            citation=self.CITATION,
            license=self.LICENSE,
            # Corpora are shuffled by the batch plan; here the order says which line an example was.
            disable_shuffling=True,
        )

    @property
    def others(self) -> list[str]:
        """The languages of the configuration without English."""
        return [code for code in self.builder_config.languages if code != "en"]

    def urls(self) -> list[str]:
        """Addresses of the files that the configuration is made from."""
        raise NotImplementedError

    def to_download(self) -> dict[str, Path]:
        """The files that are not there yet: address -> where it belongs."""
        return {url: path for url in self.urls() if not (path := self.fetched(url)).is_file()}

    def fetched(self, url: str) -> Path:
        """Where the file at an address belongs on this machine."""
        top = Path(self.data_dir).parents[2]  # below are the name, the configuration, the version
        return top / "downloads" / "manual" / self.name / url.rpartition("/")[2]


class EuroparlV7(FetchedCorpus):
    """Europarl v7: proceedings of the European Parliament 1996-2011, all pairs of 21 languages.

    The release (statmt.org) has pairs with English only. A pair without English is joined from two
    of them, see `join_on`.
    """

    DESCRIPTION = "Sentence-aligned proceedings of the European Parliament, 1996-2011."
    HOMEPAGE = "https://www.statmt.org/europarl/"
    LICENSE = "The authors are not aware of any copyright restrictions of the material."
    CITATION = """
@inproceedings{koehn-2005-europarl,
  title = {Europarl: A Parallel Corpus for Statistical Machine Translation},
  author = {Koehn, Philipp},
  booktitle = {Proceedings of Machine Translation Summit X: Papers},
  pages = {79--86},
  year = {2005},
  address = {Phuket, Thailand},
}"""
    VERSION = tfds.core.Version("7.1.0")
    RELEASE_NOTES = {"7.1.0": "Pairs without English are joined from the release's own pairs."}
    BUILDER_CONFIGS = pair_configs(
        "bg cs da de el en es et fi fr hu it lt lv nl pl pt ro sk sl sv", "Europarl v7"
    )

    def urls(self) -> list[str]:
        return [f"https://www.statmt.org/europarl/v7/{code}-en.tgz" for code in self.others]

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        directories = dl_manager.extract([self.fetched(url) for url in self.urls()])
        return {"train": self._generate_examples(directories)}

    def _generate_examples(self, directories: list[Path]) -> Iterator[tuple[int, dict[str, str]]]:
        """Yields (line, texts) of the lines where both languages have text."""
        corpora = [
            read_moses({c: str(directory / f"europarl-v7.{other}-en.{c}") for c in (other, "en")})
            for other, directory in zip(self.others, directories, strict=True)
        ]
        if len(corpora) == 2:
            yield from join_on("en", *corpora, tuple(self.others))
            return
        yield from ((row.line, row.texts) for row in corpora[0] if len(row.texts) == 2)


class ParaCrawlV5(FetchedCorpus):
    """ParaCrawl release 5: web pages in English and 23 languages, filtered by Bicleaner at 0.7.

    TFDS itself has release 4, under the name `para_crawl`.
    """

    DESCRIPTION = "Sentence pairs from web crawls (release 5, Bicleaner score of at least 0.7)."
    HOMEPAGE = "https://paracrawl.eu/v5"
    LICENSE = "CC0 for the packaging; the texts are those of their web pages."
    CITATION = """
@inproceedings{banon-etal-2020-paracrawl,
  title = {{P}ara{C}rawl: Web-Scale Acquisition of Parallel Corpora},
  author = {Ba{\\~n}{\\'o}n, Marta and others},
  booktitle = {Proceedings of ACL 2020},
  pages = {4555--4567},
  year = {2020},
  doi = {10.18653/v1/2020.acl-main.417},
}
"""
    VERSION = tfds.core.Version("5.0.0")
    BUILDER_CONFIGS = [
        config
        for config in pair_configs(
            "bg cs da de el en es et fi fr ga hr hu it lt lv mt nl pl pt ro sk sl sv",
            "ParaCrawl release 5",
        )
        if "en" in config.languages
    ]

    def urls(self) -> list[str]:
        release = "https://s3.amazonaws.com/web-language-models/paracrawl/release5"
        return [f"{release}/en-{self.others[0]}.bicleaner07.txt.gz"]

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        return {"train": self._generate_examples(self.fetched(self.urls()[0]))}

    def _generate_examples(self, path: Path) -> Iterator[tuple[int, dict[str, str]]]:
        """Yields (line, texts) of the lines with English and the other language."""
        lines = itertools.chain.from_iterable(read_line_blocks(str(path)))
        for number, line in enumerate(lines, start=1):
            cells = line.split("\t") if isinstance(line, str) else []
            if len(cells) == 2 and all(map(str.strip, cells)):
                yield number, {"en": cells[0], self.others[0]: cells[1]}


BUILDERS = (EuroparlV7, ParaCrawlV5)


def join_on(
    pivot: str, first: Iterable[Row], second: Iterable[Row], languages: tuple[str, str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Joins two corpora on equal text in the language that they share.

    Texts must be equal character for character. The k-th row of the first corpus with some pivot
    text joins the k-th row of the second with the same text, and rows without a partner are
    dropped: a formula such as "Thank you." that occurs n and m times gives min(n, m) rows, not n m.
    In corpora that follow the same documents in the same order, these are mostly the same places.

    Both have `pivot`, and either one of `languages`; rows without one of the two are skipped. The
    texts of `second` are held in memory, with about 250 bytes more for each row. Yields the line of
    a row of `first`, and its text and that of its partner by language.
    """
    ours, theirs = languages
    waiting: dict[bytes, list[str]] = collections.defaultdict(list)
    for texts in (row.texts for row in second if {pivot, theirs} <= row.texts.keys()):
        waiting[_key(texts[pivot])].append(texts[theirs])
    for row in (row for row in first if {pivot, ours} <= row.texts.keys()):
        if partners := waiting.get(_key(row.texts[pivot])):
            yield row.line, {ours: row.texts[ours], theirs: partners.pop(0)}


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
