"""Families of encoders from text to retrieval through the command line; one from another."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import xling_jax
from tests.cli.corpora_for_cli import ROOT, write_tsv, xling

pytestmark = pytest.mark.slow

COMMON = {
    "languages": "('de','en')",
    "data.reader": "numpy",
    "data.bucket_lengths": "(32,)",
    "vocab.size": 120,
    "train.total_steps": 6,
}
TWO_WAYS = {"data.pairs": "('de-en','en-de')", "data.max_tokens": 384}
# Config -> its changes, the loss that it has, and the width of its vectors.
FAMILIES = {
    "claser.py:layers=2,smoke": (TWO_WAYS, "distance_loss", 32),
    "similarity_loss.py:smoke": (
        TWO_WAYS
        | {
            "vocab.model_type": "word",
            "vocab.size": 100,
            "encoder.embedding_width": 8,
            "decoder.embedding_width": 8,
            "encoder.pooling": "self_attention",
            "encoder.attention_hops": 2,
        },
        "similarity_loss",
        64,
    ),
    "lightweight.py:pair=de-en,objective=smlm+xtr+align+sim,smoke": (
        {"objective.encode_chunks": 4, "objective.token_distribution.tasks.smlm": 0.5},
        "alignment_loss",
        32,
    ),
    "static.py:smoke": (
        {"data.pairs": "('de-en',)", "train.total_steps": 60},
        "alignment_loss",
        32,
    ),
}
_EXHAUSTIVE = ("similarity_loss.py:smoke", "static.py:smoke")


def words(settings):
    return [f"--config.{key}={value}" for key, value in settings.items()]


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if name in _EXHAUSTIVE else [])
        for name in FAMILIES
    ],
)
def test_text_to_retrieval_on_eight_devices(config, tmp_path):
    corpus, workdir, dev = write_tsv(tmp_path / "corpus.tsv"), tmp_path / "w", tmp_path / "dev.tsv"
    dev.write_text("".join(corpus.read_text().splitlines(keepends=True)[:21]))
    changes, loss, width = FAMILIES[config]
    settings = COMMON | {"data.corpora": f"('tsv:{corpus}',)"} | changes
    known = corpus.read_text().splitlines()[1].split("\t")[1].split()[0]
    if loss == "similarity_loss":
        (tmp_path / "vectors.txt").write_text(f"en:{known} " + " ".join(["0.5"] * 8) + "\n")
        settings |= {"train.word_vectors": tmp_path / "vectors.txt"}
    xling("train", "--config", f"{ROOT}/configs/{config}", "--workdir", workdir, *words(settings))
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert all(np.isfinite([record[f"train/{loss}"] for record in records]))
    if loss == "alignment_loss":
        assert not any("train/translation_loss" in record for record in records)
    encoder = xling_jax.load(workdir)
    vectors = encoder.encode(["abcd efgh", "", "ab " * 300, *dev.read_text().splitlines()])
    assert vectors.shape == (24, width) and np.isfinite(vectors).all()
    if loss == "alignment_loss":
        assert not vectors[1].any()  # an empty sentence has no tokens to average
    if loss == "similarity_loss":
        tables = load_file(workdir / "encoder" / "encoder.safetensors")
        piece = encoder.vocab.pieces().index(f"▁{known}")
        np.testing.assert_allclose(tables["embedding"][piece], 0.5, atol=0.02)
    xling("evaluate", "retrieval", "--model", workdir, "--data", dev, "--output", tmp_path / "r")
    results = json.loads((tmp_path / "r" / "results.json").read_text())
    # The static encoder learns words at once: each has one translation.
    assert (0.5 if config.startswith("static") else 0) <= results["metrics"]["dev/p_at_1"] <= 1


@pytest.mark.exhaustive
def test_a_run_begins_with_a_trained_encoder(tmp_path):
    """With norms in front, layers on top of the static encoder first embed as it does."""
    corpus = write_tsv(tmp_path / "corpus.tsv")
    settings = COMMON | {"data.pairs": "('de-en',)", "data.corpora": f"('tsv:{corpus}',)"}
    del settings["train.total_steps"]
    train = lambda config, workdir, *more: xling(
        *("train", "--config", f"{ROOT}/configs/{config}", "--workdir", tmp_path / workdir),
        *(*words(settings), *more),
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
