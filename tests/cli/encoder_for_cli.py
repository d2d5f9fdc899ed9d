"""A small model directory, written without training."""

from pathlib import Path

import jax
import numpy as np

from xling_jax.encode.model_directory import save_model
from xling_jax.models import registry
from xling_jax.text.vocab import train_vocab

_ARGUMENTS = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}


def made_up_sentences(count: int, seed: int = 0) -> list[str]:
    """Distinct sentences of 1 to 12 made-up words."""
    random = np.random.default_rng(seed)
    words = ["".join(random.choice(list("abcdefghijklm"), 4)) for _ in range(80)]
    return [
        " ".join([f"{number}", *random.choice(words, random.integers(1, 13))])
        for number in range(count)
    ]


def write_encoder(directory: Path) -> Path:
    """Writes a T-LASER with large random parameters: every token shows in the vector."""
    vocab = train_vocab(iter(made_up_sentences(200)), directory / "v.model", size=100)
    module = registry.build_encoder("tlaser", vocab_size=vocab.size, **_ARGUMENTS)
    tokens = jax.ShapeDtypeStruct((1, 8), np.int32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), tokens)["params"]
    random = np.random.default_rng(0)
    save_model(
        directory / "model",
        family="tlaser",
        encoder_args=_ARGUMENTS,
        params=jax.tree.map(lambda s: random.normal(0, 0.3, s.shape).astype(s.dtype), shapes),
        vocab=vocab,
        languages=("de", "en"),
        max_length_tokens=40,
        training={"steps": 0},
    )
    return directory / "model"
