"""What holds for encoders of every family; the equations of each are in a file of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.tlaser_reference import random_params
from xling_jax.encode.jax_backend import cast_kernels
from xling_jax.models.registry import build_encoder

PAD, LENGTH = 1, 9
SENTENCES = [[5, 6, 7, 8, 3], [9, 2], [4, 29, 11, 12, 4, 13, 8, 3]]
LAYERS = {"width": 16, "layers": 2, "heads": 2, "ffn_width": 24, "dropout": 0.3}
LSTM = {"width": 16, "embedding_width": 12, "dropout": 0.3}
TABLE = LAYERS | {"max_length_tokens": 16}
ROTARY = TABLE | {"kv_heads": 1, "head_width": 6}
CASES = {
    "tlaser": LAYERS,
    "fairseq": LAYERS | {"pooling": "max"},
    "laser": LSTM | {"layers": 3},
    "laser-attention": LSTM | {"layers": 2, "pooling": "self_attention", "attention_hops": 2},
    "laser-forward": LSTM | {"layers": 2, "unidirectional_layers": 1, "pooling": "mean"},
    "dual": TABLE,
    "dual-weighted": TABLE | {"norm": "pre", "pooling": "weighted_mean"},
    "bert": TABLE | {"pooling": "first"},
    "bert-projected": TABLE | {"projections": [(12, "tanh", False)]},
    "bert-text": TABLE | {"pooling": "max"},
    "rotary": ROTARY | {"local_layers": [1], "window": 2},
    "rotary-causal": ROTARY | {"pooling": "last", "causal": True, "norm": "rms"},
    "rotary-both": ROTARY | {"pooling": "max", "norm_placement": "both", "query_key_norm": True},
    "static": {"width": 16, "features": ("pairs",), "feature_rows": 8},
}
WITH_LAYERS = [name for name in CASES if name != "static"]


def padded(sentences, length=LENGTH):
    return np.array([row + [PAD] * (length - len(row)) for row in sentences], np.int32)


def build(case):
    """A module and random parameters."""
    module = build_encoder(case.partition("-")[0], vocab_size=30, pad_id=PAD, **CASES[case])
    tokens = padded(SENTENCES)
    return module, random_params(lambda: module.init(jax.random.key(0), tokens)["params"])


@pytest.mark.parametrize("case", CASES)
def test_padding_and_company_change_no_vector(case):
    module, params = build(case)
    encode = jax.jit(lambda tokens: module.apply({"params": params}, tokens))
    found = encode(padded(SENTENCES))
    assert found.dtype == jnp.float32 and found.shape == (3, module.dim)
    longer = encode(padded(SENTENCES, LENGTH + 4))
    np.testing.assert_allclose(longer, found, atol=1e-5)
    others = encode(padded([SENTENCES[2], [], SENTENCES[0]]))
    np.testing.assert_allclose(others[jnp.array([2, 0])], found[jnp.array([0, 2])], atol=1e-5)
    assert not others[1].any()
    alone = encode(padded(SENTENCES[2:], len(SENTENCES[2])))
    np.testing.assert_allclose(alone[0], found[2], atol=1e-5)


@pytest.mark.parametrize("case", WITH_LAYERS)
def test_bfloat16_stays_close_and_gives_float32(case):
    module, params = build(case)
    tokens = padded(SENTENCES)
    encode = lambda module: jax.jit(module.apply)({"params": params}, tokens)
    found, expected = encode(module.clone(dtype=jnp.bfloat16)), encode(module)
    assert found.dtype == jnp.float32 and np.abs(found - expected).max() > 0
    assert np.abs(found - expected).mean() < 0.03 * np.abs(expected).mean()
    # Kernels cast beforehand are those that every batch would cast.
    params = cast_kernels(module.clone(dtype=jnp.bfloat16), params)
    assert "bfloat16" in {str(leaf.dtype) for leaf in jax.tree.leaves(params)}
    np.testing.assert_array_equal(encode(module.clone(dtype=jnp.bfloat16)), found)


@pytest.mark.parametrize("case", ["tlaser", "laser", "dual", "bert", "rotary"])
def test_recomputing_layers_changes_no_gradient(case):
    module, params = build(case)

    def gradient(params, remat):
        rngs = {"dropout": jax.random.key(0)}
        encoder = module.clone(remat=remat)
        loss = lambda p: (encoder.apply({"params": p}, padded(SENTENCES), False, rngs=rngs)).var()
        return jax.grad(loss)(params)

    plain, recomputed = jax.jit(lambda p: [gradient(p, remat) for remat in (False, True)])(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), plain, recomputed)
    assert any(leaf.any() for leaf in jax.tree.leaves(plain))
