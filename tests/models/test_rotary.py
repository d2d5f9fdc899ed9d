"""Encoders with rotary positions: who sees whom, frequencies, padding, training."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xling_jax.models.rotary import RotaryEncoder, rope_table, rotate

PAD = 19
SIZES = {
    "vocab_size": 20,
    "width": 12,
    "layers": 1,
    "heads": 4,
    "kv_heads": 2,
    "head_width": 6,
    "ffn_width": 10,
    "max_length_tokens": 16,
    "pad_id": PAD,
}
TOKENS = np.random.default_rng(0).integers(0, 18, (3, 9)).astype(np.int32)
TOKENS[1, 5:] = PAD


def build(**changes):
    module = RotaryEncoder(**{**SIZES, **changes})
    params = jax.jit(module.init)(jax.random.key(0), TOKENS)["params"]
    params = jax.tree.map(lambda leaf: leaf * 8 if leaf.ndim > 1 else leaf, params)
    return module, params


def encode(module, params, tokens=TOKENS, **kwargs):
    return np.asarray(jax.jit(lambda t: module.apply({"params": params}, t, **kwargs))(tokens))


def seen(**changes):
    """Which tokens change the state of which before them, [7, 7]; of one layer, so no others do."""
    module, params = build(pooling="last", **changes)
    reader, place = np.tril_indices(7)
    position = np.arange(7, dtype=np.int32)
    # The last token reads.
    rows = np.where(position <= reader[:, None], position, PAD)
    others = np.where(position == place[:, None], 15, rows)
    vectors = encode(module, params, np.concatenate([rows, others]))
    found = np.zeros((7, 7), bool)
    found[reader, place] = np.abs(np.subtract(*np.split(vectors, 2))).max(1) > 1e-6
    return found


def test_a_window_is_a_distance():
    distance = np.arange(7)[:, None] - np.arange(7)
    for options in ({}, {"causal": True}):
        found = seen(local_layers=[0], window=3, **options)
        np.testing.assert_array_equal(found, (distance >= 0) & (distance < 3))
    np.testing.assert_array_equal(seen(), distance >= 0)


def test_only_a_causal_token_does_not_see_what_follows():
    other = np.concatenate([TOKENS[:, :6], (TOKENS[:, 6:] + 1) % 18], axis=1)
    for causal in (False, True):
        module, params = build(causal=causal, pooling="first")
        same = np.allclose(encode(module, params, other)[0], encode(module, params)[0], atol=1e-6)
        assert same == causal


def test_angles():
    positions, frequencies = np.arange(5)[:, None], 100.0 ** (-np.arange(4) / 4)
    cos, sin = rope_table(100.0, 8, 5)
    np.testing.assert_allclose(cos, np.cos(positions * frequencies), atol=1e-6)
    np.testing.assert_allclose(sin, np.sin(positions * frequencies), atol=1e-6)


def test_a_rotation_keeps_lengths_and_scores_of_equal_distances():
    table = jnp.asarray(rope_table(50.0, 6, 12))
    query, key = jax.random.normal(jax.random.key(0), (2, 6))
    rows = lambda vector: jnp.broadcast_to(vector, (1, 12, 1, 6))
    queries, keys = (np.asarray(rotate(rows(v), table))[0, :, 0] for v in (query, key))
    lengths = np.linalg.norm(queries, axis=1)
    np.testing.assert_allclose(lengths, np.linalg.norm(query), rtol=1e-5)
    scores = queries @ keys.T
    for distance in range(12):
        np.testing.assert_allclose(np.diag(scores, distance), scores[0, distance], atol=1e-5)
    assert np.ptp(scores[0]) > 0.1


RATES = ("embedding_dropout", "dropout", "attention_dropout")
RATES += ("attention_output_dropout", "activation_dropout")


def test_every_dropout_counts_in_training_alone():
    module, params = build(dropout_generator="hash")
    plain = encode(module, params)
    rngs = {"dropout": jax.random.key(1)}
    for rate in RATES:
        dropped = encode(module.clone(**{rate: 0.5}), params, deterministic=False, rngs=rngs)
        assert np.abs(dropped - plain).max() > 1e-3
    dropping = module.clone(**dict.fromkeys(RATES, 0.1))
    np.testing.assert_array_equal(encode(dropping, params), plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_heads": 3}, "encoder.kv_heads=3 must divide encoder.heads=4"),
        ({"head_width": 5}, "encoder.head_width=5 must be even"),
        ({"head_width": 0, "heads": 5}, "encoder.heads=5 must divide encoder.width=12"),
        ({"rope": (9.0, "yarn", 4.0)}, "encoder.rope=.* must be .θ,."),
        ({"window": 0}, "encoder.window=0 must be at least 1"),
        ({"norm_placement": "mid"}, "encoder.norm_placement='mid' must be one of pre, both"),
        ({"max_length_tokens": 8}, "length 9; encoder.max_length_tokens=8 is the longest"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        module = RotaryEncoder(**{**SIZES, **changes})
        jax.eval_shape(module.init, jax.random.key(0), TOKENS)
