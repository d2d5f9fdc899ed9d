"""Published encoders in Hugging Face model directories as model directories of ours.

    BERT, RoBERTa, XLM-R, CamemBERT, XLM, DistilBERT    config.json, weights, tokenizer files
    ModernBERT, Qwen3, EmbeddingGemma                  the same, see `huggingface_layouts`
    what sentence-transformers makes of them           modules.json names what follows

Everything is read from disk and nothing is downloaded. The vectors are those of `transformers` and
`sentence-transformers`; neither is needed.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xling_jax.encode.model_directory import save_model
from xling_jax.formats.huggingface_files import Tensors, read_origin, read_settings
from xling_jax.formats.huggingface_layouts import Published, encoder_params, read_config
from xling_jax.formats.huggingface_tokenizer import read_tokenizer
from xling_jax.formats.modules import Modules, read_modules
from xling_jax.models.numpy_layers import POOLINGS
from xling_jax.registry import check_choice
from xling_jax.text.huggingface_vocab import HuggingFaceVocab


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
    vocab, tokenizer_limit = read_tokenizer(
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
