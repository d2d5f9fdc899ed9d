"""The settings of preparation, checked before any data is touched."""

import dataclasses
from collections.abc import Mapping, Sequence

from xling_jax.corpora.cleaning import CleaningRules, settings_from
from xling_jax.corpora.shards import pair_name
from xling_jax.text.languages import check_known, check_languages, parse_pair
from xling_jax.text.vocab import MODEL_TYPES, SPECIALS


@dataclasses.dataclass(frozen=True)
class VocabSettings:
    """The `vocab` section of a config.

    Args:
        size: number of pieces, specials included.
        model: a SentencePiece model to use instead of training one; empty to train.
        model_type: `bpe`, `unigram` or `word`, see `train_vocab`.
        sample_sentences: most sentences to train on, drawn from all kept sides with the seed.
        sampling_exponent: a pair of n rows gives a share proportional to n ** exponent: 1 as
            published (all pair files joined), 0 the same number from every pair, so that languages
            with little text are not cut into letters.
        lowercase: whether case is dropped.
        character_coverage: share of the characters that get a piece.
    """

    size: int = 50_000
    model: str = ""
    model_type: str = "bpe"
    sample_sentences: int = 1_000_000
    sampling_exponent: float = 1.0
    lowercase: bool = True
    character_coverage: float = 0.9995

    def __post_init__(self):
        if self.size < 1 or self.sample_sentences < 2:
            raise ValueError(
                f"vocab.size={self.size} must be positive and "
                f"vocab.sample_sentences={self.sample_sentences} at least 2"
            )
        if not 0 < self.character_coverage <= 1:
            raise ValueError(
                f"vocab.character_coverage={self.character_coverage} must be above 0, at most 1"
            )
        if self.model_type not in MODEL_TYPES:
            raise ValueError(
                f"vocab.model_type must be one of {', '.join(MODEL_TYPES)}; "
                f"found {self.model_type!r}"
            )


@dataclasses.dataclass(frozen=True)
class PrepareSettings:
    """Checked settings of `prepare`; `make` builds them from the sections of a config."""

    languages: tuple[str, ...]
    corpora: tuple[str, ...]
    exclude: tuple[str, ...]
    pairs: tuple[str, ...]
    cleaning: CleaningRules
    vocab: VocabSettings
    layout: str
    seed: int

    @classmethod
    def make(
        cls,
        *,
        languages: Sequence[str],
        corpora: Sequence[str],
        pairs: Sequence[str],
        exclude: Sequence[str] = (),
        cleaning: Mapping | None = None,
        vocab: Mapping | None = None,
        layout: str = "laser",
        seed: int = 0,
    ) -> "PrepareSettings":
        """Checks settings without touching data; arguments as `prepare`.

        Raises:
            ValueError: naming the key of the config, what was found, and the way out.
        """
        languages = check_languages(languages)
        for name, values in (("pairs", pairs), ("corpora", corpora)):
            if not values or isinstance(values, str):
                raise ValueError(f"data.{name} must be a list of at least one; found {values!r}")
        unordered = set()
        for pair in pairs:
            codes = [check_known(code, languages, "data.pairs") for code in parse_pair(pair)]
            unordered.add(pair_name(*codes))
        repeated = sorted({spec for spec in corpora if list(corpora).count(spec) > 1})
        if repeated:
            raise ValueError(f"data.corpora names {repeated[0]} twice; name each corpus once")
        rules = settings_from(CleaningRules, cleaning or {}, "cleaning")
        rules.check_languages(sorted({code for pair in unordered for code in pair.split("-")}))
        if layout not in SPECIALS:
            raise ValueError(f"layout must be one of {', '.join(SPECIALS)}; found {layout!r}")
        return cls(
            languages=languages,
            corpora=tuple(corpora),
            exclude=(exclude,) if isinstance(exclude, str) else tuple(exclude),
            pairs=tuple(sorted(unordered)),
            cleaning=rules,
            vocab=settings_from(VocabSettings, vocab or {}, "vocab"),
            layout=layout,
            seed=seed,
        )
