import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import tlaser_reference as reference
from xling_jax.models.tlaser import TLaserDecoder, TLaserEncoder

HEADS, WIDTH, VOCAB, ROWS = 2, 16, 30, 32
PAD = 1
SIZES = {"vocab_size": VOCAB, "width": WIDTH, "heads": HEADS, "ffn_width": 24, "vocab_multiple": 8}
ENCODER = TLaserEncoder(layers=2, **SIZES)
DECODER = TLaserDecoder(
    num_languages=3, sentence_width=WIDTH, language_width=4, published_parameters=True, **SIZES
)
SENTENCES = ([0, 5, 6, 7, 2], [0, 9, 2], [0, 2], [0, 4, 29, 11, 12, 4, 13, 2])
PREVIOUS = ([2, 5, 6, 7], [2, 9], [2], [2, 4, 29, 11, 12, 4, 13])
LANGUAGES = np.array([0, 2, 1, 2])


def padded(sentences, length):
    return np.array([row + [PAD] * (length - len(row)) for row in sentences], np.int32)


@pytest.fixture(scope="module")
def encoder_params():
    tokens = jnp.zeros((1, 4), jnp.int32)
    return reference.random_params(lambda: ENCODER.init(jax.random.key(0), tokens)["params"])


@pytest.fixture(scope="module")
def encode():
    return jax.jit(lambda params, tokens: ENCODER.apply({"params": params}, tokens))


@pytest.fixture(scope="module")
def embeddings(encode, encoder_params):
    """Of the four sentences in one batch of length 9."""
    return encode(encoder_params, padded(SENTENCES, 9))


def test_embeddings_equal_the_formulas_with_every_layer_in_full(embeddings, encoder_params):
    params = reference.as_float64(encoder_params)
    expected = [reference.encode(params, sentence, HEADS) for sentence in SENTENCES]
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)
    assert embeddings.dtype == jnp.float32


def test_pooling_over_all_positions_equals_the_formulas(encoder_params):
    def both(params, tokens):
        modules = {name: dataclasses.replace(ENCODER, pooling=name) for name in ("mean", "max")}
        return {k: module.apply({"params": params}, tokens) for k, module in modules.items()}

    params = reference.as_float64(encoder_params)
    for pooling, found in jax.jit(both)(encoder_params, padded(SENTENCES, 9)).items():
        expected = [reference.encode(params, sentence, HEADS, pooling) for sentence in SENTENCES]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def change(module, params, *inputs):
    """The largest change of embeddings or hidden states by dropout."""

    def both(params):
        rngs = {"dropout": jax.random.key(1)}
        dropped = module.apply({"params": params}, *inputs, deterministic=False, rngs=rngs)
        return [jax.tree.leaves(x)[0] for x in (dropped, module.apply({"params": params}, *inputs))]

    return np.abs(np.subtract(*jax.jit(both)(params))).max()


def test_dropout_is_on_embeddings():
    tokens = padded(SENTENCES, 9)
    encoder = dataclasses.replace(ENCODER, layers=0, pooling="mean", dropout=0.5)
    params = reference.random_params(lambda: encoder.init(jax.random.key(0), tokens)["params"])
    assert change(encoder, params, tokens) > 0.1
    decoder = dataclasses.replace(DECODER, layers=0, dropout=0.5)
    inputs = (np.ones((4, WIDTH), np.float32), LANGUAGES, padded(PREVIOUS, 8))
    assert change(decoder, decoder_params(decoder), *inputs) > 0.1


def decoder_params(module):
    call = lambda: module.init(
        jax.random.key(0), jnp.zeros((1, WIDTH)), jnp.zeros(1, int), jnp.zeros((1, 4), int)
    )
    return reference.random_params(lambda: call()["params"])


def logits(module, params, sentences, previous):
    hidden, output, _ = module.apply({"params": params}, sentences, LANGUAGES, previous)
    return hidden @ output.T


VARIANTS = {
    "published": DECODER,
    "input": dataclasses.replace(DECODER, language_at="input", published_parameters=False),
}


@pytest.fixture(scope="module")
def decoding():
    """Parameters and logits of the variants, one program; with the sentence vectors."""
    sentences = np.random.default_rng(1).normal(size=(4, WIDTH)).astype(np.float32)
    params = {name: decoder_params(module) for name, module in VARIANTS.items()}

    def run(params, previous):
        return {
            name: logits(module, params[name], sentences, previous)
            for name, module in VARIANTS.items()
        }

    return params, jax.jit(run), sentences


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_the_formulas_with_attention_over_the_single_slot(decoding, variant):
    params, run, sentences = decoding
    found = run(params, padded(PREVIOUS, 8))[variant]
    for row, previous in enumerate(PREVIOUS):
        expected = reference.decode(
            reference.as_float64(params[variant]),
            sentences[row].astype(np.float64),
            LANGUAGES[row],
            previous,
            HEADS,
            VARIANTS[variant].language_at,
        )
        np.testing.assert_allclose(found[row, : len(previous)], expected, atol=2e-5)


def test_later_tokens_change_no_earlier_logit(decoding):
    params, run, _ = decoding
    previous = padded(PREVIOUS, 8)
    changed = previous.copy()
    changed[:, 4:] = 17
    before, after = run(params, previous), run(params, changed)
    for variant in VARIANTS:
        np.testing.assert_allclose(after[variant][:, :4], before[variant][:, :4], atol=1e-6)
        assert np.abs(after[variant][3, 4:7] - before[variant][3, 4:7]).max() > 0.1


def test_gradients_reach_no_later_token_and_no_unused_projection(decoding):
    params, _, sentences = decoding
    previous = np.array([[2, 5, 6, 7]] * 4, np.int32)

    def at_position_1(params):
        hidden, _, _ = DECODER.apply({"params": params}, sentences, LANGUAGES, previous)
        return (hidden[:, 1] ** 2).sum()

    gradient = jax.jit(jax.grad(at_position_1))(params["published"])
    table = gradient["embed"]["embedding"]
    assert table[2].any() and table[5].any()
    assert not table[6].any() and not table[7].any()
    for name in ("memory_query", "memory_key"):
        assert not gradient["blocks_0"][name]["kernel"].any()
    assert gradient["blocks_0"]["memory_value"]["kernel"].any()
    used = gradient["language_embedding"].any(1)
    assert used.all()


def test_an_unknown_place_of_the_language_is_refused():
    with pytest.raises(ValueError, match="language_at"):
        decoder_params(dataclasses.replace(DECODER, language_at="output"))


def test_initial_values_are_the_published_ones():
    sizes = {"vocab_size": 500, "width": 64, "heads": 2, "ffn_width": 64}
    encoder = TLaserEncoder(layers=1, **sizes)
    decoder = TLaserDecoder(num_languages=3, sentence_width=64, **sizes)

    def init(key):
        tokens = jnp.zeros((1, 4), jnp.int32)
        sentence, language = jnp.zeros((1, 64)), jnp.zeros(1, jnp.int32)
        return encoder.init(key, tokens), decoder.init(key, sentence, language, tokens)

    encoded, decoded = (tree["params"] for tree in jax.jit(init)(jax.random.key(0)))
    close = lambda array, stddev: np.testing.assert_allclose(np.std(array), stddev, rtol=0.05)
    table = encoded["embed"]["embedding"]
    assert table.shape == (512, 64) and not table[PAD].any()
    close(table[2:], 0.02)
    close(encoded["blocks_0"]["attention"]["query"]["kernel"], 0.02)
    close(encoded["blocks_0"]["ffn"]["inner"]["kernel"], 0.02)
    assert not encoded["blocks_0"]["ffn"]["inner"]["bias"].any()
    close(decoded["output_embedding"], 64**-0.5)
    close(decoded["blocks_0"]["memory_value"]["kernel"], 0.02)
