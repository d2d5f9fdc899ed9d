"""What these tests encode with: a vocabulary, a toy encoder, and a saved untrained T-LASER."""

import random

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.encode.random_models import random_params
from xling_jax.encode.encoder import Encoder
from xling_jax.encode.jax_backend import JaxBackend
from xling_jax.encode.model_directory import save_model
from xling_jax.models import registry
from xling_jax.text.vocab import train_vocab

ENCODER_ARGS = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16}
MAX_LENGTH_TOKENS = 40
DIM = 16


class ToyEncoder(nn.Module):
    """Every token and its position count, padding does not; compiles in no time."""

    vocab_size: int
    pad_id: int = 1

    @nn.compact
    def __call__(self, tokens, deterministic=True):
        table = self.param("table", nn.initializers.normal(1.0), (self.vocab_size, DIM))
        positions = jnp.cos(jnp.arange(tokens.shape[1])[:, None] * jnp.arange(1, DIM + 1))
        mask = (tokens != self.pad_id)[..., None]
        return jnp.tanh(jnp.sum(jnp.where(mask, table[tokens] * positions, 0), axis=1) / 8)


@pytest.fixture(scope="session")
def sentences():
    """200 texts of 1 to 30 words, some longer than the encoder takes, some blank."""
    generator = random.Random(0)
    syllables = ["la", "mo", "ti", "ren", "su", "kel", "da", "vi", "bor", "né"]
    words = ["".join(generator.choices(syllables, k=generator.randint(1, 3))) for _ in range(150)]
    texts = [" ".join(generator.choices(words, k=generator.randint(1, 30))) for _ in range(200)]
    return [*texts[:50], "", *texts[50:], "   "]


@pytest.fixture(scope="session")
def vocab(sentences):
    return train_vocab((text for text in sentences if text.strip()), size=120)


@pytest.fixture(scope="session")
def make_encoder(vocab):
    """Builds a toy encoder; `changes` replace arguments of its constructor."""

    def make(vocab_size=vocab.size, **changes):
        module = ToyEncoder(vocab_size)
        tokens = np.ones((1, 8), np.int32)
        arguments = {
            "params": module.init(jax.random.key(0), tokens)["params"],
            "specials": registry.ENCODERS["tlaser"].specials,
            "max_length_tokens": MAX_LENGTH_TOKENS,
            "languages": ("de", "en"),
            "fingerprint": "",
            "dim": DIM,
        }
        arguments |= changes
        backend = JaxBackend(module, arguments.pop("params"), vocab.pad_id)
        return Encoder(backend, vocab, **arguments)

    return make


@pytest.fixture(scope="session")
def encoder(make_encoder):
    return make_encoder()


@pytest.fixture(scope="session")
def params(vocab):
    """Parameters of a T-LASER, large and random: every token shows in the vector."""
    module = registry.build_encoder("tlaser", vocab_size=vocab.size, **ENCODER_ARGS)
    return random_params(module)


@pytest.fixture
def model_arguments(params, vocab):
    """Arguments of `save_model` for the encoder of these tests."""
    return {
        "family": "tlaser",
        "encoder_args": ENCODER_ARGS,
        "params": params,
        "vocab": vocab,
        "languages": ("de", "en"),
        "max_length_tokens": MAX_LENGTH_TOKENS,
        "training": {"steps": 0},
    }


@pytest.fixture
def model_directory(tmp_path, model_arguments):
    """A saved model directory of its own, free to be damaged."""
    save_model(tmp_path / "model", **model_arguments)
    return tmp_path / "model"
