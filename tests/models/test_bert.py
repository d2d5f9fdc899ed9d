"""The published transformers' encoder; `tests.formats` compares it with the originals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from xling_jax.models.bert import BertEncoder, gelu

SIZES = {"vocab_size": 20, "width": 12, "layers": 2, "heads": 3, "ffn_width": 16}
SIZES |= {"max_length_tokens": 9, "pad_id": 4}
TOKENS = np.array([[1, 7, 8, 9, 2, 4, 4], [1, 2, 4, 4, 4, 4, 4], [1, 3, 19, 0, 5, 6, 2]], np.int32)


def build(**changes):
    """A module and large random parameters, norms and biases included."""
    module = BertEncoder(**{**SIZES, **changes})
    shapes = jax.eval_shape(module.init, jax.random.key(0), TOKENS)["params"]
    generator = np.random.default_rng(0)
    fill = lambda s: generator.normal(0.1, 0.5, s.shape).astype(np.float32)
    return module, jax.tree.map(fill, shapes)


def exact_gelu(x):
    return x * scipy.stats.norm.cdf(x)


def test_gelu_is_exact_at_both_ends():
    x = np.concatenate([np.linspace(-8, 8, 1001), [-40, 40]]).astype(np.float32)
    np.testing.assert_allclose(gelu(jnp.asarray(x)), exact_gelu(np.float64(x)), atol=1e-6)
    assert gelu(jnp.asarray(x, jnp.bfloat16)).dtype == jnp.bfloat16


def test_special_tokens_are_pooled_too():
    with pytest.raises(ValueError, match="encoder.pool_specials=False must be one of True"):
        build(pool_specials=False)
