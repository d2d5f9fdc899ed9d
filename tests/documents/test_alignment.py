"""The aligner of documents: its vectors are LAWDR's, with the rank that the rule finds."""

import logging

import numpy as np
import pytest

from tests.documents.test_lawdr import corpus
from xling_jax.align.matching import align_documents
from xling_jax.documents import debias
from xling_jax.documents.alignment import DocumentAligner
from xling_jax.documents.lawdr import Lawdr
from xling_jax.documents.records import Documents


def collection(language, num_documents=20, num_sentences=10, seed=0):
    """Documents of equally many sentences, and the vectors of these."""
    vectors, _ = corpus(seed, n=num_documents * num_sentences)
    ids, lengths = [*map(str, range(num_documents))], [num_sentences] * num_documents
    return Documents(language, language, ids=ids, domains=ids, lengths=lengths), vectors


@pytest.mark.parametrize(("debiased", "chosen"), [(3, None), ("auto", 2), (0, None)])
def test_documents_are_aligned_by_lawdr_of_each_side(monkeypatch, debiased, chosen):
    sides, vectors = zip(collection("de"), collection("en", seed=1))
    given = []
    choice = lambda _, **options: given.append(options) or (chosen, {0: 0.9, chosen: 0.5})
    monkeypatch.setattr(debias, "choose_rank", choice)
    found = DocumentAligner(debias=debiased, seed=3).align(sides, vectors)
    documents = [
        Lawdr(rank=chosen or debiased or None, seed=3).fit(array).transform(array, side.offsets)
        for side, array in zip(sides, vectors)
    ]
    assert list(found) == list(align_documents(*documents))
    assert given == ([{"seed": 3}] if debiased == "auto" else [])


def test_the_side_with_a_bad_vector_is_named():
    sides, vectors = zip(collection("de"), collection("en", seed=1))
    vectors[1][7] = np.nan
    for debiased, message in (("auto", r"en \(en\)\[7\]"), (0, r"en: vectors\[7\]")):
        with pytest.raises(ValueError, match=f"^{message} must be finite"):
            DocumentAligner(debias=debiased).align(sides, vectors)


def test_a_large_rank_for_little_text_is_said_and_too_little_is_not_debiased(monkeypatch, caplog):
    small = zip(collection("de", num_documents=4), collection("en", num_documents=4))
    with caplog.at_level(logging.WARNING):
        DocumentAligner().align(*small)
    assert "no debiasing: de (de) must have at least 50 sentences" in caplog.text
    monkeypatch.setattr(debias, "choose_rank", lambda _, **options: (16, {0: 0.9, 16: 0.5}))
    DocumentAligner().align(*zip(collection("de"), collection("en", seed=1)))
    assert "16 components of 200 sentences hold topics too; compare with --debias 0" in caplog.text
