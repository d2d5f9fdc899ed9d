"""The vocabulary of a workdir: a given one, or one trained on a sample of its text."""

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xling_jax.corpora.options import Preparation, VocabOptions
from xling_jax.corpora.specs import local_name
from xling_jax.corpora.stages import Stage, vocab_facts, vocab_key
from xling_jax.files.whole import read_json
from xling_jax.text.vocab import Vocab, check_layout, extended, train_vocab
from xling_jax.text.vocabularies import (
    Vocabulary,
    read_model_vocab,
    read_vocab,
    record,
    write_vocab,
)

# Of a vocabulary that is not a SentencePiece model: one of its files is a `vocab.json`.
_OTHER_VOCAB = "tokenizer"

# Share of unknown pieces above which a vocabulary lacks letters of a language.
_MANY_UNKNOWN = 0.005

_logger = logging.getLogger(__name__)


def prepared_vocab(workdir: str | os.PathLike[str], *, lowercase: bool, moses: bool) -> Vocabulary:
    """Returns the vocabulary of a workdir.

    `lowercase` and `moses` are for a SentencePiece model; others record their own options.
    """
    directory = Path(workdir) / "vocab"
    if own := (read_json(directory / "vocab.json") or {}).get("preprocessing"):
        return read_vocab(directory / _OTHER_VOCAB, own)
    return Vocab(directory / "sentencepiece.model", lowercase=lowercase, moses=moses)


def given_vocab(preparation: Preparation) -> Vocabulary | None:
    """Reads the vocabulary that `vocab.model` names; None if it names none."""
    options = preparation.vocab
    if not options.model:
        return None
    path = Path(local_name(options.model))
    if path.is_dir():
        return read_model_vocab(path)
    vocab = Vocab(path, lowercase=options.lowercase, moses=options.moses)
    check_layout(vocab, preparation.layout, options.model)
    pieces = [piece for i, piece in enumerate(vocab.pieces()) if not vocab.is_control(i)]
    # Models of lower-cased text, too, have single capitals (of "TM", one sign) and bytes (<0x0A>).
    cased = [p for p in pieces if p != p.lower() and len(p.strip("▁")) > 1 and p[:3] != "<0x"]
    if cased and vocab.lowercase:
        _logger.warning(
            "%s: %d pieces have capitals, such as %.60s, and never occur in lower-cased text; "
            "a cased model needs vocab.lowercase=False",
            *(options.model, len(cased), cased[0]),
        )
    return vocab


def make_vocab(
    preparation: Preparation,
    workdir: Path,
    text_keys: Sequence[str],
    given: Vocabulary | None,
    sentences: Callable[[], Iterable[str]],
) -> Vocabulary:
    """Returns the finished vocabulary of a workdir, or makes it from the corpora of `text_keys`.

    `given` is from `given_vocab`; `sentences` gives those to train on, called only when needed.
    """
    options, facts = preparation.vocab, vocab_facts(preparation, text_keys, given)
    stage = Stage(workdir / "vocab", vocab_key(facts), "vocab.json", "stage")
    if made := stage.read():
        # A file that is missing or damaged is made again.
        with contextlib.suppress(ValueError, FileNotFoundError):
            vocab = prepared_vocab(workdir, lowercase=options.lowercase, moses=options.moses)
            if vocab.fingerprint == made.get("fingerprint"):
                return vocab
    path = stage.directory / stage.record
    if path.exists():
        _logger.warning("%s: made with other options, or damaged; replaced", stage.directory)
        path.unlink()
    if given and not options.extend:
        vocab = given
    else:
        vocab = _train(preparation, given, sentences())

    def save(directory: Path) -> Mapping[str, Any]:
        made = {"fingerprint": vocab.fingerprint, "size": vocab.size, **facts}
        if isinstance(vocab, Vocab):
            write_vocab(vocab, directory)
            return made
        (directory / _OTHER_VOCAB).mkdir()
        write_vocab(vocab, directory / _OTHER_VOCAB)
        return made | {"preprocessing": record(vocab)}

    stage.make(save)
    return vocab


def _train(preparation: Preparation, given: Vocabulary | None, sentences: Iterable[str]) -> Vocab:
    """Trains a vocabulary on sentences, or the pieces that a given one gets."""
    options = preparation.vocab
    how = {"character_coverage": options.character_coverage, "seed": preparation.seed}
    if given:
        vocab = extended(given, sentences, size=options.extend, **how)
        languages = ", ".join(options.extend_languages or preparation.codes)
        _logger.info("%d pieces of %s added to %d", vocab.size - given.size, languages, given.size)
        return vocab
    _logger.info(
        "training a vocabulary of %d pieces; a minute or two for a million sentences", options.size
    )
    how |= {"layout": preparation.layout, "model_type": options.model_type}
    how |= {"lowercase": options.lowercase, "moses": options.moses}
    return train_vocab(sentences, size=options.size, **how)


def check_unknown(options: VocabOptions, pairs: Iterable[Mapping[str, Any]]) -> None:
    """Raises ValueError if a given vocabulary knows too little of a language."""
    tokens: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for pair in pairs:
        tokens.update(pair["tokens"])
        unknown.update(pair.get("unknown", {}))
    shares = {code: count / tokens[code] for code, count in unknown.most_common() if count}
    told = lambda least: ", ".join(f"{c} {s:.1%}" for c, s in shares.items() if s > least)
    if too_many := told(options.max_unknown_share):
        # A published tokenizer, a folder, takes no pieces.
        way_out = "add pieces with --config.vocab.extend=8000"
        if Path(options.model).is_dir():
            way_out = "distill the model (--config distill)"
        raise ValueError(
            f"vocab.model: {options.model} does not know the text: of its pieces are unknown "
            f"{too_many} (vocab.max_unknown_share={options.max_unknown_share}); {way_out}, or take "
            "the language out"
        )
    if some := told(_MANY_UNKNOWN):
        _logger.warning("%s: of the pieces are unknown %s; see vocab.extend", options.model, some)
