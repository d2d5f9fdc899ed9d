"""Static encoders: sums by hand, features, and the same rows with and without JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from xling_jax.models.numpy_static import (
    FEATURES,
    NO_KEY,
    NOT_TRAINED,
    FeatureFinder,
    NumpyStatic,
    choose_keys,
    hash_feature,
)
from xling_jax.models.static import StaticEncoder
from xling_jax.train.optimizer import frozen, trained_parts

VOCAB, WIDTH, ROWS = 50, 8, 16


def hash_by_hand(name, tokens):
    """The hash in Python integers."""
    bits = 0x9E3779B1 * (1 + list(FEATURES).index(name)) % 2**32
    for factor, token in zip((0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F), tokens):
        bits = (bits ^ token) * factor % 2**32
    return ((bits ^ bits >> 15) * 0x2C1B3C6D % 2**32) >> 8


def features_by_hand(tokens, features):
    """The hashes of all features of a sentence."""
    return [
        hash_by_hand(name, [tokens[first + place] for place in FEATURES[name]])
        for name in features
        for first in range(len(tokens) - FEATURES[name][-1])
    ]


def flat(sentences):
    """Tokens and offsets."""
    tokens = np.array([token for sentence in sentences for token in sentence], np.int32)
    return tokens, np.cumsum([0, *map(len, sentences)])


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
    for key in features_by_hand(tokens, features):
        for row in np.flatnonzero(params.get("feature_keys", []) == key):
            vector = params["feature_weight"][row] * params["feature_embedding"][row]
            total[: len(vector)] += vector
    return total / max(len(tokens), 1)


@pytest.mark.parametrize("feature_width", [0, 3])
@pytest.mark.parametrize("features", [(), ("pairs",), ("pairs", "skips", "triples")])
def test_sums_are_those_by_hand(features, feature_width):
    module = StaticEncoder(VOCAB, WIDTH, features, ROWS, feature_width=feature_width)
    params, static = random_params(module), module
    sentences = [[3, 4, 5, 3, 4], [7], [], [9, 2], [1, 1, 1], [*range(1, 13)]]
    if features:
        params["feature_keys"], share = choose_keys(static, [flat(sentences)])
        assert 0 < share < 1 or features == ("pairs",)
    tokens = np.zeros((len(sentences), 12), np.int32)
    for row, sentence in zip(tokens, sentences):
        row[: len(sentence)] = sentence
    found = module.apply({"params": params}, tokens)
    expected = [vector_by_hand(params, sentence, features) for sentence in sentences]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    found = {name: (value.shape, str(value.dtype)) for name, value in params.items()}
    of_numpy = NumpyStatic(VOCAB, WIDTH, features, ROWS, feature_width=feature_width)
    assert found == of_numpy.parameters
    if not features:
        return
    finder, keys = FeatureFinder(static, params["feature_keys"]), params["feature_keys"].tolist()
    rows, ends = finder.window(*flat(sentences))
    for sentence, start, end in zip(sentences, ends, ends[1:]):
        alone = finder.sentence(np.array(sentence, np.int32))
        assert rows[start:end].tolist() == alone.tolist()
        known = [keys.index(key) for key in features_by_hand(sentence, features) if key in keys]
        assert alone.tolist() == known


def test_keys_are_the_most_frequent_features_that_a_lookup_tells_apart():
    static = NumpyStatic(32_000, WIDTH, ("pairs", "skips"), 300)
    generator = np.random.default_rng(0)
    frequent = generator.choice(32_000, (200, 2))
    rare = generator.choice(32_000, (50_000, 2))
    texts = [np.concatenate([frequent] * 3), rare]
    keys, share = choose_keys(static, [flat(text.tolist()) for text in texts])
    assert keys.dtype == np.float32 and (np.diff(keys) > 0).all()
    expected = {hash_by_hand("pairs", pair) for pair in frequent.tolist()}
    assert len(expected - {*keys.astype(int).tolist()}) <= 1
    assert len({int(key) % 2**20 for key in keys}) == 300
    assert abs(share - 700 / 50_600) < 3e-3
    few, share = choose_keys(static, [flat([[1, 2]])])
    assert share == 1 and few[0] == hash_by_hand("pairs", [1, 2]) and (few[1:] == NO_KEY).all()


@pytest.mark.parametrize("keys", [[3, 2], [5, 5 + 2**20], [-1, 4], [NO_KEY, 4]])
def test_keys_that_cannot_be_are_refused(keys):
    static = NumpyStatic(VOCAB, WIDTH, ("pairs",), 2)
    with pytest.raises(ValueError, match="feature_keys: must be different hashes, ascending"):
        FeatureFinder(static, np.array(keys, np.float32))


def test_keys_are_not_trained():
    params = {"encoder": {"feature_keys": jnp.array([3.0, 9.0]), "embedding": jnp.ones((2, 2))}}
    trained = trained_parts(params, NOT_TRAINED)
    optimizer = frozen(optax.adamw(0.1, weight_decay=0.1), trained)
    updates, state = optimizer.update(params, optimizer.init(params), params)
    assert (updates["encoder"]["feature_keys"] == 0).all()
    assert (updates["encoder"]["embedding"] < 0).all()
    moments = [leaf.shape for leaf in jax.tree.leaves(state) if leaf.ndim]
    assert moments == [(2, 2), (2, 2)]  # of the table alone


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
    params["feature_keys"] = choose_keys(module, [flat(tokens.tolist())])[0]
    plain = {name: params[name] for name in ("embedding", "token_weight")}
    expected = StaticEncoder(VOCAB, WIDTH).apply({"params": plain}, tokens)
    np.testing.assert_array_equal(module.apply({"params": params}, tokens), expected)


@pytest.mark.parametrize("rates", [(0.5, 0.0), (0.0, 0.5)])
def test_dropout_drops_whole_tokens_and_features(rates):
    module = StaticEncoder(
        VOCAB, WIDTH, ("pairs",), ROWS, token_dropout=rates[0], feature_dropout=rates[1]
    )
    tokens = np.tile(np.arange(1, 9, dtype=np.int32), (2000, 1))
    params = random_params(module)
    params["feature_keys"] = choose_keys(module, [flat(tokens[:1].tolist())])[0]
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
        ({"feature_width": 513}, "feature_width=513 must be from 0 to 512"),
        ({"feature_width": 3, "storage": "int4"}, "feature_width=3 must be even"),
        ({"storage": "mixed"}, "mixed is for encoders with features"),
    ],
)
def test_impossible_options_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        NumpyStatic(**{"vocab_size": VOCAB} | changes)
