"""The lightweight dual transformer and the mean of token vectors, from text to retrieval."""

import json

import numpy as np
import pytest

import xling_jax
from tests.cli.corpora_for_cli import ROOT, write_tsv, xling

FAMILIES = {
    "lightweight.py:pair=de-en,smoke": {"objective.encode_chunks": 4},
    "static.py:smoke": {"data.pairs": "('de-en',)", "train.total_steps": 60},
}


@pytest.mark.parametrize("config", FAMILIES)
def test_text_to_retrieval_on_eight_devices(config, tmp_path):
    corpus = write_tsv(tmp_path / "corpus.tsv")
    workdir, dev = tmp_path / "w", tmp_path / "dev.tsv"
    dev.write_text("".join(corpus.read_text().splitlines(keepends=True)[:21]))
    settings = {
        "languages": "('de','en')",
        "data.corpora": f"('tsv:{corpus}',)",
        "data.reader": "numpy",
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
