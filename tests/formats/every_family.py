"""An original of every family that converts, with unusual settings, and text for it.

Originals are random and saved by the libraries that they belong to. Tests and
`benchmarks/conversion_differences.py` compare vectors with `difference`.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from tests.formats import huggingface_reference as huggingface
from tests.formats import laser_reference, rotary_reference
from xling_jax.formats.huggingface import convert_huggingface
from xling_jax.formats.laser import convert_laser
from xling_jax.formats.model2vec import convert_static

# Empty and hostile text, a sentence in each of the scripts of Unicode, special tokens written out,
# and long texts.
TEXTS = [
    *huggingface.TEXTS,
    *huggingface.HOSTILE,
    *huggingface.world(),
    "<bos>[CLS] a </s><eos> <|endoftext|> [MASK] b",
    "lamo tiren sukel " * 400,
    "né" * 3000,
]

Encode = Callable[[list[str]], np.ndarray]


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference of two vectors, relative to the length of the second."""
    lengths = np.linalg.norm(expected.astype(np.float64), axis=1)
    assert found.shape == expected.shape and lengths.max() > 0.1
    # Of text without tokens, both may be zeros.
    lengths = np.maximum(lengths, 0.01 * lengths.max())
    return float((np.abs(found - expected).max(1) / lengths).max())


def _transformer(kind: str, pooling: str, config: dict, folder: Path) -> Encode:
    huggingface.save_model(folder / "original", kind, **config)
    convert_huggingface(folder / "original", folder / "ours", pooling=pooling)
    limit = config.get("max_position_embeddings", huggingface.POSITIONS)
    limit -= 0 if kind in ("bert", "distilbert", "xlm") else 2
    path = folder / "original"
    return lambda texts: rotary_reference.vectors(path, texts, pooling, limit)


def _rotary(kind: str, pooling: str, config: dict, folder: Path) -> Encode:
    save = lambda path: rotary_reference.save_gemma(path, "PreTrainedTokenizerFast")
    tokenizer = save if pooling == "max" else None  # mmBERT has Gemma's
    path = rotary_reference.save_model(folder / "original", kind, tokenizer, **config)
    convert_huggingface(path, folder / "ours", pooling=pooling)
    return lambda texts: rotary_reference.vectors(path, texts, pooling)


def _sentence_transformer(kind: str, folder: Path) -> Encode:
    """With every module that can be converted, prompts, and texts cut on the left."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    if kind in rotary_reference.CONFIGS:
        rotary_reference.save_model(folder / "transformer", kind)
        width, pooling = rotary_reference.CONFIGS[kind]["hidden_size"], "lasttoken"
    else:
        huggingface.save_model(folder / "transformer", kind)
        width, pooling = 24, "max"
    parts = [modules.Transformer(str(folder / "transformer"), max_seq_length=20)]
    parts += [modules.Pooling(width, pooling_mode=pooling)]
    parts += [modules.Dense(width, 16, bias=False), modules.Dropout(0.5)]
    parts += [modules.Dense(16, 12, activation_function=torch.nn.SiLU()), modules.Normalize()]
    for part in (parts[2], parts[4]):
        huggingface.randomize(part)
    parts[0].tokenizer.truncation_side = "left"
    prompts = {"query": "la mo: "}
    settings = {"prompts": prompts, "default_prompt_name": "query", "truncate_dim": 9}
    model = SentenceTransformer(modules=parts, device="cpu", **settings)
    model.save(str(folder / "original"))
    convert_huggingface(folder / "original", folder / "ours")
    return SentenceTransformer(str(folder / "original"), device="cpu").encode


def _model2vec(kind: str, options: dict, folder: Path) -> Encode:
    from model2vec import StaticModel

    path = huggingface.save_model2vec(folder / "original", kind, **options)
    convert_static(path, folder / "ours")
    model = StaticModel.from_pretrained(path)
    return lambda texts: model.encode(texts).astype(np.float32)


def _static_embedding(kind: str, folder: Path) -> Encode:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    tokenizer = huggingface.train_tokenizer(kind)
    tokenizer.enable_truncation(11, direction="left")
    parts = [modules.StaticEmbedding(tokenizer, embedding_dim=20), modules.Normalize()]
    huggingface.randomize(parts[0])
    model = SentenceTransformer(modules=parts, device="cpu", truncate_dim=12)
    model.save(str(folder / "original"))
    convert_static(folder / "original", folder / "ours")
    return SentenceTransformer(str(folder / "original"), device="cpu").encode


def _laser2(layers: int, folder: Path) -> Encode:
    text = [*huggingface.corpus(), *huggingface.world()[::4]]
    checkpoint = laser_reference.write_laser2(folder, text, layers, size=1000)
    convert_laser(checkpoint, folder / "ours", max_length_tokens=8000)
    pieces = functools.partial(laser_reference.laser2_pieces, model=folder / "laser2.spm")
    return lambda texts: laser_reference.encode(checkpoint, [pieces(text) for text in texts])


_ROPES = {
    "full_attention": {"rope_type": "default", "rope_theta": 500.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 30.0},
}

_TRANSFORMERS = {
    "BERT": ("bert", "first", {"hidden_act": "gelu_new", "layer_norm_eps": 0.1}),
    "DistilBERT": ("distilbert", "mean", {"activation": "relu", "n_layers": 2, "hidden_dim": 17}),
    "RoBERTa": ("roberta", "mean", {"type_vocab_size": 3, "hidden_act": "relu"}),
    "XLM-R": ("xlm-roberta", "last", {"layer_norm_eps": 1e-3, "max_position_embeddings": 70}),
    "CamemBERT": ("camembert", "mean", {"type_vocab_size": 1, "hidden_act": "silu"}),
    "XLM": ("xlm", "mean", {"gelu_activation": False, "sinusoidal_embeddings": True}),
}
_ROTARY = {
    "ModernBERT": (
        "modernbert",
        "first",
        {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "local_attention": 1},
    ),
    "mmBERT": ("modernbert", "max", {"hidden_activation": "gelu_new", "rope_parameters": _ROPES}),
    "Qwen3": (
        "qwen3",
        "last",
        {"attention_bias": True, "rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
    ),
    "EmbeddingGemma": ("gemma3_text", "mean", {"attention_bias": True}),
    "Gemma 3, causal": (
        "gemma3_text",
        "last",
        {"use_bidirectional_attention": False, "sliding_window": 4, "rope_parameters": _ROPES},
    ),
}
_WHOLE = {
    "sentence-transformers, BERT": "bert",
    "sentence-transformers, XLM-R": "xlm-roberta",
    "sentence-transformers, Qwen3": "qwen3",
}

# Name -> a function of a folder, that writes the original and, in `ours`, what it converts to.
FAMILIES: dict[str, Callable[[Path], Encode]] = {
    **{name: functools.partial(_transformer, *case) for name, case in _TRANSFORMERS.items()},
    **{name: functools.partial(_rotary, *case) for name, case in _ROTARY.items()},
    **{name: functools.partial(_sentence_transformer, kind) for name, kind in _WHOLE.items()},
    "StaticEmbedding, unigram": functools.partial(_static_embedding, "unigram"),
    "StaticEmbedding, WordPiece": functools.partial(_static_embedding, "wordpiece"),
    "model2vec, WordPiece": functools.partial(
        _model2vec, "wordpiece", {"normalize": True, "max_length": 7}
    ),
    "model2vec, unigram": functools.partial(_model2vec, "unigram", {"weights": True}),
    "model2vec, int8": functools.partial(
        _model2vec, "bpe", {"quantize_to": "int8", "vocabulary_quantization": 40}
    ),
    "LASER2": functools.partial(_laser2, 2),
}
