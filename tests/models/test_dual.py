import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import tlaser_reference as reference
from xling_jax.models.dual import DualEncoder, TokenDistributionHead

HEADS, PAD = 2, 0
SIZES = {"vocab_size": 20, "width": 8, "heads": HEADS, "ffn_width": 12, "max_length_tokens": 6}
SENTENCES = ([3, 7, 7, 11], [5], [], [19, 4, 8, 2, 9, 3])


def padded(sentences, length=6):
    return np.array([[*s, *[PAD] * (length - len(s))] for s in sentences], np.int32)


def parameters(module):
    return reference.random_params(
        lambda: module.init(jax.random.key(0), padded(SENTENCES))["params"]
    )


layer_norm = functools.partial(reference.layer_norm, epsilon=1e-12)


def swish(x):
    return x / (1 + np.exp(-x))


def encode(params, sentence):
    """One sentence without padding, in float64, from the description of the published model."""
    if not sentence:
        return np.zeros(params["embedding"].shape[1])
    states = params["embedding"][sentence] + params["position_embedding"][1 : len(sentence) + 1]
    states = layer_norm(params["embedding_norm"], states)
    everywhere = np.ones((len(sentence), len(sentence)), bool)
    for number in range(2):
        block = params[f"blocks_{number}"]
        attended = reference.self_attention(block["attention"], HEADS, states, everywhere)
        states = layer_norm(block["attention_norm"], states + attended)
        inner = swish(reference.dense(block["ffn"]["inner"], states))
        states = layer_norm(
            block["ffn_norm"], states + reference.dense(block["ffn"]["outer"], inner)
        )
    return states.mean(0)


def test_the_encoder_is_the_published_one():
    module = DualEncoder(**SIZES)
    params = parameters(module)
    found = jax.jit(lambda p: module.apply({"params": p}, padded(SENTENCES)))(params)
    params = reference.as_float64(params)
    expected = [encode(params, sentence) for sentence in SENTENCES]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_without_layers_it_is_the_mean_of_weighted_tokens():
    module = DualEncoder(vocab_size=20, width=8, layers=0, pooling="weighted_mean")
    params = parameters(module)
    assert set(params) == {"embedding", "token_weight"}
    found = module.apply({"params": params}, padded(SENTENCES), deterministic=False)
    table = params["embedding"] * params["token_weight"][:, None]
    expected = [table[s].mean(0) if s else np.zeros(8) for s in SENTENCES]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_with_norms_in_front_layers_add_to_the_encoder_without_layers():
    """x + Block(LN(x)), in float64; and new layers change nothing."""
    sizes = SIZES | {"pooling": "weighted_mean", "norm": "pre", "layers": 1}
    module = DualEncoder(**sizes)
    bare = DualEncoder(**SIZES | {"pooling": "weighted_mean", "layers": 0})
    fresh = module.init(jax.random.key(0), padded(SENTENCES))["params"]
    kept = {name: fresh[name] for name in ("embedding", "token_weight")}
    np.testing.assert_array_equal(
        module.apply({"params": fresh}, padded(SENTENCES)),
        bare.apply({"params": kept}, padded(SENTENCES)),
    )
    params = parameters(module)
    found = module.apply({"params": params}, padded(SENTENCES))
    params = reference.as_float64(params)
    for row, sentence in enumerate(SENTENCES):
        if not sentence:
            assert not found[row].any()
            continue
        states = params["embedding"][sentence]
        states = states + params["position_embedding"][1 : len(sentence) + 1]
        block, n = params["blocks_0"], len(sentence)
        states = states + reference.self_attention(
            block["attention"], HEADS, layer_norm(block["attention_norm"], states), np.ones((n, n))
        )
        inner = swish(reference.dense(block["ffn"]["inner"], layer_norm(block["ffn_norm"], states)))
        states = states + reference.dense(block["ffn"]["outer"], inner)
        weights = params["token_weight"][sentence]
        np.testing.assert_allclose(found[row], weights @ states / n, rtol=1e-4, atol=1e-5)


def test_the_start_is_the_published_codes_or_normal():
    for stddev, table, matrix in ((0.0, 1.0, 1 / np.sqrt(3 * 64)), (0.02, 0.02, 0.02)):
        module = DualEncoder(
            vocab_size=500, width=64, heads=2, ffn_width=64, layers=1, init_stddev=stddev
        )
        params = jax.jit(module.init)(jax.random.key(0), padded(SENTENCES))["params"]
        assert not params["embedding"][PAD].any()
        np.testing.assert_allclose(params["embedding"][1:].std(), table, rtol=0.05)
        kernel = params["blocks_0"]["ffn"]["inner"]["kernel"]
        np.testing.assert_allclose(kernel.std(), matrix, rtol=0.05)


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_predicts_from_the_pooled_vector(tied):
    head = TokenDistributionHead(vocab_size=20, width=6, tie_embeddings=tied, vocab_multiple=1)
    sentence, table = jnp.ones((3, 8)) * jnp.arange(1, 4)[:, None], jnp.ones((20, 8))
    params = reference.random_params(
        lambda: head.init(jax.random.key(0), sentence, table)["params"]
    )
    hidden, output, bias = head.apply({"params": params}, sentence, table)
    width = 8 if tied else 6
    assert hidden.shape == (3, width) and output.shape == (20, width) and bias.shape == (20,)
    assert (output is table) == tied
    inner = swish(reference.dense(params["dense"], np.asarray(sentence, np.float64)))
    np.testing.assert_allclose(hidden, layer_norm(params["norm"], inner), rtol=1e-4, atol=1e-5)


def test_token_dropout_drops_whole_tokens_in_training_only():
    sizes = {"vocab_size": 20, "width": 8, "layers": 0, "pooling": "weighted_mean"}
    module = DualEncoder(**sizes, token_dropout=0.5)
    params = parameters(module) | {"embedding": np.ones((128, 8), np.float32)}
    apply = lambda **more: module.apply({"params": params}, padded(SENTENCES), **more)
    kept = DualEncoder(**sizes).apply({"params": params}, padded(SENTENCES))
    np.testing.assert_array_equal(apply(), kept)
    found = apply(deterministic=False, rngs={"dropout": jax.random.key(1)})
    assert (np.ptp(found, axis=1) == 0).all() and not np.allclose(found, kept)


def test_dropout_is_on_embeddings_and_in_attention():
    sizes = SIZES | {"layers": 1, "dropout": 0.0, "attention_dropout": 0.0}
    in_attention = DualEncoder(**sizes | {"attention_dropout": 0.5})
    # New layers with norms in front add nothing, whatever they drop.
    on_embeddings = DualEncoder(**sizes | {"dropout": 0.5}, norm="pre")
    modules = in_attention, on_embeddings
    fresh = jax.jit(on_embeddings.init)(jax.random.key(0), padded(SENTENCES))["params"]
    params = parameters(in_attention), fresh

    def change(module, params):
        rngs = {"dropout": jax.random.key(1)}
        apply = lambda *more: module.apply({"params": params}, padded(SENTENCES), *more, rngs=rngs)
        return jnp.abs(apply(False) - apply(True)).max()

    changes = jax.jit(lambda params: [*map(change, modules, params)])(params)
    assert min(changes) > 1e-2
