"""What each stage of preparation is made from: equal fingerprints mean equal bytes.

Settings that a version added count only where they are not as by default, so that what was made
before keeps its fingerprint.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from xling_jax.corpora import pair_text
from xling_jax.corpora.held_out import HeldOutText
from xling_jax.corpora.options import Preparation
from xling_jax.corpora.specs import kind_of, split_limit
from xling_jax.files.hashes import fingerprint
from xling_jax.text.vocabularies import Vocabulary

FORMAT_VERSION = 1


def text_key(
    settings: Preparation,
    spec: str,
    files: Sequence[tuple[str, str]],
    held_out: Iterable[HeldOutText],
) -> str:
    """The fingerprint of the cleaned text of a corpus.

    Args:
        settings: of preparation.
        spec: the corpus as the config names it.
        files: of `specs.hashed_files`; none for a dataset, which its name defines.
        held_out: what its rows may not repeat.
    """
    rules = dataclasses.asdict(settings.cleaning)
    # The text does not depend on these.
    del rules["max_tokens_per_sentence"], rules["drop_duplicates"]
    # Files of `data.exclude` count as often as they are named, others once and if not among them.
    held_out = list(held_out)
    excluded = [text.key for text in held_out if text.excluded]
    others = {text.key for text in held_out} - {*excluded}
    files = list(files)
    corpus = [kind_of(spec)[0], spec.partition("?")[2], files] if files else [spec]
    if files and (limit := split_limit(spec)[1]):
        corpus.append(limit)
    return fingerprint(
        {
            "format": [FORMAT_VERSION, pair_text.FORMAT_VERSION],
            "pairs": settings.pairs,
            "cleaning": rules,
            "exclude": sorted([*excluded, *others]),
            "corpus": corpus,
        }
    )


def vocab_identity(
    settings: Preparation, text_keys: Sequence[str], given: Vocabulary | None
) -> dict:
    """What a vocabulary is made from: given, or trained on text; content of `vocab.json`."""
    vocab = settings.vocab
    moses = {"moses": True} if vocab.moses else {}
    identity = {"layout": settings.layout, "lowercase": vocab.lowercase, **moses}
    if given:
        return identity | {"model": given.fingerprint}
    options = dataclasses.asdict(vocab)
    del options["moses"]
    identity |= {"settings": options, **_duplicates(settings)}
    identity |= {"text": list(text_keys), "seed": settings.seed}
    if settings.validation_pairs:
        identity["validation_pairs"] = settings.validation_pairs
    return identity


def vocab_stage(identity: dict) -> str:
    """The fingerprint of `vocab_identity`."""
    return fingerprint({"format": FORMAT_VERSION, **identity})


def pair_key(settings: Preparation, text_keys: Sequence[str], vocab: str) -> str:
    """The fingerprint of the tokens of a pair.

    Args:
        settings: of preparation.
        text_keys: of the corpora that have the pair, in the order of the config.
        vocab: fingerprint of the vocabulary.
    """
    facts = {
        "format": FORMAT_VERSION,
        "text": list(text_keys),
        "vocab": vocab,
        "max_tokens": settings.cleaning.max_tokens_per_sentence,
        **_duplicates(settings),
    }
    if settings.validation_pairs:
        facts["validation_pairs"] = settings.validation_pairs
    return fingerprint(facts)


def _duplicates(settings: Preparation) -> dict[str, str]:
    return {} if settings.cleaning.drop_duplicates else {"duplicates": "kept"}
