"""What the options of an aligner reach: the rank rule, the search, its progress."""

from tests.documents.test_lawdr import corpus
from xling_jax.documents import debias
from xling_jax.documents.alignment import DocumentAligner
from xling_jax.documents.records import Documents


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
