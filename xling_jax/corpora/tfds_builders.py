"""Europarl v7, the corpus of the papers, as a TFDS builder: `tfds:europarl_v7/de-en` in a config.

Importing this module registers it, and imports `tensorflow_datasets`.
"""

import collections
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import tensorflow_datasets as tfds

from xling_jax.corpora.readers.base import Row
from xling_jax.corpora.readers.moses import read_moses

_LANGUAGES = "bg cs da de el en es et fi fr hu it lt lv nl pl pt ro sk sl sv"


class EuroparlV7(tfds.core.GeneratorBasedBuilder):
    """Europarl v7: proceedings of the European Parliament 1996-2011, all pairs of 21 languages.

    The release (statmt.org) has pairs with English only. A pair without English is joined from two
    of them, see `join_on`. Nothing is fetched here: the user downloads the archives to
    DATA_DIR/downloads/manual/europarl_v7, where TFDS keeps what it cannot download itself.
    """

    VERSION = tfds.core.Version("7.1.0")
    RELEASE_NOTES = {"7.1.0": "Pairs without English are joined from the release's own pairs."}
    BUILDER_CONFIGS = [
        tfds.core.BuilderConfig(name="-".join(pair), description=f"Europarl v7, {pair}")
        for pair in itertools.combinations(_LANGUAGES.split(), 2)
    ]

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Sentence-aligned proceedings of the European Parliament, 1996-2011.",
            features=tfds.features.Translation(languages=self._codes),
            homepage="https://www.statmt.org/europarl/",
            citation="""
@inproceedings{koehn-2005-europarl,
  title = {Europarl: A Parallel Corpus for Statistical Machine Translation},
  author = {Koehn, Philipp},
  booktitle = {Proceedings of Machine Translation Summit X: Papers},
  pages = {79--86},
  year = {2005},
  address = {Phuket, Thailand},
}""",
            license="The authors are not aware of any copyright restrictions of the material.",
            # Corpora are shuffled by the batch plan; here the order says which line an example was.
            disable_shuffling=True,
        )

    def _archives(self) -> dict[str, Path]:
        """Address -> where it belongs, of the archive of each language but English."""
        top = Path(self.data_dir).parents[2]  # below are the name, the configuration, the version
        directory = top / "downloads/manual" / self.name
        names = [f"{code}-en.tgz" for code in self._others]
        return {f"https://www.statmt.org/europarl/v7/{name}": directory / name for name in names}

    @property
    def _codes(self) -> tuple[str, ...]:
        return tuple(self.builder_config.name.split("-"))

    @property
    def _others(self) -> list[str]:
        return [code for code in self._codes if code != "en"]

    def check_archives(self) -> None:
        """Raises if the user has to download an archive first, with the command that does."""
        missing = {url: path for url, path in self._archives().items() if not path.is_file()}
        if missing:
            path = next(iter(missing.values()))
            raise FileNotFoundError(
                f"{path}: no such file; wget -P {path.parent} {' '.join(missing)}, and likewise "
                "for the languages of other corpora (TFDS_DATA_DIR is another place), or name your "
                "own text with --config.data.corpora"
            )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager):
        directories = dl_manager.extract([*self._archives().values()])
        return {"train": self._generate_examples(directories)}

    def _generate_examples(self, directories: list[Path]) -> Iterator[tuple[int, dict[str, str]]]:
        """Yields (line, texts) of the lines where both languages have text."""
        corpora = [
            read_moses({c: str(directory / f"europarl-v7.{other}-en.{c}") for c in (other, "en")})
            for other, directory in zip(self._others, directories, strict=True)
        ]
        if len(corpora) == 2:
            yield from join_on("en", *corpora, tuple(self._others))
            return
        yield from ((row.line, row.texts) for row in corpora[0] if len(row.texts) == 2)


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
