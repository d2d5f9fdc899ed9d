"""The terms of the lightweight dual transformer, alone and mixed with those of other families."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.tlaser_reference import random_params
from xling_jax.losses.contrastive import alignment_loss, similarity_distribution_loss
from xling_jax.losses.token_distribution import (
    label_distributions,
    mask_one_token,
    token_distribution_kl,
)
from xling_jax.models.registry import build_model
from xling_jax.train.objective import Objective, parse_objective
from xling_jax.train.terms.term import Context

VOCAB = 40
IDS = {"bos": 0, "pad": 1, "eos": 2, "mask": 4}
TERMS = {
    "token_distribution": {"weight": 1.0, "tasks": {"ugt": 1.0}},
    "alignment": {"weight": 2.0},
    "similarity_distribution": {"weight": 2.0},
}
MASKABLE = np.arange(VOCAB) > 6


def make_batch(rows=7):
    """Pairs of several lengths and a row of padding."""
    random = np.random.default_rng(0)
    batch = {"target_language": np.ones(rows + 1, np.int32)}
    for side in ("source_tokens", "target_tokens"):
        tokens = random.integers(5, VOCAB, (rows + 1, 6)).astype(np.int32)
        lengths = random.integers(1, 7, rows + 1)
        lengths[-1] = 0
        batch[side] = np.where(np.arange(6) < lengths[:, None], tokens, IDS["pad"]).astype(np.int32)
    return batch


def make_setting(decoder=None, **changes):
    model = build_model(
        encoder={"family": "dual", "width": 8, "heads": 2, "ffn_width": 8, "dropout": 0.0}
        | {"attention_dropout": 0.0, "layers": 1, "max_length_tokens": 8},
        decoder=decoder,
        head={},
        vocab_size=VOCAB,
        num_languages=2,
        pad_id=IDS["pad"],
        vocab_multiple=16,
    )
    context = Context(model, VOCAB, IDS, maskable=MASKABLE, reduction="mean", append_eos=True)
    return dataclasses.replace(context, **changes)


def make_objective(context, terms):
    return Objective(context, parse_objective(terms)[1])


def make_params(context):
    tokens, language = jnp.zeros((1, 4), jnp.int32), jnp.zeros(1, jnp.int32)
    init = lambda: context.model.init(jax.random.key(0), tokens, language)["params"]
    return random_params(init)


def run(context, terms, params, batch, key=0):
    loss_fn = make_objective(context, terms)
    return jax.jit(lambda p: loss_fn(p, batch, jax.random.key(key), True))(params)


def test_the_published_sum_is_put_together_from_its_terms():
    context, batch = make_setting(), make_batch()
    params = make_params(context)
    total, sums = run(context, TERMS, params, batch)
    mask_key = jax.random.fold_in(jax.random.key(0), 3)
    tokens = (batch["source_tokens"], batch["target_tokens"])
    masked = mask_one_token(
        mask_key, *tokens, jnp.asarray(MASKABLE), mask_id=IDS["mask"], pad_id=IDS["pad"]
    )
    assert ((masked.source_tokens == IDS["mask"]) | (masked.target_tokens == IDS["mask"])).any()
    labels = label_distributions({"ugt": 1.0}, *tokens, masked, pad_id=IDS["pad"])
    apply = lambda method, *args: context.model.apply({"params": params}, *args, method=method)
    sides = [apply("encode", side) for side in (masked.source_tokens, masked.target_tokens)]
    kl = 0.0
    for side, label in zip(sides, labels):
        hidden, table, bias = apply("token_distribution", side)
        kl += token_distribution_kl(
            hidden, table, label, output_bias=bias, vocab_size=VOCAB, max_logits=1 << 20
        )[0]
    valid = jnp.arange(8) < 7
    alignment = alignment_loss(*sides, valid)[0]
    similarity = similarity_distribution_loss(*sides, valid)
    np.testing.assert_allclose(sums["token_kl"], kl, rtol=1e-4)
    np.testing.assert_allclose(sums["alignment_loss"], alignment, rtol=1e-4)
    np.testing.assert_allclose(sums["similarity_distribution_loss"], similarity, rtol=1e-4)
    # Divided by the pairs: means of the first two; of the third, 128 times the mean over rows.
    assert sums["normalizer"] == 7
    expected = kl / 7 + 2 * alignment / 7 + 2 * similarity
    np.testing.assert_allclose(total / sums["normalizer"], expected, rtol=1e-4)


@pytest.mark.parametrize("one, other", [("mlm", "ugt"), ("smlm", "xtr")])
def test_loss_and_gradients_are_linear_in_the_weights_of_two_tasks(one, other):
    context, batch = make_setting(), make_batch()
    params = make_params(context)

    @functools.cache
    def value_and_gradients(*weights):
        tasks = dict(zip((one, other), weights))
        objective = make_objective(context, {"token_distribution": {"tasks": tasks}})
        loss = lambda p: objective(p, batch, jax.random.key(0), True)[0]
        return jax.jit(jax.value_and_grad(loss))(params)

    part = lambda *weights: jax.tree.map(
        jnp.subtract, value_and_gradients(*weights), value_and_gradients(1.0, 1.0)
    )
    expected = jax.tree.map(lambda a, b: 0.3 * a + 2.5 * b, part(2.0, 1.0), part(1.0, 2.0))
    found = value_and_gradients(0.3, 2.5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected
    )
    assert part(2.0, 1.0)[0] > 1 and part(1.0, 2.0)[0] > 1  # neither task is left out


def test_pieces_of_a_batch_give_the_loss_and_gradient_of_the_whole():
    batch = make_batch(rows=15)
    gradients = []
    for chunks in (1, 4):
        context = make_setting(encode_chunks=chunks)
        params = make_params(context)
        loss_fn = make_objective(context, TERMS)
        loss = lambda p, loss_fn=loss_fn: loss_fn(p, batch, jax.random.key(0), False)[0]
        gradients.append(jax.jit(jax.value_and_grad(loss))(params))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), *gradients)


def test_every_family_of_terms_goes_with_the_lightweight_encoder():
    decoder = {"family": "laser", "embedding_width": 4, "width": 8, "dropout": 0.0}
    context, batch = make_setting(decoder), make_batch()
    terms = TERMS | {
        "translation": {"weight": 1.0, "label_smoothing": 0.0},
        "distance": {"weight": 0.5, "num_negatives": 2},
        "similarity": {"weight": 0.1},
    }
    params = make_params(context)
    total, sums = run(context, terms, params, batch)
    parts = {"alignment": "alignment_loss", "token_distribution": "token_kl"}
    parts |= {"distance": "distance_loss", "similarity": "similarity_loss"}
    expected = sum(terms[name]["weight"] * sums[metric] for name, metric in parts.items())
    expected += sums["translation_loss"] + 2 * 7 * sums["similarity_distribution_loss"]
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    assert sums["translation_loss_count"] == 7  # with </s> appended, one sentence a pair


def test_a_vocabulary_without_mask_is_refused():
    context = make_setting(special_ids=IDS | {"mask": None})
    with pytest.raises(ValueError, match="objective: a masked term needs a vocabulary with 'mask'"):
        make_objective(context, TERMS)
