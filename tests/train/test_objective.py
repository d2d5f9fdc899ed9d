import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import tlaser_reference as reference
from xling_jax.losses.distance import distance_constraint
from xling_jax.models.registry import build_model
from xling_jax.train.objective import Objective, parse_objective
from xling_jax.train.terms import TERMS
from xling_jax.train.terms.term import Context, Inputs, normalizer

VOCAB, HEADS, PAD, EPSILON = 30, 2, 1, 0.1
SIZES = {"family": "tlaser", "width": 16, "heads": HEADS, "ffn_width": 24}
SOURCES = ([0, 5, 6, 7, 2], [0, 9, 2], [0, 4, 29, 11, 12, 2])
TARGETS = ([0, 8, 2], [0, 9, 13, 4, 5, 2], [0, 20, 21, 22, 2])
SOURCE_LANGUAGE, TARGET_LANGUAGE = 1, 2
CONSTRAINT = {"weight": 0.25, "num_negatives": 2}
OBJECTIVES = {
    "translation": {},
    "constrained": {"translation": {"weight": 0.5}, "distance": CONSTRAINT},
    "with_bos": {"drop_first": False},
    "mean": {"reduction": "mean", "distance": CONSTRAINT},
    "similarity": {"reduction": "mean", "similarity": {"weight": 0.7}},
    "encoder_l2": {"reduction": "mean", "encoder_l2": {"weight": 0.01}},
    "summed_l2": {"encoder_l2": {"weight": 0.01}, "similarity": {"weight": 0.0}},
    "summed_similarity": {"similarity": {"weight": 0.7}},
    "summed_distribution": {"similarity_distribution": {"weight": 0.3}},
}


# Both directions change what is encoded and translated, not how the loss is put together.
BOTH = ("translation", "constrained", "similarity", "summed_similarity", "summed_distribution")
CASES = [*((name, False) for name in OBJECTIVES), *((name, True) for name in BOTH)]


def make_model(dropout=0.0):
    return build_model(
        encoder=SIZES | {"layers": 1, "dropout": dropout},
        decoder=SIZES | {"language_width": 4, "dropout": dropout},
        vocab_size=VOCAB,
        num_languages=3,
        vocab_multiple=16,
        dropout_generator="hash",
    )


def make_objective(model, *, reduction="sum", drop_first=True, **terms):
    ids = {"pad": PAD, "eos": 2}
    section = {"reduction": reduction, "translation": {"weight": 1.0}} | terms
    settings, parsed = parse_objective(section)
    context = Context(model, VOCAB, ids, drop_first=drop_first, reduction=settings.reduction)
    return Objective(context, parsed)


def make_batch(both=False):
    """Three sentence pairs and a row of padding."""
    pad = lambda rows: np.array([row + [PAD] * (7 - len(row)) for row in (*rows, [])], np.int32)
    batch = {
        "source_tokens": pad(SOURCES),
        "target_tokens": pad(TARGETS),
        "target_language": np.full(4, TARGET_LANGUAGE, np.int32),
    }
    return batch | ({"source_language": np.full(4, SOURCE_LANGUAGE, np.int32)} if both else {})


@pytest.fixture(scope="module")
def params():
    tokens, language = jnp.zeros((1, 4), jnp.int32), jnp.zeros(1, jnp.int32)
    model = make_model()
    return reference.random_params(
        lambda: model.init(jax.random.key(0), tokens, language)["params"]
    )


@pytest.fixture(scope="module")
def results(params):
    """(loss, sums) of every objective, in one direction and in both; one program."""

    def run(params, key):
        out = {}
        for name, both in CASES:
            loss_fn = make_objective(make_model(), **OBJECTIVES[name])
            out[name, both] = loss_fn(params, make_batch(both), key, True)
        return out

    return jax.jit(run)(params, jax.random.key(0))


def translation(params, embeddings, language, targets, settings):
    """Smoothed loss, -log p and count, of tokens or averaged by sentence, in float64."""
    sums = np.zeros(3)
    for embedding, target in zip(embeddings, targets):
        labels = target[1:] if settings.get("drop_first", True) else target
        previous = [2, *labels[:-1]]
        logits = reference.decode(params["decoder"], embedding, language, previous, HEADS)
        log_p = np.log(reference.softmax(logits[:, :VOCAB]))
        true = log_p[np.arange(len(labels)), labels]
        loss = -((1 - EPSILON) * true + EPSILON * log_p.mean(-1))
        sentence = np.array([loss.sum(), -true.sum(), len(labels)])
        mean = settings.get("reduction") == "mean"
        sums += sentence / len(labels) if mean else sentence
    return sums


@pytest.mark.parametrize("name, both", CASES)
def test_the_loss_equals_the_formulas(params, results, name, both):
    settings = OBJECTIVES[name]
    params = reference.as_float64(params)
    sources, targets = (
        np.array([reference.encode(params["encoder"], sentence, HEADS) for sentence in sentences])
        for sentences in (SOURCES, TARGETS)
    )
    expected = translation(params, sources, TARGET_LANGUAGE, TARGETS, settings)
    if both:
        expected += translation(params, targets, SOURCE_LANGUAGE, SOURCES, settings)
    loss, nll, count = expected

    total, sums = results[name, both]
    np.testing.assert_allclose(sums["translation_loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(sums["negative_log_likelihood"], nll, rtol=1e-5)
    assert sums["translation_loss_count"] == count
    mean = settings.get("reduction") == "mean"
    assert sums["normalizer"] == (len(SOURCES) if mean else count)
    expected_total = settings.get("translation", {"weight": 1.0})["weight"] * loss
    # A sum over tokens of both directions has twice what compares the two sides.
    directions = 2 if both and not mean else 1
    if "distance" in settings:
        rows = lambda vectors: jnp.asarray(np.pad(vectors, ((0, 1), (0, 0))), jnp.float32)
        negatives = jax.random.split(jax.random.key(0), 3)[2]
        constraint, _ = jax.jit(functools.partial(distance_constraint, num_negatives=2))(
            rows(sources), rows(targets), np.arange(4) < 3, negatives
        )
        np.testing.assert_allclose(sums["distance_loss"], constraint, rtol=1e-5)
        expected_total += CONSTRAINT["weight"] * directions * constraint
    if settings.get("similarity", {}).get("weight"):
        similarity = ((sources - targets) ** 2).sum()
        np.testing.assert_allclose(sums["similarity_loss"], similarity, rtol=1e-5)
        expected_total += settings["similarity"]["weight"] * directions * similarity
    if "similarity_distribution" in settings:  # once per update, whatever the batch
        value = sums["similarity_distribution_loss"]
        assert value > 0
        expected_total += 0.3 * value * sums["normalizer"]
    if "encoder_l2" in settings:
        penalty = sum((leaf**2).sum() for leaf in jax.tree.leaves(params["encoder"]))
        np.testing.assert_allclose(sums["encoder_l2"], penalty, rtol=1e-5)
        expected_total += 0.01 * penalty * sums["normalizer"]
    np.testing.assert_allclose(total, expected_total, rtol=1e-5)
    assert sums["loss"] == total


def test_counts_leave_padding_out(results):
    _, sums = results["constrained", False]
    assert sums["sentences"] == 3
    assert sums["rows"] == 4
    assert sums["tokens"] == sum(len(sentence) for sentence in (*SOURCES, *TARGETS))


@pytest.mark.parametrize("drop_first", [False, True])
@pytest.mark.parametrize("append_eos", [False, True])
def test_the_normalizer_counts_the_labels_of_the_decoder(drop_first, append_eos):
    context = Context(make_model(), VOCAB, {"pad": PAD, "eos": 2}, drop_first, append_eos)
    batch = make_batch(both=True)
    inputs = Inputs(None, batch, None, None, True, np.ones(4, bool), None, None)
    labels = [context.decoder_tokens(batch[f"{side}_tokens"])[1] for side in ("source", "target")]
    count = sum((label != PAD).sum() for label in labels)
    assert normalizer(context, inputs) == count
    # Not every vocabulary has an end of sentence, which only a decoder needs.
    endless = dataclasses.replace(context, special_ids={"pad": PAD, "eos": None})
    assert normalizer(endless, inputs) == count


def test_training_randomness_is_a_function_of_the_key(params):
    loss_fn = make_objective(make_model(dropout=0.3), distance=CONSTRAINT)
    run = jax.jit(lambda key: loss_fn(params, make_batch(), key, True)[0])
    first = run(jax.random.key(1))
    assert run(jax.random.key(1)) == first
    assert run(jax.random.key(2)) != first


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"reduction": "max"}, "objective.reduction='max' must be one of sum, mean"),
        ({"harmony": {"weight": 1.0}}, "objective term='harmony' must be one of translation"),
        ({"distance": {"weight": -1.0}}, "objective.distance.weight=-1.0 must not be negative"),
        (
            {"translation": {"weight": 0.0}},
            "no term has a weight; add one of translation",
        ),
        (
            {"translation": {"weight": 0.0}, "similarity": {"weight": 1.0}},
            "objective: similarity is minimized by collapsed embeddings; add a term",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        make_objective(make_model(), **settings)


def test_a_term_reads_only_what_there_is(monkeypatch):
    monkeypatch.setattr(TERMS["similarity"], "reads", frozenset({"targets"}))
    with pytest.raises(ValueError, match="similarity: reads='targets' must be one of target, dec"):
        make_objective(make_model(), similarity={"weight": 1.0})
