"""The settings of preparation, checked before any data is touched."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from xling_jax import options
from xling_jax.corpora.cleaning import CleaningRules
from xling_jax.corpora.shards import pair_name
from xling_jax.registry import check_choice
from xling_jax.text.languages import check_known, check_languages, parse_pair
from xling_jax.text.vocab import MODEL_TYPES, SPECIALS


@dataclasses.dataclass(frozen=True)
class VocabSettings:
    """The `vocab` section of a config.

    Args:
        size: number of pieces, special tokens included.
        model: a SentencePiece model to use instead of training one; empty to train.
        model_type: `bpe`, `unigram` or `word`, see `train_vocab`.
        sample_sentences: maximum sentences to train on, sampled with the seed from all kept text.
        sampling_exponent: a pair of n rows contributes in proportion to n ** exponent: 1 as
            published (all pair files joined), 0 for the same number from every pair, so that words
            of languages with little text are not split into letters.
        lowercase: whether text is lower-cased.
        moses: whether Moses normalizes punctuation and splits words first, as for T-LASER;
            see `text.vocab.normalizer`.
        character_coverage: share of the characters that get a piece.
    """

    size: int = 50_000
    model: str = ""
    model_type: str = "bpe"
    sample_sentences: int = 5_000_000
    sampling_exponent: float = 1.0
    lowercase: bool = True
    moses: bool = False
    character_coverage: float = 0.9995

    def __post_init__(self):
        if not 1 <= self.size <= 10_000_000 or self.sample_sentences < 2:
            raise ValueError(
                f"vocab.size={self.size} must be from 1 to 10,000,000 and "
                f"vocab.sample_sentences={self.sample_sentences} at least 2"
            )
        if not 0 < self.character_coverage <= 1:
            raise ValueError(
                f"vocab.character_coverage={self.character_coverage} must be above 0 and at most 1"
            )
        check_choice("vocab.model_type", self.model_type, MODEL_TYPES)


@dataclasses.dataclass(kw_only=True)
class PrepareSettings:
    """What `prepare` makes tokens from and how, checked without touching data.

    Args:
        languages: codes of the languages.
        corpora: each `KIND:WHERE`, see `specs.open_corpus`.
        pairs: pairs to train on, each `source-target`; kept unordered and sorted.
        exclude: evaluation files whose texts no training row may repeat.
        cleaning: options of `CleaningRules`.
        vocab: options of `VocabSettings`.
        layout: special tokens of the vocabulary, a key of `vocab.SPECIALS`.
        seed: of the vocabulary's sample.

    Raises:
        ValueError: naming the key of the config, what was found, and the way out.
    """

    languages: Sequence[str]
    corpora: Sequence[str]
    pairs: Sequence[str]
    exclude: Sequence[str] = ()
    cleaning: Mapping = dataclasses.field(default_factory=dict)
    vocab: Mapping = dataclasses.field(default_factory=dict)
    layout: str = "laser"
    seed: int = 0

    def __post_init__(self):
        self.languages = check_languages(self.languages)
        for name in ("pairs", "corpora"):
            values = getattr(self, name)
            if not values or isinstance(values, str):
                raise ValueError(f"data.{name} must be a list with at least one; found {values!r}")
        codes = [parse_pair(pair) for pair in self.pairs]
        for code in itertools.chain(*codes):
            check_known(code, self.languages, "data.pairs")
        self.pairs = tuple(sorted({pair_name(*pair) for pair in codes}))
        self.corpora = tuple(self.corpora)
        for spec in self.corpora:
            if self.corpora.count(spec) > 1:
                raise ValueError(f"data.corpora: {spec} is named twice; name it once")
        self.exclude = (self.exclude,) if isinstance(self.exclude, str) else tuple(self.exclude)
        self.cleaning = options.build(CleaningRules, self.cleaning, "cleaning")
        self.cleaning.check_languages(sorted(set(itertools.chain(*codes))))
        self.vocab = options.build(VocabSettings, self.vocab, "vocab")
        check_choice("layout", self.layout, SPECIALS)
