"""Static encoders: sums by hand, features, and the same rows with and without JAX."""

import jax
import numpy as np
import pytest

from xling_jax.models.static import StaticEncoder
from xling_jax.models.static_form import FEATURES, StaticForm, hash_feature

VOCAB, WIDTH, ROWS = 50, 8, 16


def hash_by_hand(name, tokens):
    """The hash in Python integers."""
    bits = 0x9E3779B1 * (1 + list(FEATURES).index(name)) % 2**32
    for factor, token in zip((0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F), tokens):
        bits = (bits ^ token) * factor % 2**32
    return ((bits ^ bits >> 15) * 0x2C1B3C6D % 2**32) >> 7


def random_params(module, seed=0):
    shapes = jax.eval_shape(module.init, jax.random.key(0), np.ones((1, 8), np.int32))["params"]
    generator = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: generator.normal(size=leaf.shape).astype(np.float32), shapes)


def vector_by_hand(params, tokens, features):
    """float64: 1/n [ Σ a(w) E[w] + Σ c(f) F[f] ]."""
    params = {name: np.asarray(value, np.float64) for name, value in params.items()}
    total = np.zeros(WIDTH)
    for token in tokens:
        total += params["token_weight"][token] * params["embedding"][token]
    for name in features:
        for first in range(len(tokens) - FEATURES[name][-1]):
            row = hash_by_hand(name, [tokens[first + place] for place in FEATURES[name]]) % ROWS
            total += params["feature_weight"][row] * params["feature_embedding"][row]
    return total / max(len(tokens), 1)


@pytest.mark.parametrize("features", [(), ("pairs",), ("pairs", "skips", "triples")])
def test_sums_are_those_by_hand(features):
    module = StaticEncoder(VOCAB, WIDTH, features, ROWS)
    params = random_params(module)
    sentences = [[3, 4, 5, 3, 4], [7], [], [9, 2], [1, 1, 1], [*range(1, 13)]]
    tokens = np.zeros((len(sentences), 12), np.int32)
    for row, sentence in zip(tokens, sentences):
        row[: len(sentence)] = sentence
    found = module.apply({"params": params}, tokens)
    expected = [vector_by_hand(params, sentence, features) for sentence in sentences]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    form = module.form
    found = {name: (value.shape, str(value.dtype)) for name, value in params.items()}
    assert found == form.parameters
    flat = np.concatenate([np.array(sentence, np.int32) for sentence in sentences])
    offsets = np.cumsum([0, *map(len, sentences)])
    rows, ends = form.window_rows(flat, offsets)
    counts = [max(len(s) - FEATURES[name][-1], 0) for s in sentences for name in features]
    assert len(rows) == ends[-1] == len(flat) + sum(counts)
    for sentence, start, end in zip(sentences, ends, ends[1:]):
        alone = form.sentence_rows(np.array(sentence, np.int32))
        assert rows[start:end].tolist() == alone.tolist()


def test_features_are_of_their_sentence_only():
    form = StaticForm(VOCAB, WIDTH, ("pairs",), ROWS)
    alone, _ = form.window_rows(np.array([5, 6], np.int32), np.array([0, 2]))
    both, ends = form.window_rows(np.array([5, 6, 7], np.int32), np.array([0, 2, 3]))
    assert ends.tolist() == [0, 3, 4]
    assert both.tolist() == [*alone.tolist(), 7]
    row = hash_by_hand("pairs", [5, 6]) % ROWS
    assert alone.tolist() == [5, 6, form.token_rows + row]


@pytest.mark.parametrize("name", FEATURES)
def test_hashes_depend_on_kind_and_order_and_fill_the_table(name):
    generator = np.random.default_rng(0)
    tokens = [generator.integers(0, 32_000, 100_000) for _ in FEATURES[name]]
    bits = hash_feature(name, tokens)
    assert bits.dtype == np.uint32
    assert bits[:50].tolist() == [
        hash_by_hand(name, [int(column[i]) for column in tokens]) for i in range(50)
    ]
    assert np.mean(bits == hash_feature(name, tokens[::-1])) < 0.01
    counts = np.bincount(bits % 1000, minlength=1000)
    assert 80 < counts.var() < 120  # Poisson: as many as the mean, 100


def test_training_starts_equal_to_the_encoder_without_features():
    module = StaticEncoder(VOCAB, WIDTH, ("pairs",), ROWS)
    tokens = np.arange(1, 9, dtype=np.int32)[None]
    params = module.init(jax.random.key(0), tokens)["params"]
    plain = {name: params[name] for name in ("embedding", "token_weight")}
    expected = StaticEncoder(VOCAB, WIDTH).apply({"params": plain}, tokens)
    np.testing.assert_array_equal(module.apply({"params": params}, tokens), expected)


def test_dropout_drops_whole_tokens_and_features():
    module = StaticEncoder(VOCAB, WIDTH, ("pairs",), ROWS, 0.5, 0.5)
    tokens = np.tile(np.arange(1, 9, dtype=np.int32), (2000, 1))
    params = random_params(module)
    rngs = {"dropout": jax.random.key(1)}
    dropped = module.apply({"params": params}, tokens, deterministic=False, rngs=rngs)
    kept = module.apply({"params": params}, tokens)
    assert np.abs(dropped - kept).max() > 0.5
    np.testing.assert_allclose(np.mean(dropped, axis=0), kept[0], atol=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": ("pair",)}, "encoder.features"),
        ({"feature_rows": 0}, "feature_rows=0 must be at least 1"),
        ({"width": 0}, "width=0 must be at least 1"),
    ],
)
def test_forms_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        StaticForm(**{"vocab_size": VOCAB} | changes)
