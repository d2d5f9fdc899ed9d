"""Static encoders as directories of model2vec, which sentence-transformers reads as well.

    model.safetensors    `embeddings`, with `weights` for rows that have any
    tokenizer.json       splits text as our vocabulary does
    config.json          longest input and normalization
    modules.json         a StaticEmbedding, for sentence-transformers

model2vec drops unknown tokens; our encoders have a vector for them. So an exported SentencePiece
vocabulary has a token of its own for them, and none of its texts has an unknown one.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from xling_jax.encode.model_directory import ModelSpec, find_model_directory, load_model
from xling_jax.files.tensors import write_tensors
from xling_jax.formats.huggingface_config import CONFIG_FILE
from xling_jax.formats.huggingface_modules import MODULES_FILE
from xling_jax.formats.huggingface_tensors import WEIGHTS_FILE
from xling_jax.formats.output import export_directory, write_json, write_modules
from xling_jax.formats.static_embeddings import NO_LIMIT
from xling_jax.formats.tokenizer_json import cut_at, tokenizer_json
from xling_jax.text.huggingface_vocab import TOKENIZER_FILE, load_tokenizer, unknown_id
from xling_jax.text.vocab import Vocab

# A control character, which `text.vocab.normalize_text` leaves in no text.
_UNKNOWN = "\x02"


def export_model2vec(
    model: str | os.PathLike[str], output: str | os.PathLike[str], *, overwrite: bool = False
) -> dict[str, Any]:
    """Writes a static encoder so that `model2vec.StaticModel.from_pretrained` has its vectors.

    Texts are cut at the encoder's longest input, as model2vec does it: first at that many times the
    median length of a token in characters, which only text of long tokens reaches first.

    Args:
        model: directory or name of an encoder of family `static`, see `find_model_directory`.
        output: directory to write; appears whole or not at all.
        overwrite: replace an earlier export; other directories are never replaced.

    Returns:
        Facts about the export.

    Raises:
        FileExistsError: if `output` is there, is not empty and `overwrite` is False.
        ImportError: without `tokenizers`.
        ValueError: if model2vec has no form for the encoder, saying which part, or `output` is
            something else than an export.
    """
    spec = load_model(find_model_directory(model))
    where = os.fspath(model)
    _check(spec, where)
    content, rows, weights = _with_tokenizer(spec, where)
    tokenizer = load_tokenizer(content.encode(), TOKENIZER_FILE)
    limit = cut_at(spec.vocab, tokenizer, spec.max_length_tokens, where)
    if limit >= NO_LIMIT:
        limit = None
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(limit)
    tensors = {"embeddings": rows[:, : spec.truncate_dim]}
    if (weights != 1).any():
        tensors["weights"] = weights
    if tokenizer.get_vocab_size() != len(rows):  # ids may have gaps
        tensors["mapping"] = np.arange(len(rows))
    normalize = spec.static_form.normalize
    config = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "normalize": normalize,
        "max_length": limit,
        "hidden_dim": tensors["embeddings"].shape[1],
        "embedding_dtype": rows.dtype.name,
    }
    kinds = ["StaticEmbedding", *["Normalize"] * normalize]
    with export_directory(output, MODULES_FILE, overwrite) as fresh:
        write_tensors(fresh / WEIGHTS_FILE, tensors)
        tokenizer.save(str(fresh / TOKENIZER_FILE), pretty=False)
        write_json(fresh / CONFIG_FILE, config)
        write_modules(fresh, kinds)
    return {"tokens": len(rows), "dim": config["hidden_dim"], "dtype": config["embedding_dtype"]}


def _check(spec: ModelSpec, where: str) -> None:
    """Raises ValueError for what model2vec does not have."""
    form = spec.static_form
    if form is None:
        family = spec.config["family"]
        raise ValueError(
            f"{where}: is of family {family}; model2vec has no layers; use --to onnx or "
            "--to sentence-transformers"
        )
    if form.features:
        raise ValueError(
            f"{where}: has vectors for {', '.join(form.features)} of tokens, which model2vec "
            "cannot look up; use --to onnx, or train with encoder.features=()"
        )
    prompt = spec.prompts.get(spec.default_prompt, "") or spec.vocab.settings.get("prefix")
    if prompt:
        raise ValueError(
            f"{where}: puts {prompt!r:.60} in front of a text, and model2vec has no prompts; use "
            "--to sentence-transformers"
        )
    if form.normalize and spec.truncate_dim is not None:
        raise ValueError(
            f"{where}: keeps truncate_dim={spec.truncate_dim} dimensions of vectors of length 1; "
            "model2vec would scale the shorter ones; use --to sentence-transformers, or "
            "xling export --truncate-dim first"
        )
    if spec.vocab.truncation_side == "left":
        raise ValueError(
            f"{where}: keeps the end of long texts, and model2vec the beginning; use "
            "--to sentence-transformers or --to onnx"
        )


def _with_tokenizer(spec: ModelSpec, where: str) -> tuple[str, np.ndarray, np.ndarray]:
    """tokenizer.json, and a row and a weight for each of its ids."""
    vocab = spec.vocab
    (table,) = spec.static_form.tables(spec.stored)
    rows, weights = table.unpacked()[:2]
    content = tokenizer_json(vocab, where)
    if isinstance(vocab, Vocab):
        content = _without_unknown(vocab, json.loads(content), where)
        kept = [*range(vocab.size), vocab.unk_id]
        return content, rows[kept], weights[kept]
    tokenizer = load_tokenizer(content.encode(), TOKENIZER_FILE)
    unknown = unknown_id(tokenizer)
    if unknown not in (None, vocab.pad_id):
        raise ValueError(
            f"{where}: has a vector for unknown tokens, which model2vec drops; use "
            "--to sentence-transformers"
        )
    count = max(tokenizer.get_vocab().values()) + 1
    return content, rows[:count], weights[:count]


def _without_unknown(vocab: Vocab, tokenizer: dict[str, Any], where: str) -> str:
    """Writes each run of unknown characters as a character with a token of its own, the last id."""
    normal = [
        piece
        for number, piece in enumerate(vocab.pieces())
        if not (vocab.is_control(number) or number == vocab.unk_id)
    ]
    known = {piece for piece in normal if len(piece) == 1}
    if hidden := {character for piece in normal for character in piece} - known:
        raise ValueError(
            f"{where}: {len(hidden)} characters, such as {min(hidden)!r}, are in pieces but no "
            "piece of their own, so that model2vec would drop them alone; use --to onnx"
        )
    pieces = tokenizer["model"]["vocab"]
    if isinstance(pieces, dict):
        pieces[_UNKNOWN] = vocab.size
    else:
        pieces.append([_UNKNOWN, min(score for _, score in pieces)])
    characters = "".join(rf"\x{{{ord(character):x}}}" for character in sorted(known))
    run = {"type": "Replace", "pattern": {"Regex": f"[^{characters}]+"}, "content": _UNKNOWN}
    tokenizer["normalizer"]["normalizers"].append(run)
    return json.dumps(tokenizer, ensure_ascii=False)
