"""What the options of an aligner reach: the rank rule, the search, its progress."""

import logging

import numpy as np
import pytest

from tests.documents.test_lawdr import corpus
from xling_jax.align import matching
from xling_jax.documents import debias
from xling_jax.documents.alignment import DocumentAligner
from xling_jax.documents.records import Documents
from xling_jax.documents.weighting import document_vectors
from xling_jax.options import OptionError


def collection(language, num_documents=20, num_sentences=10, seed=0):
    """Documents of equally many sentences, and the vectors of these."""
    vectors, _ = corpus(seed, n=num_documents * num_sentences)
    ids, lengths = [*map(str, range(num_documents))], [num_sentences] * num_documents
    return Documents(language, language, ids=ids, domains=ids, lengths=lengths), vectors


def test_the_rank_rule_gets_seed_and_centering(monkeypatch):
    sides, vectors = zip(collection("de"), collection("en", seed=1))
    given = []
    choice = debias.RankChoice(2, {0: 0.9, 2: 0.5}, 0.55)
    monkeypatch.setattr(debias, "choose_rank", lambda _, **options: given.append(options) or choice)
    aligner = DocumentAligner(seed=3, center=True, weighting="none")
    assert [lawdr.rank for lawdr in aligner.fit(sides, vectors)] == [2, 2]
    assert given == [{"seed": 3, "center": True}]


def test_the_progress_ends_with_all_source_documents():
    sides, vectors = zip(collection("de"), collection("en", num_documents=15, seed=1))
    calls = []
    aligner = DocumentAligner(debias=0, weighting="none")
    aligner.align(sides, vectors, report=lambda *numbers: calls.append(numbers))
    assert calls[-1] == (20, 20)


def test_centering_is_left_out_with_the_components(caplog):
    sides, vectors = zip(collection("de", num_documents=4), collection("en", num_documents=4))
    with caplog.at_level(logging.WARNING):
        estimators = DocumentAligner(center=True).fit(sides, vectors)
    assert "no debiasing: de (de) must have at least 50 sentences" in caplog.text
    assert [(lawdr.rank, lawdr.center) for lawdr in estimators] == [(None, False)] * 2


@pytest.mark.parametrize(
    ("options", "search"),
    [
        ({"k": 2}, {"k": 2}),
        ({"candidates": 1}, {"candidates": 1}),
        ({"raw_products": True}, {"normalize": False}),
        ({"similarity": "cosine"}, {"similarity": "cosine"}),
    ],
)
def test_the_search_gets_the_options(options, search):
    sides, vectors = zip(collection("de"), collection("en", seed=1))
    documents = [document_vectors(v, side.offsets) for side, v in zip(sides, vectors)]
    plain, expected = (matching.align_documents(*documents, **given) for given in ({}, search))
    found = DocumentAligner(debias=0, weighting="none", **options).align(sides, vectors)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
    assert found.scores.shape != plain.scores.shape or not np.allclose(found.scores, plain.scores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"debias": 0, "center": True}, "center requires debiasing"),
        ({"debias": 0, "density_on": "debiased"}, "density_on=debiased requires debiasing"),
        ({"raw_products": True, "similarity": "cosine"}, "raw_products requires similarity=margin"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        DocumentAligner(**options)
