"""The lightweight dual transformer and the mean of token vectors, from text to retrieval."""

import json

import numpy as np
import pytest

import xling_jax
from tests.cli.corpora_for_cli import ROOT, write_tsv, xling

pytestmark = pytest.mark.slow

FAMILIES = {
    "lightweight.py:pair=de-en,objective=smlm+xtr+align+sim,smoke": {
        "objective.encode_chunks": 4,
        "objective.token_distribution.tasks.smlm": 0.5,
    },
    "static.py:smoke": {"data.pairs": "('de-en',)", "train.total_steps": 60},
}


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(name, marks=[] if name == next(iter(FAMILIES)) else pytest.mark.exhaustive)
        for name in FAMILIES
    ],
)
def test_text_to_retrieval_on_eight_devices(config, tmp_path):
    corpus = write_tsv(tmp_path / "corpus.tsv")
    workdir, dev = tmp_path / "w", tmp_path / "dev.tsv"
    dev.write_text("".join(corpus.read_text().splitlines(keepends=True)[:21]))
    settings = {
        "languages": "('de','en')",
        "data.corpora": f"('tsv:{corpus}',)",
        "data.reader": "numpy",
        "data.bucket_lengths": "(32,)",
        "vocab.size": 120,
        "train.total_steps": 6,
    }
    settings |= FAMILIES[config]
    train = ["train", "--config", f"{ROOT}/configs/{config}", "--workdir", str(workdir)]
    xling(*train, *(f"--config.{key}={value}" for key, value in settings.items()))
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert all(np.isfinite(record["train/alignment_loss"]) for record in records)
    assert not any("train/translation_loss" in record for record in records)
    encoder = xling_jax.load(workdir)
    vectors = encoder.encode(["abcd efgh", "", "ab " * 300])
    assert vectors.shape == (3, 32) and np.isfinite(vectors).all()
    assert not vectors[1].any()  # an empty sentence has no tokens to average

    xling("evaluate", "retrieval", "--model", workdir, "--data", dev, "--output", tmp_path / "r")
    results = json.loads((tmp_path / "r" / "results.json").read_text())
    if config.startswith("static"):  # words are learned at once: each has one translation
        assert results["metrics"]["dev/p_at_1"] > 0.5


@pytest.mark.exhaustive
def test_a_run_begins_with_a_trained_encoder(tmp_path, capfd):
    """With norms in front, layers on top of the static encoder first embed as it does."""
    corpus = write_tsv(tmp_path / "corpus.tsv")
    settings = {
        "languages": "('de','en')",
        "data.pairs": "('de-en',)",
        "data.corpora": f"('tsv:{corpus}',)",
        "data.reader": "numpy",
        "data.bucket_lengths": "(32,)",
        "vocab.size": 120,
    }
    options = [f"--config.{key}={value}" for key, value in settings.items()]
    train = lambda config, workdir, *more: xling(
        *("train", "--config", f"{ROOT}/configs/{config}", "--workdir", tmp_path / workdir),
        *(*options, *more),
    )
    train("static.py:smoke", "static")
    begin = f"--config.train.model_init={tmp_path / 'static'}"
    train("contextual.py:smoke", "more", begin, "--config.schedule.peak_value=0.0")
    sentences = ["abcd efgh", "ab " * 20]
    vectors = [xling_jax.load(tmp_path / name).encode(sentences) for name in ("static", "more")]
    np.testing.assert_allclose(*vectors, atol=1e-6)
    train("static.py:smoke", "small", "--config.vocab.size=110")
    vocab = f"--config.vocab.model={tmp_path / 'small/vocab/sentencepiece.model'}"
    with pytest.raises(AssertionError, match="has another vocabulary"):
        train("contextual.py:smoke", "other", begin, vocab)
