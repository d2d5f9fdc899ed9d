"""What the builders of parallel corpora share: downloaded Moses files become `Translation`s."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

import tensorflow_datasets as tfds

from xling_jax.corpora.readers.moses import read_moses


@dataclasses.dataclass(kw_only=True)
class LanguagesConfig(tfds.core.BuilderConfig):
    """A configuration of a parallel corpus: its languages.

    Attributes:
        languages: codes, as in the file names of the corpus.
    """

    languages: tuple[str, ...] = ()


def pair_configs(languages: str, version: str) -> list[LanguagesConfig]:
    """Returns a configuration "a-b" for every two languages, in alphabetical order.

    Args:
        languages: codes, separated by spaces.
        version: release of the corpus, for the description.
    """
    return [
        LanguagesConfig(name="-".join(pair), description=f"{version}, {pair}", languages=pair)
        for pair in itertools.combinations(sorted(languages.split()), 2)
    ]


def translation_info(
    builder: tfds.core.GeneratorBasedBuilder,
    *,
    description: str,
    homepage: str,
    citation: str,
    license: str,
) -> tfds.core.DatasetInfo:
    """Describes a dataset of aligned texts, in the order of its files.

    Args:
        builder: of which a `LanguagesConfig` is chosen.
        description: what the texts are, in a sentence.
        homepage: where the corpus is explained.
        citation: BibTeX entries.
        license: name of the licence, or what its makers say.
    """
    return tfds.core.DatasetInfo(
        builder=builder,
        description=description,
        features=tfds.features.Translation(languages=builder.builder_config.languages),
        homepage=homepage,
        citation=citation,
        license=license,
        # Corpora are shuffled by the batch plan; here the order says which line an example was.
        disable_shuffling=True,
    )


def generate_translations(paths: Mapping[str, str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields (line, texts) of the lines where every language has text.

    Args:
        paths: language to file.
    """
    for row in read_moses({language: str(path) for language, path in paths.items()}):
        if len(row.texts) == len(paths):
            yield row.line, row.texts
