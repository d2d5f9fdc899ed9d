"""The options of preparation, checked before any data is touched."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from xling_jax.corpora.cleaning import CleaningRules
from xling_jax.corpora.shards import pair_name
from xling_jax.options import check_number
from xling_jax.registry import check_choice
from xling_jax.text.languages import check_known, check_languages, parse_pair
from xling_jax.text.vocab import MODEL_TYPES, SPECIALS


@dataclasses.dataclass(frozen=True)
class VocabOptions:
    """The `vocab` section of a config.

    Args:
        size: number of pieces, special tokens included.
        model: a SentencePiece model, or a model directory whose vocabulary of another kind is used,
            instead of training one; empty to train.
        model_type: `bpe`, `unigram` or `word`, see `train_vocab`.
        sample_sentences: maximum sentences to train on, sampled with the seed from all kept text.
        sampling_exponent: a pair of n rows contributes in proportion to n ** exponent: 1 as
            published (all pair files joined), 0 for the same number from every pair, so that words
            of languages with little text are not split into letters.
        lowercase: whether text is lower-cased.
        moses: whether Moses normalizes punctuation and splits words first, as for T-LASER;
            see `text.vocab.normalizer`.
        character_coverage: share of the characters that get a piece, from 0.98 to 1.
        extend: size of a vocabulary to train on the text; its pieces that `model` lacks are added
            to those of `model`. 0 for none.
        extend_languages: languages of the text to train it on; () for all. With
            `train.model_init`, by default those that the model was not trained on.
        max_unknown_share: of the pieces of a language, in a given vocabulary. A language in a
            script that the vocabulary lacks has 40 to 60 %, one with some letters that it lacks 1
            to 3 %, others hardly any.
    """

    size: int = 50_000
    model: str = ""
    model_type: str = "bpe"
    sample_sentences: int = 5_000_000
    sampling_exponent: float = 1.0
    lowercase: bool = True
    moses: bool = False
    character_coverage: float = 0.9995
    extend: int = 0
    extend_languages: tuple[str, ...] = ()
    max_unknown_share: float = 0.1

    def __post_init__(self):
        check_number(self.size, "vocab.size", 1, below=1e7)
        check_number(self.sample_sentences, "vocab.sample_sentences", 2)
        # What SentencePiece takes.
        check_number(self.character_coverage, "vocab.character_coverage", 0.98, below=1.0001)
        check_choice("vocab.model_type", self.model_type, MODEL_TYPES)
        check_number(self.extend, "vocab.extend", at_least=0, below=1e7)
        check_number(self.max_unknown_share, "vocab.max_unknown_share", at_least=0, below=1.01)
        if self.extend and not self.model:
            raise ValueError(
                f"vocab.extend={self.extend} adds pieces to a given vocabulary; name a model in "
                "train.model_init"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preparation:
    """Options of preparation: the text that tokens are made from, and how.

    Args:
        languages: codes of the languages.
        corpora: each `KIND:WHERE`, see `specs.open_corpus`.
        pairs: pairs to train on, each `source-target`; kept unordered and sorted. `de-de` is text
            without translations: rows with a text in that language only.
        exclude: files whose texts no training row may repeat.
        evaluation: likewise, those that the config measures while training.
        validation_pairs: rows of each pair to take out of the corpora for the validation loss.
        max_broken_share: of the rows of a corpus, so many may be broken; they are dropped.
        cleaning: rules for rows.
        vocab: of the vocabulary.
        layout: special tokens of the vocabulary, a key of `vocab.SPECIALS`.
        seed: of the vocabulary's sample.
        prompt: what goes before a text when it becomes tokens.
        teacher: whose vectors to compute for the rows, see `row_vectors`: `model`, `texts`,
            `width`, and `languages`, pair -> the sides; empty for none.
    """

    languages: Sequence[str]
    corpora: Sequence[str]
    pairs: Sequence[str]
    exclude: Sequence[str] = ()
    evaluation: Sequence[str] = ()
    validation_pairs: int = 0
    max_broken_share: float = 0.1
    cleaning: CleaningRules = CleaningRules()
    vocab: VocabOptions = VocabOptions()
    layout: str = "laser"
    seed: int = 0
    prompt: str = ""
    teacher: Mapping = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name in ("pairs", "corpora"):
            if isinstance(value := getattr(self, name), str):
                raise ValueError(f"data.{name} must be a list of at least one; found {value!r}")
        if not self.pairs:
            raise ValueError(f"data.pairs must be a list of at least one; found {self.pairs!r}")
        languages = check_languages(self.languages)
        pairs = [parse_pair(pair, allow_same=True) for pair in self.pairs]
        codes = list(itertools.chain(*pairs))
        for code in codes:
            check_known(code, languages, "data.pairs")
        if len(set(codes)) < 2:
            raise ValueError(
                f"data.pairs={tuple(self.pairs)!r} name one language only, and corpora have two or "
                "more; add a pair with another language"
            )
        named = {"languages": languages, "corpora": tuple(self.corpora)}
        named["pairs"] = tuple(sorted({pair_name(*pair) for pair in pairs}))
        for name in ("exclude", "evaluation"):
            given = getattr(self, name)
            named[name] = (given,) if isinstance(given, str) else tuple(given)
        for name, value in named.items():
            object.__setattr__(self, name, value)
        check_number(self.validation_pairs, "data.validation_pairs", 0)
        check_number(self.max_broken_share, "data.max_broken_share", 0, below=1.01)
        for spec, count in Counter(self.corpora).items():
            if count > 1:
                raise ValueError(f"data.corpora: {spec} is named twice; name it once")
        self.cleaning.check_languages(self.codes)
        for code in self.vocab.extend_languages:
            check_known(code, self.codes, "vocab.extend_languages")
        check_choice("layout", self.layout, SPECIALS)

    @property
    def codes(self) -> tuple[str, ...]:
        """The languages of the pairs, sorted."""
        return tuple(sorted({code for pair in self.pairs for code in pair.split("-")}))
