"""Europarl v7: proceedings of the European Parliament 1996-2011, all pairs of 21 languages."""

import tensorflow_datasets as tfds

from xling_jax.corpora.tfds_builders import parallel_corpus

_LANGUAGES = "bg cs da de el en es et fi fr hu it lt lv nl pl pt ro sk sl sv"
_ENGLISH_URL = "https://www.statmt.org/europarl/v7/{pair}.tgz"
_OTHER_URL = "https://object.pouta.csc.fi/OPUS-Europarl/v7/moses/{pair}.txt.zip"
_CITATION = """
@inproceedings{koehn-2005-europarl,
  title = {Europarl: A Parallel Corpus for Statistical Machine Translation},
  author = {Koehn, Philipp},
  booktitle = {Proceedings of Machine Translation Summit X: Papers},
  pages = {79--86},
  year = {2005},
  address = {Phuket, Thailand},
}
@inproceedings{tiedemann-2012-parallel,
  title = {Parallel Data, Tools and Interfaces in {OPUS}},
  author = {Tiedemann, J{\\"o}rg},
  booktitle = {Proceedings of LREC 2012},
  pages = {2214--2218},
  year = {2012},
}
"""


class EuroparlV7(tfds.core.GeneratorBasedBuilder):
    """Europarl v7.

    Pairs with English are the release of the author (statmt.org); it has no others, so pairs
    without English are the alignments that OPUS made of the same release.
    """

    VERSION = tfds.core.Version("7.0.0")
    BUILDER_CONFIGS = parallel_corpus.pair_configs(_LANGUAGES, "Europarl v7")

    def _info(self) -> tfds.core.DatasetInfo:
        return parallel_corpus.translation_info(
            self,
            description="Sentence-aligned proceedings of the European Parliament, 1996-2011.",
            homepage="https://www.statmt.org/europarl/",
            citation=_CITATION,
            license="The authors are not aware of any copyright restrictions of the material.",
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        source, target = self.builder_config.languages
        if "en" in (source, target):
            other = target if source == "en" else source
            pair, url, prefix = f"{other}-en", _ENGLISH_URL, "europarl-v7"
        else:
            pair, url, prefix = f"{source}-{target}", _OTHER_URL, "Europarl"
        directory = dl_manager.download_and_extract(url.format(pair=pair))
        paths = {code: directory / f"{prefix}.{pair}.{code}" for code in (source, target)}
        return {"train": self._generate_examples(paths)}

    def _generate_examples(self, paths):
        return parallel_corpus.generate_translations(paths)
