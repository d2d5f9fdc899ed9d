"""MTEB gives an exported encoder the scores of the original."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pytest

from tests.formats.conftest import TEXT
from xling_jax.formats.sentence_transformers import export_sentence_transformers
from xling_jax.mteb import MtebEncoder

mteb = pytest.importorskip("mteb", reason="MTEB is not installed")
library = pytest.importorskip("sentence_transformers")

from tests.test_mteb import Bitext, Similarity, scores  # noqa: E402

WORDS = " ".join(TEXT).split()
DRAW = np.random.default_rng(0)
SOURCE = [" ".join(DRAW.choice(WORDS, 8)) for _ in range(40)]
TARGET = [" ".join(DRAW.permutation(text.split())[:6]) for text in SOURCE]


class LocalBitext(Bitext):
    columns = {"test": {"sentence1": SOURCE, "sentence2": TARGET}}


class LocalSimilarity(Similarity):
    columns = {"test": {"sentence1": SOURCE, "sentence2": TARGET, "score": DRAW.uniform(0, 5, 40)}}


@pytest.mark.parametrize("name", ["tlaser", "dual", "static"])
def test_scores_are_those_of_the_original(tmp_path, models, name):
    export_sentence_transformers(models(name), tmp_path / "out")
    found = []
    for model in (
        MtebEncoder(str(models(name))),
        library.SentenceTransformer(str(tmp_path / "out"), device="cpu"),
    ):
        tasks = [LocalBitext(), LocalSimilarity()]
        results = mteb.evaluate(model, tasks, cache=None, show_progress_bar=False).task_results
        found.append(
            (
                scores(results, "LocalBitext")["accuracy"],
                scores(results, "LocalSTS")["cosine_spearman"],
            )
        )
    assert 0.05 < found[0][0] < 1  # chance is 0.025
    # The right one of a sentence may be as near as a wrong one, up to rounding.
    assert abs(found[0][0] - found[1][0]) <= 1.5 / len(SOURCE)
    assert found[0][1] == pytest.approx(found[1][1], abs=1e-6)
