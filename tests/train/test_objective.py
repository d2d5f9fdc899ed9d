import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import tlaser_reference as reference
from xling_jax.losses.distance import distance_constraint
from xling_jax.models.registry import build_model
from xling_jax.train.objective import translation_objective

VOCAB, HEADS, PAD, EPSILON = 30, 2, 1, 0.1
SIZES = {"family": "tlaser", "width": 16, "heads": HEADS, "ffn_width": 24}
SOURCES = ([0, 5, 6, 7, 2], [0, 9, 2], [0, 4, 29, 11, 12, 2])
TARGETS = ([0, 8, 2], [0, 9, 13, 4, 5, 2], [0, 20, 21, 22, 2])
SOURCE_LANGUAGE, TARGET_LANGUAGE = 1, 2
OBJECTIVES = {
    "translation": {},
    "constrained": {"translation_weight": 0.5, "distance_weight": 0.25},
    "decoder_bos": {"decoder_bos": True},
    "mean": {"reduction": "mean", "distance_weight": 0.25},
}


# Both directions change what is encoded and translated, not how the loss is put together.
CASES = [*((name, False) for name in OBJECTIVES), ("translation", True), ("constrained", True)]


def make_model(dropout=0.0):
    return build_model(
        encoder=SIZES | {"layers": 1, "dropout": dropout},
        decoder=SIZES | {"language_width": 4, "dropout": dropout},
        vocab_size=VOCAB,
        num_languages=3,
        vocab_multiple=16,
        dropout_generator="hash",
    )


def make_objective(model, **settings):
    ids = {"bos_id": 0, "eos_id": 2, "pad_id": PAD}
    return translation_objective(model, vocab_size=VOCAB, num_negatives=2, **ids, **settings)


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


def translation(params, embeddings, language, targets, keep_bos=False):
    """Smoothed loss, -log p and label count over all sentences, in float64."""
    loss = nll = count = 0.0
    for embedding, target in zip(embeddings, targets):
        labels = target if keep_bos else target[1:]
        previous = [2, *labels[:-1]]
        logits = reference.decode(params["decoder"], embedding, language, previous, HEADS)
        log_p = np.log(reference.softmax(logits[:, :VOCAB]))
        true = log_p[np.arange(len(labels)), labels]
        loss += -((1 - EPSILON) * true + EPSILON * log_p.mean(-1)).sum()
        nll -= true.sum()
        count += len(labels)
    return loss, nll, count


@pytest.mark.parametrize("name, both", CASES)
def test_the_loss_equals_the_formulas(params, results, name, both):
    settings = OBJECTIVES[name]
    params = reference.as_float64(params)
    sources, targets = (
        np.array([reference.encode(params["encoder"], sentence, HEADS) for sentence in sentences])
        for sentences in (SOURCES, TARGETS)
    )
    keep_bos = settings.get("decoder_bos", False)
    expected = np.array(translation(params, sources, TARGET_LANGUAGE, TARGETS, keep_bos))
    if both:
        expected += translation(params, targets, SOURCE_LANGUAGE, SOURCES, keep_bos)
    loss, nll, tokens = expected

    total, sums = results[name, both]
    np.testing.assert_allclose(sums["translation_loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(sums["negative_log_likelihood"], nll, rtol=1e-5)
    assert sums["translation_loss_count"] == tokens
    mean = settings.get("reduction") == "mean"
    assert sums["normalizer"] == (1 if mean else tokens)
    constraint = 0.0
    if "distance_weight" in settings:
        rows = lambda vectors: jnp.asarray(np.pad(vectors, ((0, 1), (0, 0))), jnp.float32)
        negatives = jax.random.split(jax.random.key(0), 3)[2]
        constraint, _ = jax.jit(functools.partial(distance_constraint, num_negatives=2))(
            rows(sources), rows(targets), np.arange(4) < 3, negatives
        )
        np.testing.assert_allclose(sums["distance_loss"], constraint, rtol=1e-5)
    per_token, per_sentence = (tokens, 3) if mean else (1, 1)
    expected_total = settings.get("translation_weight", 1.0) * loss / per_token
    directions = 2 if both and not mean else 1
    expected_total += settings.get("distance_weight", 0.0) * directions * constraint / per_sentence
    np.testing.assert_allclose(total, expected_total, rtol=1e-5)
    assert sums["loss"] == total


def test_counts_leave_padding_out(results):
    _, sums = results["constrained", False]
    assert sums["sentences"] == 3
    assert sums["rows"] == 4
    assert sums["tokens"] == sum(len(sentence) for sentence in (*SOURCES, *TARGETS))


def test_training_randomness_is_a_function_of_the_key(params):
    loss_fn = make_objective(make_model(dropout=0.3), distance_weight=0.25)
    run = jax.jit(lambda key: loss_fn(params, make_batch(), key, True)[0])
    first = run(jax.random.key(1))
    assert run(jax.random.key(1)) == first
    assert run(jax.random.key(2)) != first


def test_an_unknown_reduction_is_refused():
    with pytest.raises(ValueError, match="objective.reduction='max'"):
        make_objective(make_model(), reduction="max")
