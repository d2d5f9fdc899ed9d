"""Vectors of a teacher with the batches, what an encoder learns from them, and nested widths."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train.synthetic import LANGUAGES, VOCAB_SIZE, write_corpus
from xling_jax.config import load
from xling_jax.corpora.shards import PairTokens
from xling_jax.losses.contrastive import alignment_loss
from xling_jax.train import loop
from xling_jax.train.batches import read_batches
from xling_jax.train.terms.term import Context, Inputs
from xling_jax.train.terms.vectors import Alignment
from xling_jax.train.training import VocabFacts, resolve

WIDTH, TAUGHT = 32, 8


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus whose teacher knows 8 dimensions, the sum of vectors of its words."""
    directory = tmp_path_factory.mktemp("corpus")
    corpus = write_corpus(directory)
    words = np.random.default_rng(5).normal(size=(56, TAUGHT))
    for path in directory.iterdir():
        tokens = PairTokens(path)
        (directory / "teacher" / path.name).mkdir(parents=True)
        for language in tokens.languages:
            shift, rows = 17 * LANGUAGES.index(language), np.arange(len(tokens))
            ids = tokens.gather(language, rows, 20, -1)
            vectors = np.where((ids >= 0)[..., None], words[(ids - 4 - shift) % 56], 0).sum(1)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            file = directory / "teacher" / path.name / f"{language}.npy"
            np.save(file, vectors.astype(np.float16))
    return corpus


def make(width=TAUGHT, steps=8, reader="numpy", values=None, **distillation):
    values = {f"objective.distillation.{k}": v for k, v in distillation.items()} | (values or {})
    values |= {"languages": LANGUAGES, "encoder.width": width, "data.reader": reader}
    values |= {"data.pairs": ("aa-bb", "cc-aa", "bb-cc"), "data.bucket_lengths": (8, 24)}
    values |= {"train.total_steps": steps, "train.evaluate_every_steps": 4}
    return load("distill:smoke").replace({"train.checkpoint_every_steps": 2} | values)


def test_a_batch_has_the_vectors_of_its_rows(corpus):
    experiment = make(width=WIDTH, fits="own", form="similarity")
    batches = loop.open_batches(experiment, corpus)
    for index, batch in enumerate(read_batches(batches, 0, 12, reader="numpy")):
        entry = batches.plan[index]
        direction = batches.directions[entry.pair]
        pair = "-".join(sorted((direction.source, direction.target)))
        for side in ("source", "target"):
            file = f"{corpus.directory}/teacher/{pair}/{getattr(direction, side)}.npy"
            expected = np.where(entry.rows[:, None] >= 0, np.load(file)[entry.rows], 0)
            found = batch[f"{side}_teacher"]
            assert found.dtype == np.float32 and not found[:, TAUGHT:].any()
            np.testing.assert_array_equal(found[:, :TAUGHT], expected)
    source_only = loop.open_batches(make(), corpus)[0]
    assert "source_teacher" in source_only and "target_teacher" not in source_only


@pytest.mark.slow
def test_a_student_learns_the_teacher(corpus, tmp_path):
    values = {"schedule.peak_value": 0.05, "train.checkpoint_every_steps": 60}
    experiment = make(steps=60, form="cosine", values=values | {"train.log_every_steps": 60})
    whole = loop.train(experiment, tmp_path, corpus)
    training = resolve(experiment, VocabFacts(VOCAB_SIZE))
    encode = training.objective.context.model.encoder.apply
    batch = loop.open_batches(experiment, corpus)[70]
    # About 0 before training; of both languages, though the teacher read the source only.
    for side in ("source", "target"):
        vectors = encode({"params": whole.encoder_params}, batch[f"{side}_tokens"])
        dots = (vectors * batch["source_teacher"]).sum(1) / jnp.linalg.norm(vectors, axis=1)
        assert float(dots[(batch["source_tokens"] != 1).any(1)].mean()) > 0.5


def make_inputs():
    random = np.random.default_rng(1)
    source, target = random.normal(size=(2, 6, 8)).astype(np.float32)
    mask = np.arange(6) < 5
    return Inputs({}, {}, None, jax.random.key(0), True, mask, source, target)


def test_nested_widths_add_up_and_none_changes_nothing():
    inputs, context = make_inputs(), Context(None, 0, {"pad": 1}, reduction="mean")
    passed = {"similarity": "cosine", "scale": 5.0, "margin": 0.1}
    run = lambda **options: Alignment(passed=passed, **options)(context, inputs)
    value, sums = run(widths=(2, 4, 8))

    def by_hand(width):
        u, v = (a[:5, :width].astype(np.float64) for a in (inputs.source, inputs.target))
        u, v = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (u, v))
        logits = 5.0 * (u @ v.T - 0.1 * np.eye(5))
        loss = lambda s: (np.log(np.exp(s).sum(1)) - np.diagonal(s)).sum()
        return loss(logits) + loss(logits.T)

    np.testing.assert_allclose(value, by_hand(2) + by_hand(4) + by_hand(8), rtol=1e-5)
    plain = alignment_loss(inputs.source, inputs.target, inputs.mask, **passed)
    assert run()[0] == plain[0] and sums["alignment_accuracy"] == plain[1]
    assert run(widths=(8,))[0] == plain[0]
    np.testing.assert_allclose(run(widths=[4, 8])[0], by_hand(4) + by_hand(8), rtol=1e-5)
