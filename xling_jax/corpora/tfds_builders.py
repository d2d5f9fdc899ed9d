"""TFDS builders of parallel corpora that TFDS lacks, found by `tfds:NAME` in a config.

A language code is the one that the corpus uses in its file names. Not every pair of the languages
listed has an archive: preparing one that has none fails with the address that was not found.
Importing this module registers the datasets, and imports `tensorflow_datasets`.
"""

import collections
import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import tensorflow_datasets as tfds

from xling_jax.corpora.readers.base import Row
from xling_jax.corpora.readers.moses import read_moses
from xling_jax.files.lines import read_line_blocks

_OPUS_URL = "https://object.pouta.csc.fi/OPUS-{corpus}/{release}/moses/{pair}.txt.zip"
_OPUS_CITATION = """
@inproceedings{tiedemann-2012-parallel,
  title = {Parallel Data, Tools and Interfaces in {OPUS}},
  author = {Tiedemann, J{\\"o}rg},
  booktitle = {Proceedings of LREC 2012},
  pages = {2214--2218},
  year = {2012},
}
"""


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


class ParallelCorpus(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Downloaded Moses files as `Translation`s, in the order of the files.

    Subclasses describe the corpus and say where the files are.
    """

    DESCRIPTION: str
    HOMEPAGE: str
    LICENSE: str
    CITATION = _OPUS_CITATION

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

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        return {
            split: self._generate_examples(paths) for split, paths in self.find(dl_manager).items()
        }

    def _generate_examples(self, paths: Mapping[str, Path]) -> Iterator[tuple[int, dict[str, str]]]:
        """Yields (line, texts) of the lines where every language has text."""
        for row in read_moses({language: str(path) for language, path in paths.items()}):
            if len(row.texts) == len(paths):
                yield row.line, row.texts

    def find(self, dl_manager: tfds.download.DownloadManager) -> dict[str, dict[str, Path]]:
        """Downloads the corpus; split -> language -> file."""
        raise NotImplementedError


class FetchedCorpus(ParallelCorpus, skip_registration=True):
    """A corpus whose files the user downloads: nothing is fetched here.

    They belong in DATA_DIR/downloads/manual/NAME, where TFDS keeps what it cannot download itself.
    """

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
        codes = [code for code in self.builder_config.languages if code != "en"]
        return [f"https://www.statmt.org/europarl/v7/{code}-en.tgz" for code in codes]

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        others = [code for code in self.builder_config.languages if code != "en"]
        directories = dl_manager.extract([self.fetched(url) for url in self.urls()])
        paths = [
            {code: directory / f"europarl-v7.{other}-en.{code}" for code in (other, "en")}
            for other, directory in zip(others, directories, strict=True)
        ]
        if len(paths) == 1:
            return {"train": self._generate_examples(paths[0])}
        first, second = (
            read_moses({code: str(path) for code, path in each.items()}) for each in paths
        )
        return {"train": join_on("en", first, second, tuple(others))}


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
        (other,) = (code for code in self.builder_config.languages if code != "en")
        release = "https://s3.amazonaws.com/web-language-models/paracrawl/release5"
        return [f"{release}/en-{other}.bicleaner07.txt.gz"]

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        return {"train": self._generate_examples(self.fetched(self.urls()[0]))}

    def _generate_examples(self, path: Path) -> Iterator[tuple[int, dict[str, str]]]:
        """Yields (line, texts) of the lines with English and the other language."""
        (other,) = (code for code in self.builder_config.languages if code != "en")
        lines = itertools.chain.from_iterable(read_line_blocks(str(path)))
        for number, line in enumerate(lines, start=1):
            cells = line.split("\t") if isinstance(line, str) else []
            if len(cells) == 2 and all(map(str.strip, cells)):
                yield number, {"en": cells[0], other: cells[1]}


class Multi30k(ParallelCorpus):
    """Multi30k, task 1: 29,000 captions of pictures in English, German, French and Czech."""

    DESCRIPTION = "Captions of Flickr30k pictures, translated by people (task 1, raw text)."
    HOMEPAGE = "https://github.com/multi30k/dataset"
    LICENSE = "None stated for the text; the pictures are for non-commercial research."
    CITATION = """
@inproceedings{elliott-etal-2016-multi30k,
  title = {{M}ulti30{K}: Multilingual {E}nglish-{G}erman Image Descriptions},
  author = {Elliott, Desmond and Frank, Stella and Sima'an, Khalil and Specia, Lucia},
  booktitle = {Proceedings of the 5th Workshop on Vision and Language},
  pages = {70--74},
  year = {2016},
  doi = {10.18653/v1/W16-3210},
}
"""
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [
        LanguagesConfig(
            name="all",
            description="The captions in all four languages.",
            languages=("cs", "de", "en", "fr"),
        ),
        *pair_configs("cs de en fr", "Multi30k"),
    ]

    def find(self, dl_manager: tfds.download.DownloadManager) -> dict[str, dict[str, Path]]:
        url = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56/data/task1/raw"
        files = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
        codes = self.builder_config.languages
        urls = {
            split: {code: f"{url}/{file}.{code}.gz" for code in codes}
            for split, file in files.items()
        }
        return dl_manager.download_and_extract(urls)


class _OpusCorpus(ParallelCorpus, skip_registration=True):
    """A corpus in the alignments of OPUS, of which TFDS has a few others under the name `opus`."""

    CORPUS: str
    RELEASE: str

    def find(self, dl_manager: tfds.download.DownloadManager) -> dict[str, dict[str, Path]]:
        pair = self.builder_config.name
        url = _OPUS_URL.format(corpus=self.CORPUS, release=self.RELEASE, pair=pair)
        directory = dl_manager.download_and_extract(url)
        codes = self.builder_config.languages
        return {"train": {code: directory / f"{self.CORPUS}.{pair}.{code}" for code in codes}}


class OpusNewsCommentary(_OpusCorpus):
    """News Commentary v16: opinion pieces of Project Syndicate."""

    CORPUS = "News-Commentary"
    RELEASE = "v16"
    DESCRIPTION = "Political and economic commentary crawled from Project Syndicate for WMT."
    HOMEPAGE = "https://opus.nlpl.eu/News-Commentary/corpus/version/News-Commentary"
    LICENSE = "Not stated; provided for the WMT shared tasks, for research."
    VERSION = tfds.core.Version("16.0.0")
    BUILDER_CONFIGS = pair_configs(
        "ar cs de en es fr hi id it ja kk nl pt ru zh", "News Commentary v16"
    )


class OpusGlobalVoices(_OpusCorpus):
    """GlobalVoices v2018q4: citizen journalism."""

    CORPUS = "GlobalVoices"
    RELEASE = "v2018q4"
    DESCRIPTION = "News stories of the web site Global Voices, translated by volunteers."
    HOMEPAGE = "https://opus.nlpl.eu/GlobalVoices/corpus/version/GlobalVoices"
    LICENSE = "CC BY 3.0"
    VERSION = tfds.core.Version("2018.4.0")
    BUILDER_CONFIGS = pair_configs(
        "ar bg bn ca cs da de el en es fa fr he hi hu id it jp ko mg mk nl pl pt ro ru sq sr sv sw "
        "tr ur zhs zht",
        "GlobalVoices v2018q4",
    )


class OpusTatoeba(_OpusCorpus):
    """Tatoeba v2023-04-12: everyday sentences.

    The Tatoeba retrieval test set is a part of it: name that in `data.exclude`.
    """

    CORPUS = "Tatoeba"
    RELEASE = "v2023-04-12"
    DESCRIPTION = "Everyday sentences and their translations, written by volunteers."
    HOMEPAGE = "https://opus.nlpl.eu/Tatoeba/corpus/version/Tatoeba"
    LICENSE = "CC BY 2.0 FR"
    VERSION = tfds.core.Version("2023.4.12")
    BUILDER_CONFIGS = pair_configs(
        "af ar be bg ca cs da de el en eo es et eu fi fr gl he hi hu id is it ja ko la lt lv mk nl "
        "pl pt ro ru sk sr sv th tr tt uk vi",
        "Tatoeba v2023-04-12",
    )


class OpusOpenSubtitles(_OpusCorpus):
    """OpenSubtitles v2018: subtitles of films and series."""

    CORPUS = "OpenSubtitles"
    RELEASE = "v2018"
    DESCRIPTION = "Subtitles of films and series from opensubtitles.org, aligned by time and text."
    HOMEPAGE = "https://opus.nlpl.eu/OpenSubtitles/corpus/version/OpenSubtitles"
    LICENSE = "Not stated; OPUS asks for a link to http://www.opensubtitles.org/."
    CITATION = """
@inproceedings{lison-tiedemann-2016-opensubtitles2016,
  title = {{O}pen{S}ubtitles2016: Extracting Large Parallel Corpora from Movie and {TV} Subtitles},
  author = {Lison, Pierre and Tiedemann, J{\\"o}rg},
  booktitle = {Proceedings of LREC 2016},
  pages = {923--929},
  year = {2016},
}
"""
    VERSION = tfds.core.Version("2018.0.0")
    BUILDER_CONFIGS = pair_configs(
        "af ar bg bn br bs ca cs da de el en eo es et eu fa fi fr gl he hi hr hu hy id is it ja ka "
        "kk ko lt lv mk ml ms nl no pl pt pt_br ro ru si sk sl sq sr sv ta te th tl tr uk ur vi "
        "zh_cn zh_tw",
        "OpenSubtitles v2018",
    )


BUILDERS = (
    *(EuroparlV7, ParaCrawlV5, Multi30k),
    *(OpusNewsCommentary, OpusGlobalVoices, OpusTatoeba, OpusOpenSubtitles),
)


def join_on(
    pivot: str, first: Iterable[Row], second: Iterable[Row], languages: tuple[str, str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Joins two corpora on equal text in the language that they share.

    Texts must be equal character for character. The k-th row of the first corpus with some pivot
    text joins the k-th row of the second with the same text, and rows without a partner are
    dropped: a formula such as "Thank you." that occurs n and m times gives min(n, m) rows, not n m.
    In corpora that follow the same documents in the same order, these are mostly the same places.

    Args:
        pivot: the language that both have.
        first: rows; those without text in both of its languages are skipped.
        second: the same. Its texts are held in memory, with about 250 bytes more for each row.
        languages: the other language of each corpus.

    Yields:
        The line of a row of `first`, and its text and that of its partner by language.
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
