import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import laser_reference as reference
from tests.models.tlaser_reference import as_float64, random_params
from xling_jax.models.laser import LaserDecoder, LaserEncoder
from xling_jax.models.layers import Dropout

PAD, VOCAB, ROWS, WIDTH, EMBEDDING = 1, 30, 32, 8, 6
SHARED = {"vocab_size": VOCAB, "vocab_multiple": 8, "embedding_width": EMBEDDING}
ENCODER = LaserEncoder(width=WIDTH, **SHARED)
DECODER = LaserDecoder(num_languages=3, sentence_width=WIDTH, width=10, language_width=4, **SHARED)
SENTENCES = ([5, 6, 7, 2], [9, 2], [2], [4, 29, 11, 12, 4, 13, 2])
PREVIOUS = ([2, 5, 6, 7], [2, 9], [2], [2, 4, 29, 11, 12, 4, 13])
LANGUAGES = np.array([0, 2, 1, 2])
LENGTH = 9

ENCODERS = {
    "one layer": {},
    "three layers": {"layers": 3},
    "two biases": {"published_parameters": True},
    "forward only": {"layers": 2, "unidirectional_layers": 2},
    "three more forward": {"layers": 4, "unidirectional_layers": 3, "pooling": "mean"},
    "attention": {"layers": 2, "pooling": "self_attention", "attention_hops": 2},
}
ENCODERS = {
    name: dataclasses.replace(ENCODER, attention_width=5, **options)
    for name, options in ENCODERS.items()
}
DECODERS = {
    "published": {"published_parameters": True},
    "no feeding": {"input_feeding": False, "output_width": 5},
    "sentence state": {"initial_state": "sentence", "width": WIDTH},
    "first token": {"language_at": "first_token"},
}
DECODERS = {name: dataclasses.replace(DECODER, **options) for name, options in DECODERS.items()}


def padded(sentences, length=LENGTH):
    return np.array([row + [PAD] * (length - len(row)) for row in sentences], np.int32)


def encoder_params(module):
    tokens = jnp.zeros((1, 4), jnp.int32)
    return random_params(lambda: module.init(jax.random.key(0), tokens)["params"])


def decoder_params(module):
    sentence, language = jnp.zeros((1, module.sentence_width)), jnp.zeros(1, jnp.int32)
    arguments = (sentence, language, jnp.zeros((1, 4), jnp.int32))
    return random_params(lambda: module.init(jax.random.key(0), *arguments)["params"], seed=1)


@pytest.fixture(scope="module")
def encoding():
    """Parameters of all encoders, and one program that runs them."""

    def run(params, tokens):
        return {
            name: module.apply({"params": params[name]}, tokens)
            for name, module in ENCODERS.items()
        }

    return {name: encoder_params(module) for name, module in ENCODERS.items()}, jax.jit(run)


@pytest.fixture(scope="module")
def embeddings(encoding):
    """Of the four sentences in one batch, by encoder."""
    params, run = encoding
    return run(params, padded(SENTENCES))


@pytest.mark.parametrize("name", ENCODERS)
def test_embeddings_equal_the_formulas(encoding, embeddings, name):
    params = as_float64(encoding[0][name])
    expected = [reference.encode(params, tokens, ENCODERS[name].pooling) for tokens in SENTENCES]
    np.testing.assert_allclose(embeddings[name], expected, atol=1e-5)
    assert embeddings[name].dtype == jnp.float32
    assert embeddings[name].shape == (4, ENCODERS[name].dim)


@pytest.fixture(scope="module")
def decoding():
    """Parameters of the decoders, one program for their logits, and sentence vectors."""
    sentences = np.random.default_rng(1).normal(size=(4, WIDTH)).astype(np.float32)
    params = {name: decoder_params(module) for name, module in DECODERS.items()}

    def run(params, previous, dtype):
        found = {}
        for name, module in DECODERS.items():
            module = dataclasses.replace(module, dtype=dtype)
            hidden, output, bias = module.apply(
                {"params": params[name]}, sentences, LANGUAGES, previous
            )
            found[name] = hidden @ output.T + bias
        return found

    return params, jax.jit(run, static_argnums=2), sentences


@pytest.mark.parametrize("name", DECODERS)
def test_logits_equal_the_formulas(decoding, name):
    params, run, sentences = decoding
    found = run(params, padded(PREVIOUS), jnp.float32)[name]
    for row, previous in enumerate(PREVIOUS):
        expected = reference.decode(
            as_float64(params[name]),
            sentences[row].astype(np.float64),
            LANGUAGES[row],
            previous,
            DECODERS[name],
        )
        np.testing.assert_allclose(found[row, : len(previous)], expected, atol=1e-5)


def test_later_tokens_change_no_earlier_logit_and_bfloat16_stays_close(decoding):
    params, run, _ = decoding
    previous = padded(PREVIOUS)
    changed = previous.copy()
    changed[:, 4:] = 17
    before, after = (run(params, tokens, jnp.float32) for tokens in (previous, changed))
    half = run(params, previous, jnp.bfloat16)
    for name in DECODERS:
        np.testing.assert_allclose(after[name][:, :4], before[name][:, :4], atol=1e-6)
        assert np.abs(after[name][3, 4:7] - before[name][3, 4:7]).max() > 0.05
        assert np.abs(half[name] - before[name]).mean() < 0.02 * np.abs(before[name]).mean()


class FixedMasks:
    """Puts masks of NumPy in the place of dropout's, numbered in the order of the calls."""

    def __init__(self):
        self.masks = []

    def __call__(self, call, arguments, keywords, context):
        called = isinstance(context.module, Dropout) and context.method_name == "__call__"
        if not called or arguments[1]:  # deterministic
            return call(*arguments, **keywords)
        random = np.random.default_rng(len(self.masks))
        self.masks.append((random.random(arguments[0].shape) < 0.7) / 0.7)
        return arguments[0] * self.masks[-1].astype(np.float32)


# Encoder and decoder, with or without dropout.
WHOLE = {
    "published": ("three layers", "published", True),
    "no dropout": ("two biases", "published", False),
    "bottleneck": ("three more forward", "no feeding", True),
    "similarity": ("forward only", "sentence state", True),
    "shared": ("one layer", "first token", True),
    "attention": ("attention", "published", False),
}


def modules(name):
    encoder, decoder, _ = WHOLE[name]
    encoder = dataclasses.replace(ENCODERS[encoder], dropout=0.3)
    # The rate only switches dropout on: the masks are fixed.
    return encoder, dataclasses.replace(DECODERS[decoder], dropout=0.3, sentence_width=encoder.dim)


def whole_gradient(name, params, weights):
    """Loss, its gradient and the masks of `sum(weights * logits)`."""
    encoder, decoder = modules(name)
    with_dropout = WHOLE[name][2]
    fixed = FixedMasks()

    def loss(params):
        fixed.masks.clear()
        rngs = {"dropout": jax.random.key(0)}
        with nn.intercept_methods(fixed):
            sentence = encoder.apply(
                {"params": params["encoder"]}, padded(SENTENCES), not with_dropout, rngs=rngs
            )
            hidden, output, bias = decoder.apply(
                {"params": params["decoder"]},
                sentence, LANGUAGES, padded(PREVIOUS), not with_dropout,
                rngs=rngs,
            )  # fmt: skip
        return (weights * (hidden @ output.T + bias)).sum()

    return *jax.jit(jax.value_and_grad(loss))(params), fixed.masks


def whole_reference(name, params, weights, masks):
    """The same loss in float64."""
    encoder, decoder = modules(name)
    split = encoder.layers + 1
    total = 0.0
    for row, (tokens, previous) in enumerate(zip(SENTENCES, PREVIOUS, strict=True)):
        of_row = [mask[:, row] for mask in masks[: split + 2]]
        of_row += [mask[row] for mask in masks[split + 2 :]]  # the bottleneck's is batch-major
        vector = reference.encode(
            params["encoder"], tokens, encoder.pooling, of_row[:split] or None
        )
        logits = reference.decode(
            params["decoder"], vector, LANGUAGES[row], previous, decoder,
            of_row[split:] or None,
        )  # fmt: skip
        total += (weights[row, : len(previous)] * logits).sum()
    return total


@pytest.mark.parametrize("name", WHOLE)
def test_gradient_through_decoder_and_encoder_is_the_slope_of_the_formulas(name):
    encoder, decoder = modules(name)
    params = {"encoder": encoder_params(encoder), "decoder": decoder_params(decoder)}
    random = np.random.default_rng(2)
    weights = random.normal(size=(4, LENGTH, ROWS)) * (padded(PREVIOUS) != PAD)[..., None]
    value, gradient, masks = whole_gradient(name, params, weights.astype(np.float32))
    exact = as_float64(params)
    loss = lambda params: whole_reference(name, params, weights, masks)
    np.testing.assert_allclose(value, loss(exact), atol=1e-4)
    paths, structure = jax.tree.flatten_with_path(exact)
    gradients = jax.tree.leaves(gradient)
    for number, (path, leaf) in enumerate(paths):
        direction = random.normal(size=leaf.shape) / np.sqrt(leaf.size)
        ends = []
        for step in (1e-5, -1e-5):
            leaves = [other for _, other in paths]
            leaves[number] = leaf + step * direction
            ends.append(loss(jax.tree.unflatten(structure, leaves)))
        slope = (ends[0] - ends[1]) / 2e-5
        found = (gradients[number] * direction).sum()
        np.testing.assert_allclose(found, slope, atol=2e-4, rtol=1e-4, err_msg=str(path))


def test_initial_values_are_the_published_ones():
    encoder = LaserEncoder(500, embedding_width=16, width=8)
    decoder = LaserDecoder(500, 400, 8, embedding_width=16, width=8)

    def init(key):
        tokens, language = jnp.zeros((1, 4), jnp.int32), jnp.zeros(1, jnp.int32)
        return encoder.init(key, tokens), decoder.init(key, jnp.zeros((1, 8)), language, tokens)

    encoded, decoded = (tree["params"] for tree in jax.jit(init)(jax.random.key(0)))
    np.testing.assert_allclose(decoded.pop("language_embedding").std(), 1, rtol=0.03)
    for tree in (encoded, decoded):
        assert not tree["embedding"][PAD].any()
        assert tree["embedding"].shape == (512, 16)
    for leaf in jax.tree.leaves((encoded, decoded)):
        assert 0.05 < np.abs(leaf).max() <= 0.1


@pytest.mark.parametrize(
    "options, message",
    [
        ({"language_at": "memory"}, "language_at='memory' must be one of every_step, first_token"),
        ({"initial_state": "zero"}, "initial_state='zero' must be one of projected, sentence"),
        ({"initial_state": "sentence"}, "found width=10 and a vector of 8"),
    ],
)
def test_impossible_decoders_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        decoder_params(dataclasses.replace(DECODER, **options))
