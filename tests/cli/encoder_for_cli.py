"""A small model directory, written without training."""

from pathlib import Path

import numpy as np

from tests.encode.random_models import save_random
from xling_jax.text.vocab import train_vocab


def made_up_sentences(count: int, seed: int = 0) -> list[str]:
    """Distinct sentences of 1 to 12 made-up words."""
    random = np.random.default_rng(seed)
    words = ["".join(random.choice(list("abcdefghijklm"), 4)) for _ in range(80)]
    return [
        " ".join([f"{number}", *random.choice(words, random.integers(1, 13))])
        for number in range(count)
    ]


def write_encoder(directory: Path, seed: int = 0) -> Path:
    """Writes a small T-LASER."""
    vocab = train_vocab(iter(made_up_sentences(200, seed)), size=100)
    sizes = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
    return save_random(directory / "model", "tlaser", vocab, sizes, training={"steps": 0})
