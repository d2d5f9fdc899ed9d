"""The validation loss: exact over all held-out pairs, the same at every evaluation."""

import jax
import numpy as np
import pytest

from tests.train.synthetic import smoke_experiment, write_corpus
from xling_jax.sharding import make_mesh
from xling_jax.train.loop import open_validation
from xling_jax.train.training import check, resolve
from xling_jax.train.validation import Validation, losses


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    """Prepared data with 37 held-out pairs of two pairs of languages, none of the third."""
    directory = tmp_path_factory.mktemp("data")
    corpus = write_corpus(directory)
    write_corpus(directory / "validation", rows=37, seed=1, languages=("aa", "bb"))
    write_corpus(directory / "validation", rows=37, seed=2, languages=("aa", "cc"))
    return corpus


def make(corpus, **values):
    experiment = smoke_experiment({"data.validation_pairs": 37, **values}, total_steps=1)
    training = resolve(experiment, corpus.vocab)
    mesh = make_mesh(devices=jax.devices()[:1])
    batches = open_validation(experiment, corpus)
    validation = Validation(training.objective, batches, mesh, training.shapes.params)
    return training, batches, validation, training.init().params


def test_every_pair_counts_once_whatever_the_batches(held_out):
    """Equals a sum over single pairs, each a batch of its own; dropout of 0.3 is off."""
    training, batches, validation, params = make(held_out, **{"objective.distance.weight": 0.0})
    assert training.objective.context.model.encoder.dropout == 0.3
    found = validation(params)
    assert found == validation(params)

    loss = jax.jit(lambda batch: training.objective(params, batch, jax.random.key(9), False)[1])
    losses, tokens, pairs = {}, {}, {}
    for number, direction in enumerate(batches.directions):
        name = f"{direction.source}-{direction.target}"
        losses[name], tokens[name], pairs[name] = 0.0, 0.0, 0
        for entry in batches.plan.one_pass(number):
            batch = batches.read(entry)
            for row in np.flatnonzero(entry.rows >= 0):
                sums = loss({key: value[row : row + 1] for key, value in batch.items()})
                losses[name] += float(sums["translation_loss"])
                tokens[name] += float(sums["normalizer"])
                pairs[name] += 1
    assert pairs == {"aa-bb": 37, "bb-aa": 37, "aa-cc": 37}
    for name in pairs:
        expected = losses[name] / tokens[name]
        assert found[f"validation/{name}/translation_loss"] == pytest.approx(expected, rel=1e-5)
        assert found[f"validation/{name}/loss"] == pytest.approx(expected, rel=1e-5)
    total = sum(losses.values()) / sum(tokens.values())
    assert found["validation/loss"] == pytest.approx(total, rel=1e-5)


def test_it_does_not_depend_on_the_seed_and_its_names_are_known_beforehand(held_out):
    training, batches, validation, params = make(held_out)  # negatives are drawn
    found = validation(params)
    assert found["validation/distance_loss"] > 0
    assert {*losses(training.objective, batches.directions)} <= found.keys()
    _, _, other, _ = make(held_out, seed=5)
    assert other(params) == found


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"data.validation_pairs": 0}, "needs held-out pairs: set data.validation_pairs"),
        ({"train.best_metric": "validation/los"}, "did you mean validation/loss"),
        ({"train.best_metric": "validation/aa-zz/loss"}, "did you mean validation/aa-"),
        ({"train.best_metric": "validation/bb-aa/margin"}, "must be one of"),
    ],
)
def test_a_metric_that_is_not_measured_is_refused_before_training(settings, message):
    values = {"train.total_steps": 1, "train.best_metric": "validation/loss"}
    values |= {"data.validation_pairs": 5, "data.batch_multiple": 8}
    with pytest.raises(ValueError, match=message):
        check(smoke_experiment(values | settings))
