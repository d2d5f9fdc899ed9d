"""Corpora that the published encoders were trained on, in the alignments of OPUS.

TFDS has a few others of OPUS under the name `opus`. A language code is the one OPUS uses in its
file names. Not every pair of the languages listed has an archive: preparing one that has none
fails with the address that was not found.
"""

import tensorflow_datasets as tfds

from xling_jax.corpora.tfds_builders import parallel_corpus

_URL = "https://object.pouta.csc.fi/OPUS-{corpus}/{release}/moses/{pair}.txt.zip"
_OPUS_CITATION = """
@inproceedings{tiedemann-2012-parallel,
  title = {Parallel Data, Tools and Interfaces in {OPUS}},
  author = {Tiedemann, J{\\"o}rg},
  booktitle = {Proceedings of LREC 2012},
  pages = {2214--2218},
  year = {2012},
}
"""
_OPEN_SUBTITLES_CITATION = """
@inproceedings{lison-tiedemann-2016-opensubtitles2016,
  title = {{O}pen{S}ubtitles2016: Extracting Large Parallel Corpora from Movie and {TV} Subtitles},
  author = {Lison, Pierre and Tiedemann, J{\\"o}rg},
  booktitle = {Proceedings of LREC 2016},
  pages = {923--929},
  year = {2016},
}
"""


class _OpusCorpus(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A corpus of OPUS: subclasses say which."""

    CORPUS: str
    RELEASE: str
    DESCRIPTION: str
    HOMEPAGE: str
    LICENSE: str
    CITATION = _OPUS_CITATION

    def _info(self) -> tfds.core.DatasetInfo:
        return parallel_corpus.translation_info(
            self,
            description=self.DESCRIPTION,
            homepage=self.HOMEPAGE,
            citation=self.CITATION,
            license=self.LICENSE,
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        pair = self.builder_config.name
        url = _URL.format(corpus=self.CORPUS, release=self.RELEASE, pair=pair)
        directory = dl_manager.download_and_extract(url)
        paths = {
            code: directory / f"{self.CORPUS}.{pair}.{code}"
            for code in self.builder_config.languages
        }
        return {"train": self._generate_examples(paths)}

    def _generate_examples(self, paths):
        return parallel_corpus.generate_translations(paths)


class OpusNewsCommentary(_OpusCorpus):
    """News Commentary v16: opinion pieces of Project Syndicate."""

    CORPUS = "News-Commentary"
    RELEASE = "v16"
    DESCRIPTION = "Political and economic commentary crawled from Project Syndicate for WMT."
    HOMEPAGE = "https://opus.nlpl.eu/News-Commentary/corpus/version/News-Commentary"
    LICENSE = "Not stated; provided for the WMT shared tasks, for research."
    VERSION = tfds.core.Version("16.0.0")
    BUILDER_CONFIGS = parallel_corpus.pair_configs(
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
    BUILDER_CONFIGS = parallel_corpus.pair_configs(
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
    BUILDER_CONFIGS = parallel_corpus.pair_configs(
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
    CITATION = _OPEN_SUBTITLES_CITATION
    VERSION = tfds.core.Version("2018.0.0")
    BUILDER_CONFIGS = parallel_corpus.pair_configs(
        "af ar bg bn br bs ca cs da de el en eo es et eu fa fi fr gl he hi hr hu hy id is it ja ka "
        "kk ko lt lv mk ml ms nl no pl pt pt_br ro ru si sk sl sq sr sv ta te th tl tr uk ur vi "
        "zh_cn zh_tw",
        "OpenSubtitles v2018",
    )
