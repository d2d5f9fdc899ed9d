"""Static encoders of other libraries: theirs in, ours out, with the same vectors.

    model2vec                a directory of `StaticModel.save_pretrained`
    sentence-transformers    a `StaticEmbedding`, with Normalize or without

Both take the mean of the table's rows for the tokens of a text, without special tokens around it.
model2vec drops unknown tokens and cuts texts at its limit, first by characters; StaticEmbedding
counts unknown tokens, and its tokenizer cuts. Our encoders have a vector for unknown tokens. So an
exported SentencePiece vocabulary has a token of its own for them, and none of its texts has an
unknown one.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_jax.encode.model_directory import ModelSpec, find_model_directory, load_model, save_model
from xling_jax.files.embeddings import write_tensors
from xling_jax.files.untrusted import named
from xling_jax.formats.files import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    Tensors,
    read_origin,
    read_settings,
    write_json,
)
from xling_jax.formats.modules import (
    MODULES_FILE,
    Use,
    list_modules,
    module_settings,
    read_use,
    write_modules,
)
from xling_jax.formats.registry import export_directory, refuse
from xling_jax.formats.tokenizer_json import NO_LIMIT, cut_at, tokenizer_json
from xling_jax.options import OptionError
from xling_jax.text.huggingface_vocab import (
    TOKENIZER_FILE,
    HuggingFaceText,
    HuggingFaceVocab,
    load_tokenizer,
    unknown_id,
)
from xling_jax.text.vocab import Vocab

# model2vec's, where its config says nothing.
_MODEL2VEC_LENGTH = 512
# A control character, which `text.vocab.normalize_text` leaves in no text.
_UNKNOWN = "\x02"


class _Static(NamedTuple):
    """What a library computes from the files in `tables`."""

    tables: Path
    vocab: HuggingFaceVocab
    limit: int | None  # tokens; None for none
    normalize: bool
    use: Use


def is_static(source: Path) -> bool:
    """Whether a directory is of model2vec, or its modules begin with a `StaticEmbedding`."""
    modules = list_modules(source)
    return modules[0].kind == "StaticEmbedding" if modules else _is_model2vec(source)


def _is_model2vec(source: Path) -> bool:
    config = read_settings(source / CONFIG_FILE, optional=True)  # StaticEmbedding writes none
    return config.get("model_type", "model2vec" if config else None) == "model2vec"


def convert_static(
    source: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    languages: Sequence[str] = (),
    max_length_tokens: int | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes a model directory with the vectors of the library that a static encoder is of.

    Tables of float16 and float64 become float32, those of int8 stay as they are; a quantized
    vocabulary (`mapping`, `weights`) gets a row for each token again. Texts longer than
    `max_length_tokens`, by default the model's own limit, are cut, as with `max_length` of
    `StaticModel.encode`. `languages` are for information.

    Returns the record of the conversion. ValueError if files are broken or do not belong together,
    or modules cannot follow; ImportError without `tokenizers`.
    """
    source = Path(source)
    of_model2vec = _is_model2vec(source)
    read = _read_model2vec if of_model2vec else _read_static_embedding
    found = read(source, max_length_tokens)
    (origin, of_card), vocab, use = read_origin(source), found.vocab, found.use
    rows, weights = _read_tables(found.tables, vocab)
    is_int8 = rows.dtype == np.int8
    names = ("rows", "factor") if is_int8 else ("embedding", "token_weight")
    recorded = {
        "converted_from": "model2vec" if of_model2vec else "sentence-transformers",
        **origin,
        "storage": rows.dtype.name,
        "unknown_tokens": "counted" if vocab.pad_id == vocab.size - 1 else "dropped",
        "pooling": "mean, normalized" if found.normalize else "mean",
        **({"similarity": use.similarity} if use.similarity else {}),
    }
    save_model(
        directory,
        family="static",
        encoder_args={
            "width": rows.shape[1],
            "pad_id": vocab.pad_id,
            "vocab_multiple": 1,
            "normalize": found.normalize,
            **({"storage": "int8"} if is_int8 else {}),
        },
        params=dict(zip(names, (rows, weights))),
        vocab=vocab,
        languages=languages or of_card,
        max_length_tokens=found.limit or NO_LIMIT,
        training=recorded,
        prompts=use.prompts,
        default_prompt=use.default_prompt,
        truncate_dim=use.truncate_dim,
        overwrite=overwrite,
    )
    return recorded


def _read_model2vec(source: Path, max_length_tokens: int | None) -> _Static:
    config = read_settings(source / CONFIG_FILE)
    config.require({"head_config": None})
    limit = config.get("max_length", _MODEL2VEC_LENGTH)
    limit = _shorter(limit and config.size("max_length", limit), max_length_tokens)
    tokenizer = _read_tokenizer(source / TOKENIZER_FILE)
    lengths = sorted(map(len, tokenizer.get_vocab()))
    if limit is None:
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(limit)
    characters = limit and limit * int(np.median(lengths))
    vocab = _vocab(tokenizer, source, drop=unknown_id(tokenizer), max_characters=characters)
    return _Static(source, vocab, limit, config.flag("normalize"), Use())


def _read_static_embedding(source: Path, max_length_tokens: int | None) -> _Static:
    modules = list_modules(source)
    kinds = [module.kind for module in modules if module.kind != "Dropout"]
    normalize = kinds[-1:] == ["Normalize"]
    if kinds != ["StaticEmbedding", *["Normalize"] * normalize]:
        raise ValueError(
            f"{source / MODULES_FILE}: modules must be StaticEmbedding, then Normalize where "
            f"there is one; found {', '.join(kinds) or 'none'}"
        )
    for module in modules[1:]:
        module_settings(module)
    tables = modules[0].directory
    tokenizer = _read_tokenizer(tables / TOKENIZER_FILE)
    limit = tokenizer.truncation and tokenizer.truncation["max_length"]
    vocab = _vocab(tokenizer, tables, drop=None)
    limit = _shorter(limit, max_length_tokens)
    return _Static(tables, vocab, limit, normalize, read_use(source))


def _shorter(limit: int | None, max_length_tokens: int | None) -> int | None:
    """A model's limit, or the one that is asked for instead."""
    if max_length_tokens is not None and max_length_tokens > (limit or NO_LIMIT):
        raise OptionError(
            f"max_length_tokens={max_length_tokens} must be at most {limit or NO_LIMIT}, the "
            "model's limit"
        )
    return max_length_tokens or limit


def _read_tables(directory: Path, vocab: HuggingFaceVocab) -> tuple[np.ndarray, np.ndarray]:
    """A row for each token [vocab.size, width], float32 or int8, and its weight [vocab.size].

    The ids of a tokenizer may end before the table, and that of padding may follow it.
    """
    tensors = Tensors(directory)
    name = "embedding.weight"
    rows = tensors.table(name if name in tensors.names else "embeddings")
    if "mapping" in tensors.names:
        mapping = tensors.table("mapping")
        is_below = ((mapping >= 0) & (mapping < len(rows))).all()
        if mapping.dtype.kind != "i" or mapping.ndim != 1 or not is_below:
            raise ValueError(
                f"{tensors.path}: mapping must hold rows of the table, below {len(rows)}; found "
                f"{mapping.dtype} {list(mapping.shape)}"
            )
        rows = rows[mapping]
    weights = np.ones(len(rows), np.float32)
    if "weights" in tensors.names:
        weights = tensors.take("weights", len(rows))
    missing = vocab.size - len(rows)
    is_padding = missing == 1 and vocab.pad_id == len(rows)
    if rows.ndim != 2 or rows.dtype not in (np.float32, np.int8) or missing > is_padding:
        raise ValueError(
            f"{tensors.path}: must hold a table with a row for each of the {vocab.size} tokens; "
            f"found {rows.dtype} {list(rows.shape)}"
        )
    if is_padding:
        rows = np.concatenate([rows, np.zeros_like(rows[:1])])
        weights = np.concatenate([weights, np.zeros(1, np.float32)])
    return rows[: vocab.size], weights[: vocab.size]


def _read_tokenizer(path: Path) -> Any:
    try:
        return load_tokenizer(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise ValueError(f"{path}: missing; it splits text for the table") from None


def _vocab(
    tokenizer: Any, tables: Path, *, drop: int | None, max_characters: int | None = None
) -> HuggingFaceVocab:
    """The vocabulary whose padding is the token to drop, or else an id of its own."""
    tokenizer.no_padding()
    last = max(tokenizer.get_vocab().values(), default=-1)
    text = HuggingFaceText(
        bos_id=None,
        eos_id=None,
        pad_id=last + 1 if drop is None else drop,
        truncates=True,
        max_characters=max_characters,
    )
    with named(tables / TOKENIZER_FILE):
        return HuggingFaceVocab({TOKENIZER_FILE: tokenizer.to_str().encode()}, text)


def export_model2vec(
    model: str | os.PathLike[str], output: str | os.PathLike[str], *, overwrite: bool = False
) -> dict[str, Any]:
    """Writes a static encoder so that `model2vec.StaticModel.from_pretrained` has its vectors.

    Texts are cut at the encoder's longest input, as model2vec does it: first at that many times the
    median length of a token in characters, which only text of long tokens reaches first.

    Returns facts about the export. ValueError if model2vec has no form for the encoder, saying
    which part; ImportError without `tokenizers`; otherwise as `export_directory`.
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
    normalize = spec.static.normalize
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
    """Raises OptionError for what model2vec does not have."""
    static, dim = spec.static, spec.truncate_dim
    rule = f"is of family {spec.config['family']}; model2vec has no layers"
    refuse(where, {f"{rule}; use --to onnx or --to sentence-transformers": static is None})
    prompt = spec.prompts.get(spec.default_prompt, "") or spec.vocab.options.get("prefix")
    problems = {
        f"has vectors for {', '.join(static.features)} of tokens, which model2vec cannot look up; "
        "use --to onnx, or train with encoder.features=()": static.features,
        f"puts {prompt!r:.60} in front of a text, and model2vec has no prompts; use --to onnx": (
            prompt
        ),
        f"keeps truncate_dim={dim} dimensions of vectors of length 1; model2vec would scale the "
        "shorter ones; use --to onnx, or xling export --truncate-dim first": (
            static.normalize and dim is not None
        ),
        "keeps the end of long texts, and model2vec the beginning; use --to onnx": (
            spec.vocab.truncation_side == "left"
        ),
    }
    refuse(where, problems)


def _with_tokenizer(spec: ModelSpec, where: str) -> tuple[str, np.ndarray, np.ndarray]:
    """tokenizer.json, and a row and a weight for each of its ids."""
    vocab = spec.vocab
    (table,) = spec.static.tables(spec.stored)
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
            f"{where}: has a vector for unknown tokens, which model2vec drops; use --to onnx"
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
