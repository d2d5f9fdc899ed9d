"""The options of an aligner: the rank rule, the search, its progress."""

import logging

import numpy as np

from tests.documents.test_lawdr import corpus
from xling_jax.documents import debias
from xling_jax.documents.alignment import DocumentAligner
from xling_jax.documents.lawdr import Lawdr
from xling_jax.documents.records import Documents


def collection(language, num_documents=20, num_sentences=10, seed=0):
    """Documents of equally many sentences, and the vectors of these."""
    vectors, _ = corpus(seed, n=num_documents * num_sentences)
    ids, lengths = [*map(str, range(num_documents))], [num_sentences] * num_documents
    return Documents(language, language, ids=ids, domains=ids, lengths=lengths), vectors


def test_the_rank_rule_gets_the_seed_and_a_large_rank_for_little_text_is_said(monkeypatch, caplog):
    sides, vectors = zip(collection("de"), collection("en", seed=1))
    given = []
    choice = 2, {0: 0.9, 2: 0.5}
    monkeypatch.setattr(debias, "choose_rank", lambda _, **options: given.append(options) or choice)
    aligner = DocumentAligner(seed=3, weighting="none")
    assert [lawdr.rank for lawdr in aligner.fit(sides, vectors)] == [2, 2]
    assert given == [{"seed": 3}] and not caplog.records
    choice = 16, {0: 0.9, 16: 0.5}
    aligner.fit(sides, vectors)
    assert "16 components of 200 sentences hold topics too; compare with --debias 0" in caplog.text


def test_too_little_text_is_not_debiased(caplog):
    sides, vectors = zip(collection("de", num_documents=4), collection("en", num_documents=4))
    with caplog.at_level(logging.WARNING):
        estimators = DocumentAligner().fit(sides, vectors)
    assert "no debiasing: de (de) must have at least 50 sentences" in caplog.text
    assert [lawdr.rank for lawdr in estimators] == [None, None]


def test_an_aligner_uses_estimators_of_other_documents():
    aligner = DocumentAligner(debias=3)
    batches = []
    for seeds in ((0, 1), (2, 3)):
        drawn = [corpus(seed) for seed in seeds]
        sides = [
            Documents(code, code, ids=[*map(str, offsets[1:])], lengths=[*np.diff(offsets)])
            for code, (_, offsets) in zip(("de", "en"), drawn)
        ]
        batches.append((sides, [vectors for vectors, _ in drawn]))
    estimators = aligner.fit(*batches[0])
    found = aligner.document_vectors(*batches[1], estimators)
    for documents, side, vectors, first in zip(found, *batches[1], batches[0][1]):
        by_hand = Lawdr(rank=3).fit(first).transform(vectors, side.offsets)
        np.testing.assert_array_equal(documents, by_hand)
        own = Lawdr(rank=3).fit(vectors).transform(vectors, side.offsets)
        assert not np.allclose(documents, own)
