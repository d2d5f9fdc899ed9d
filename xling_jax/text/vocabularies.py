"""The vocabularies a model directory may hold: their files, and what its config records of them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xling_jax.text import huggingface_vocab, laser_vocab
from xling_jax.text.huggingface_vocab import HuggingFaceText, HuggingFaceVocab
from xling_jax.text.laser_text import LaserText
from xling_jax.text.laser_vocab import LaserVocab
from xling_jax.text.vocab import Vocab

AnyVocab = Vocab | LaserVocab | HuggingFaceVocab

# A config that names no tokenizer means SentencePiece with `data.vocab.normalize_text`. The others:
# name -> files, settings, vocabulary.
_TOKENIZERS = {
    "huggingface": (huggingface_vocab.FILES, HuggingFaceText, HuggingFaceVocab),
    "laser": (laser_vocab.FILES, LaserText, LaserVocab),
}


def preprocessing(vocab: AnyVocab) -> dict[str, Any]:
    """Returns what `config.json` records: what is done to text, and by which tokenizer."""
    for name, (_, _, kind) in _TOKENIZERS.items():
        if isinstance(vocab, kind):
            return {"tokenizer": name, **dataclasses.asdict(vocab.text)}
    return {"lowercase": vocab.lowercase}


def write_vocab(vocab: AnyVocab, directory: Path) -> None:
    """Writes the files of a vocabulary into a directory."""
    if isinstance(vocab, Vocab):
        vocab.save(directory / laser_vocab.SENTENCEPIECE_FILE)
        return
    for name, content in vocab.files.items():
        (directory / name).write_bytes(content)


def read_vocab(directory: Path, recorded: Mapping[str, Any]) -> AnyVocab:
    """Reads the vocabulary of a model directory.

    Args:
        directory: where its files are.
        recorded: the `preprocessing` of `config.json`.

    Raises:
        ValueError: if the tokenizer or one of its settings is unknown, or a file is missing or
            broken.
        ImportError: without `tokenizers` for a published tokenizer.
    """
    settings = dict(recorded)
    tokenizer = settings.pop("tokenizer", None)
    if tokenizer is None:
        path = directory / laser_vocab.SENTENCEPIECE_FILE
        if not path.is_file():
            raise ValueError(f"{directory}: a model directory holds {path.name}; it is missing")
        return Vocab(path, lowercase=settings.get("lowercase", True))
    if tokenizer not in _TOKENIZERS:
        raise ValueError(
            f"{directory}: tokenizer must be one of {', '.join(_TOKENIZERS)} or absent; "
            f"found {tokenizer!r}"
        )
    names, text, kind = _TOKENIZERS[tokenizer]
    paths = [directory / name for name in names]
    files = {path.name: path.read_bytes() for path in paths if path.is_file()}
    try:
        return kind(files, text(**settings))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{directory}: {error}") from error
