"""LASER, cLASER and the similarity-loss model from text to retrieval, through the command line."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import xling_jax
from tests.cli.corpora_for_cli import ROOT, write_tsv, xling

pytestmark = pytest.mark.slow

COMMON = {
    "languages": "('de','en')",
    "data.pairs": "('de-en','en-de')",
    "data.reader": "numpy",
    "data.bucket_lengths": "(24,)",
    "data.max_tokens": 384,
    "vocab.size": 120,
    "train.total_steps": 6,
}
FAMILIES = {
    "claser.py:layers=2,smoke": {},
    "similarity_loss.py:smoke": {
        "vocab.model_type": "word",
        "vocab.size": 100,
        "encoder.embedding_width": 8,
        "decoder.embedding_width": 8,
        "encoder.pooling": "self_attention",
        "encoder.attention_hops": 2,
    },
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
    settings = COMMON | {"data.corpora": f"('tsv:{corpus}',)"} | FAMILIES[config]
    similarity = config.startswith("similarity")
    if similarity:
        known = corpus.read_text().splitlines()[1].split("\t")[1].split()[0]
        vectors = tmp_path / "vectors.txt"
        vectors.write_text(f"en:{known} " + " ".join(["0.5"] * 8) + "\n")
        settings |= {"train.word_vectors": vectors}
    train = ["train", "--config", f"{ROOT}/configs/{config}", "--workdir", str(workdir)]
    xling(*train, *(f"--config.{key}={value}" for key, value in settings.items()))

    sums = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    own = "train/similarity_loss" if similarity else "train/distance_loss"
    assert all(np.isfinite([record[own], record["train/loss"]]).all() for record in sums)
    encoder = xling_jax.load(workdir)
    vectors = encoder.encode(dev.read_text().splitlines())
    assert vectors.shape == (21, 32 * (2 if similarity else 1)) and np.isfinite(vectors).all()
    if similarity:
        tables = load_file(workdir / "encoder" / "encoder.safetensors")
        piece = encoder.vocab.pieces().index(f"▁{known}")
        np.testing.assert_allclose(tables["embedding"][piece], 0.5, atol=0.02)

    xling("evaluate", "retrieval", "--model", workdir, "--data", dev, "--output", tmp_path / "r")
    results = json.loads((tmp_path / "r" / "results.json").read_text())
    assert 0 <= results["metrics"]["dev/p_at_1"] <= 1
