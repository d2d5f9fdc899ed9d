"""Multi30k, task 1: captions of pictures and their translations, aligned over four languages."""

import tensorflow_datasets as tfds

from xling_jax.corpora.tfds_builders import parallel_corpus

_LANGUAGES = "cs de en fr"
_URL = "https://raw.githubusercontent.com/multi30k/dataset/{commit}/data/task1/raw/{file}.gz"
_COMMIT = "a3d2e0d26b56"
_FILES = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
_CITATION = """
@inproceedings{elliott-etal-2016-multi30k,
  title = {{M}ulti30{K}: Multilingual {E}nglish-{G}erman Image Descriptions},
  author = {Elliott, Desmond and Frank, Stella and Sima'an, Khalil and Specia, Lucia},
  booktitle = {Proceedings of the 5th Workshop on Vision and Language},
  pages = {70--74},
  year = {2016},
  doi = {10.18653/v1/W16-3210},
}
"""


class Multi30k(tfds.core.GeneratorBasedBuilder):
    """Multi30k: 29,000 training captions in English, German, French and Czech."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [
        parallel_corpus.LanguagesConfig(
            name="all",
            description="The captions in all four languages.",
            languages=tuple(_LANGUAGES.split()),
        ),
        *parallel_corpus.pair_configs(_LANGUAGES, "Multi30k"),
    ]

    def _info(self) -> tfds.core.DatasetInfo:
        return parallel_corpus.translation_info(
            self,
            description="Captions of Flickr30k pictures, translated by people (task 1, raw text).",
            homepage="https://github.com/multi30k/dataset",
            citation=_CITATION,
            license="None stated for the text; the pictures are for non-commercial research.",
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        urls = {
            split: {
                code: _URL.format(commit=_COMMIT, file=f"{file}.{code}")
                for code in self.builder_config.languages
            }
            for split, file in _FILES.items()
        }
        paths = dl_manager.download_and_extract(urls)
        return {split: self._generate_examples(paths[split]) for split in _FILES}

    def _generate_examples(self, paths):
        return parallel_corpus.generate_translations(paths)
