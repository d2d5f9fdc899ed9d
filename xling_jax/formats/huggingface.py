"""Published encoders in Hugging Face model directories as model directories of ours.

    BERT, RoBERTa, XLM-R, CamemBERT, XLM, DistilBERT    config.json, weights, tokenizer files
    ModernBERT, Qwen3, EmbeddingGemma                  the same, see `huggingface_layouts`
    what sentence-transformers makes of them           modules.json names what follows

Text is split as tokenizer.json says, of XLM as vocab.json and merges.txt; tokenizer_config.json
says where texts are cut, if it is there. Everything is read from disk and nothing is downloaded.
The vectors are those of `transformers` and `sentence-transformers`; neither is needed.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xling_jax.encode.model_directory import save_model
from xling_jax.files.untrusted import named
from xling_jax.formats.files import Settings, Tensors, read_origin, read_settings
from xling_jax.formats.huggingface_layouts import Published, encoder_params, read_config
from xling_jax.formats.modules import Modules, read_modules
from xling_jax.models.numpy_layers import POOLINGS
from xling_jax.registry import check_choice
from xling_jax.text.huggingface_vocab import (
    MERGES_FILE,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    HuggingFaceText,
    HuggingFaceVocab,
    import_tokenizers,
    load_tokenizer,
)

_SETTINGS_FILES = ("special_tokens_map.json", "tokenizer_config.json")
# transformers writes 1e30 where a tokenizer has no limit.
_NO_LIMIT = 10**6

# XLM begins with <s> in transformers since 2020, with </s> before that and in training.
_XLM_TOKENS = {"bos_token": "<s>", "sep_token": "</s>"}


def convert_huggingface(
    source: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    pooling: str | None = None,
    prefix: str | None = None,
    language: str | None = None,
    languages: Sequence[str] = (),
    max_length_tokens: int | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes a model directory whose vectors are those of the published encoder.

    Args:
        source: directory with `config.json` or `modules.json`.
        directory: where to write.
        pooling: `first`, `mean`, `max` or `last`. None takes what `modules.json` says, dense
            layers, normalization, prompts and width included, and the mean where there is none;
            otherwise the transformer alone is converted.
        prefix: before every text, such as e5's "query: ", in place of the prompts of
            sentence-transformers. None keeps these, to be chosen when text is encoded.
        language: whose Moses rules split the text, for XLM only; None is English.
        languages: of the training text, for information; by default those of the card.
        max_length_tokens: longer texts are cut; None is the model's limit.
        overwrite: replace a model directory that is there.

    Returns the record of the conversion. ImportError without a library that a file needs;
    ValueError if a file is missing or broken, or an argument is out of range.
    """
    source = Path(source)
    modules = read_modules(source) if pooling is None else None
    if modules is None:
        check_choice("pooling", pooling or "mean", POOLINGS)
        modules = Modules(source, pooling or "mean")
    transformer = modules.transformer
    settings = read_settings(transformer / "tokenizer_config.json", optional=True)
    if settings.get("split_special_tokens"):
        way_out = "if xling export wrote it, use the model directory that was exported"
        raise ValueError(f"{settings.path}: split_special_tokens must be False; {way_out}")
    published = read_config(transformer)
    if language is not None and published.model_type != "xlm":
        raise ValueError(
            f"language={language!r}: only XLM's tokenizer has rules by language; leave it out, or "
            "record the training languages as languages"
        )
    vocab, tokenizer_limit = _read_tokenizer(
        transformer,
        published,
        prefix=prefix or "",
        language=language or "en",
        lowercase=modules.lowercase,
    )
    arguments = _encoder_arguments(published, modules, vocab)
    positions = arguments["max_length_tokens"]
    if max_length_tokens is None:
        # As sentence-transformers, whose limit replaces the tokenizer's.
        limit = modules.max_length_tokens or tokenizer_limit or positions
        max_length_tokens = min(limit, positions)
    elif not 3 <= max_length_tokens <= positions:
        raise ValueError(
            f"max_length_tokens={max_length_tokens} must be from 3 to {positions}, the positions "
            "of the model"
        )
    tensors = Tensors(transformer)
    params = encoder_params(tensors, published, arguments)
    head = [modules.pooling]
    for number, (folder, inputs, (width, activation, use_bias)) in enumerate(modules.projections):
        head.append(f"dense {width} {activation}")
        params[f"projections_{number}"] = Tensors(folder).dense("linear", inputs, width, use_bias)
    use = modules.use if prefix is None else modules.use._replace(prompts={}, default_prompt=None)
    origin, of_card = read_origin(source)
    training = {
        "converted_from": "a Hugging Face model directory",
        **origin,
        "model_type": published.model_type,
        "weights": tensors.path.name,
        "pooling": ", ".join(head + ["normalized"] * modules.normalize),
        "encoder": dict(published.dropout),
        **({"similarity": use.similarity} if use.similarity else {}),
    }
    save_model(
        directory,
        family=published.layout.family,
        encoder_args=arguments,
        params=params,
        vocab=vocab,
        languages=languages or of_card,
        max_length_tokens=max_length_tokens,
        training=training,
        prompts=use.prompts,
        default_prompt=use.default_prompt,
        truncate_dim=use.truncate_dim,
        overwrite=overwrite,
    )
    return training


def _encoder_arguments(
    published: Published, modules: Modules, vocab: HuggingFaceVocab
) -> dict[str, Any]:
    """Constructor arguments of the encoder."""
    arguments = {
        **published.sizes,
        # With rows for padding and for added tokens that the published table lacks; Gemma's
        # tokenizer has one for images. The original fails on them.
        "vocab_size": max(published.vocab_size, vocab.size),
        "max_length_tokens": published.positions - published.first_position,
        **({} if published.unplaced_id is None else {"unplaced_id": published.unplaced_id}),
        "pooling": modules.pooling,
        "pool_specials": True,
        "projections": [list(projection.layer) for projection in modules.projections],
        "normalize": modules.normalize,
        "pad_id": vocab.pad_id,
    }
    if published.layout.family == "rotary":
        specials = (("bos", vocab.bos_id), ("eos", vocab.eos_id))
        arguments["specials"] = [[name] if number is not None else [] for name, number in specials]
    return arguments


def _read_tokenizer(
    directory: Path, published: Published, *, prefix: str, language: str, lowercase: bool
) -> tuple[HuggingFaceVocab, int | None]:
    """Reads the tokenizer of a transformer, and its longest input in tokens if it has one.

    `lowercase` applies to all text first, a setting of sentence-transformers. ValueError if files
    are missing or broken; ImportError without `tokenizers` where that is needed.
    """
    settings = Settings(directory / _SETTINGS_FILES[-1], {})
    for name in _SETTINGS_FILES:
        settings.update(read_settings(directory / name, optional=True))
    settings.require({"auto_map": {}})
    counts_padding = published.layout.position and published.unplaced_id is None
    if counts_padding and settings.get("padding_side") == "left":
        raise ValueError(
            f"{settings.path}: padding_side must be right: with absolute positions, vectors would "
            "depend on the longest text of their batch; remove it"
        )
    side = settings.get("truncation_side")
    if side not in ("right", "left", None):
        raise settings.error("truncation_side", "right or left")
    limit = settings.get("model_max_length")
    limit = int(limit) if isinstance(limit, (int, float)) and 2 < limit < _NO_LIMIT else None
    if published.model_type == "xlm" and (directory / VOCABULARY_FILE).is_file():
        own = {"prefix": prefix, "language": language, "truncation_side": side or "right"}
        return _xlm_vocab(directory, settings, lowercase, **own), limit
    path = directory / TOKENIZER_FILE
    if not path.is_file():
        raise ValueError(
            f"{path}: missing; where transformers is installed it is made by: python -c "
            "\"from transformers import AutoTokenizer as T; T.from_pretrained('DIR')"
            ".save_pretrained('DIR')\""
        )
    tokenizer = load_tokenizer(path.read_bytes(), str(path))
    if side is None and tokenizer.truncation:
        side = tokenizer.truncation["direction"]
    tokenizer.no_padding()  # published ones may pad all texts to one length
    tokenizer.no_truncation()
    if lowercase:
        normalizers = import_tokenizers().normalizers
        steps = [normalizers.Lowercase(), tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([step for step in steps if step is not None])
    first, last = _ends(tokenizer, path, published.layout.family == "rotary")
    _check_rows(tokenizer, (first, last), published, path)
    # An id of its own: what is padding to the original may be written out in a text, and Qwen3's is
    # the token behind one.
    pad_id = max(tokenizer.get_vocab().values()) + 1
    text = HuggingFaceText(first, last, pad_id, prefix, truncation_side=side or "right")
    with named(directory):
        return HuggingFaceVocab({TOKENIZER_FILE: tokenizer.to_str().encode()}, text), limit


def _ends(tokenizer: Any, where: Path, may_lack: bool) -> tuple[int | None, int | None]:
    """Ids of the special tokens in front of and behind a text; None where there `may_lack` one."""
    encoded = tokenizer.encode("a")
    special = encoded.special_tokens_mask or [0]
    first, last = special[0], special[-1]
    if sum(special) != first + last or not (may_lack or first and last):
        raise ValueError(
            f"{where}: its post_processor must put one special token in front of a text and one "
            f"behind; found {' '.join(encoded.tokens):.60} for 'a'"
        )
    return encoded.ids[0] if first else None, encoded.ids[-1] if last else None


def _check_rows(
    tokenizer: Any, ends: tuple[int | None, int | None], published: Published, where: Path
) -> None:
    """Raises ValueError if the model's table has no rows for the tokenizer's pieces or `ends`."""
    # Tokens that were added to the pieces may have none: Gemma's table has none for images.
    pieces = tokenizer.get_vocab(with_added_tokens=False).values()
    needed = max([*pieces, *(number for number in ends if number is not None)], default=-1) + 1
    if needed > published.vocab_size:
        raise ValueError(
            f"{where.parent}: the tokenizer has {needed} tokens, the model's table "
            f"{published.vocab_size} rows; the files are from different models"
        )


def _xlm_vocab(
    directory: Path, settings: Mapping[str, Any], lowercase: bool, **text: Any
) -> HuggingFaceVocab:
    files = {}
    for name in (VOCABULARY_FILE, MERGES_FILE):
        path = directory / name
        if not path.is_file():
            raise ValueError(f"{path}: missing; XLM's tokenizer is {VOCABULARY_FILE} and {name}")
        files[name] = path.read_bytes()
    path = directory / VOCABULARY_FILE
    vocabulary, ids = read_settings(path), []
    for key, default in _XLM_TOKENS.items():
        token = settings.get(key) or default
        token = token.get("content") if isinstance(token, Mapping) else token
        ids.append(vocabulary.get(token) if isinstance(token, str) else None)
        if type(ids[-1]) is not int:
            raise ValueError(f"{path}: {key} {token!r:.60} is not in the vocabulary")
    text = HuggingFaceText(
        *ids,
        pad_id=max(vocabulary.values()) + 1,
        lowercase=lowercase or bool(settings.get("do_lowercase_and_remove_accent", True)),
        **text,
    )
    with named(directory):
        return HuggingFaceVocab(files, text)
