"""The vocabularies a model directory may hold: their files, and what its config records of them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xling_jax.data.vocab import Vocab
from xling_jax.encode import laser_vocab
from xling_jax.encode.laser_text import LaserText
from xling_jax.encode.laser_vocab import LaserVocab

AnyVocab = Vocab | LaserVocab

# A config that names no tokenizer means SentencePiece with `data.vocab.normalize_text`.
_LASER = "laser"


def preprocessing(vocab: AnyVocab) -> dict[str, Any]:
    """Returns what `config.json` records: what is done to text, and by which tokenizer."""
    if isinstance(vocab, LaserVocab):
        return {"tokenizer": _LASER, **dataclasses.asdict(vocab.text)}
    return {"lowercase": vocab.lowercase}


def write_vocab(vocab: AnyVocab, directory: Path) -> None:
    """Writes the files of a vocabulary into a directory."""
    if isinstance(vocab, LaserVocab):
        for name, content in vocab.files.items():
            (directory / name).write_bytes(content)
    else:
        vocab.save(directory / laser_vocab.SENTENCEPIECE_FILE)


def read_vocab(directory: Path, recorded: Mapping[str, Any]) -> AnyVocab:
    """Reads the vocabulary of a model directory.

    Args:
        directory: where its files are.
        recorded: the `preprocessing` of `config.json`.

    Raises:
        ValueError: if the tokenizer or one of its settings is unknown, or a file is missing or
            broken.
    """
    settings = dict(recorded)
    tokenizer = settings.pop("tokenizer", None)
    if tokenizer is None:
        path = directory / laser_vocab.SENTENCEPIECE_FILE
        if not path.is_file():
            raise ValueError(f"{directory}: a model directory holds {path.name}; it is missing")
        return Vocab(path, lowercase=settings.get("lowercase", True))
    if tokenizer != _LASER:
        raise ValueError(
            f"{directory}: tokenizer must be {_LASER!r} or absent; found {tokenizer!r}"
        )
    paths = [directory / name for name in laser_vocab.FILES]
    files = {path.name: path.read_bytes() for path in paths if path.is_file()}
    try:
        return LaserVocab(files, LaserText(**settings))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{directory}: {error}") from error
