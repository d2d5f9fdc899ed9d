"""The options of an aligner: the rank rule, the search, its progress; fitted pairs as files."""

import json
import logging
import pickle

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tests.documents.test_lawdr import SETTINGS, corpus
from xling_jax.documents import debias
from xling_jax.documents.alignment import DocumentAligner, FittedPair
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


def fitted(settings, model="m1"):
    estimators = tuple(Lawdr(**settings).fit(corpus(seed)[0]) for seed in (0, 1))
    return FittedPair(("de", "en"), estimators, model)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_saved_and_loaded_gives_the_same_bits(tmp_path, settings):
    pair = fitted(settings)
    pair.save(tmp_path / "pair")
    loaded = FittedPair.load(tmp_path / "pair")
    assert (loaded.languages, loaded.model, loaded.document_mode) == (
        ("de", "en"),
        "m1",
        "sentences",
    )
    others, offsets = corpus(seed=5, n=90)
    for before, after in zip(pair.estimators, loaded.estimators):
        arrays, facts = before.state()
        assert after.state()[1] == facts
        for name, array in after.state()[0].items():
            assert array.tobytes() == arrays[name].tobytes()
        for vectors, cuts in ((others, offsets), corpus(0)):
            np.testing.assert_array_equal(
                after.transform(vectors, cuts), before.transform(vectors, cuts)
            )


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


def test_estimators_are_for_their_languages_model_and_vectors():
    pair = fitted({"rank": 3})
    german, english = pair.estimators
    assert pair.estimators_for(("de", "en"), "m1", 24) == [german, english]
    assert pair.estimators_for(("en", "de"), "", 24) == [english, german]
    for arguments, message in (
        ((("de", "fr"), "m1", 24), "fitted to de and en; found documents in de and fr"),
        ((("de", "en"), "m2", 24), "another model, m1; found m2"),
        ((("de", "en"), "m1", 25), "vectors of dim 24; found 25"),
        ((("de", "en"), "m1", 24, "packed"), "document mode sentences; found packed"),
    ):
        with pytest.raises(ValueError, match=message):
            pair.estimators_for(*arguments)


def test_two_sides_of_one_language_keep_their_own_estimators():
    pair = FittedPair(("en", "en"), fitted({"rank": 3}).estimators)
    assert pair.estimators_for(("en", "en"), "", 24) == [*pair.estimators]


def test_size_of_the_file_is_as_promised(tmp_path):
    vectors, _ = corpus(n=1000)
    FittedPair(("de", "en"), (Lawdr(rank=4).fit(vectors),) * 2).save(tmp_path / "file")
    tensors = 2 * 4 * 24 * (4 + 17) + 2 * 72 * len(vectors)
    assert tensors < (tmp_path / "file").stat().st_size < tensors + 3000


def altered(path, change):
    """Rewrites a saved file with its tensors and the facts of its first side changed."""
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    tensors, facts = load_file(path), json.loads(metadata["lawdr"])
    change(tensors, facts[0])
    save_file(tensors, path, {**metadata, "lawdr": json.dumps(facts)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, facts: tensors.pop("0.components"), "tensors must be"),
        (lambda tensors, facts: tensors.update({"0.extra": np.ones(1)}), "tensors must be"),
        (lambda tensors, facts: tensors.update({"0.components": np.ones((24, 2), "f4")}), "compon"),
        (lambda tensors, facts: tensors.update({"0.density.mean": np.ones(24)}), "float64"),
        (lambda tensors, facts: facts["settings"].update(rank=-1), "rank must be"),
        (lambda tensors, facts: facts["settings"].update(color="red"), "color"),
        (lambda tensors, facts: facts["settings"].update(center=True), "center is gone; fit it ag"),
        (lambda tensors, facts: facts.pop("dim"), "dim"),
        (lambda tensors, facts: facts["density"].update(bandwidth="wide"), "wide"),
    ],
)
def test_files_with_other_content_are_refused(tmp_path, change, message):
    path = tmp_path / "file"
    fitted({"rank": 3}).save(path)
    altered(path, change)
    with pytest.raises(ValueError, match=f"file: not a file of xling align --save-de.*{message}"):
        FittedPair.load(path)


def test_files_of_0_3_are_read(tmp_path):
    pair = fitted({"rank": 3})
    pair.save(tmp_path / "file")
    known = {"center": False, "density_dim": 16, "bandwidth": None, "density_on": "raw"}
    altered(tmp_path / "file", lambda _, facts: facts["settings"].update(known))
    arrays, facts = FittedPair.load(tmp_path / "file").estimators[0].state()
    assert facts == pair.estimators[0].state()[1]
    np.testing.assert_array_equal(arrays["components"], pair.estimators[0].components)


def test_files_of_other_kinds_are_refused(tmp_path):
    path = tmp_path / "file"
    save_file({"components": np.ones((2, 2))}, path)
    with pytest.raises(ValueError, match="something else"):
        FittedPair.load(path)
    path.write_bytes(pickle.dumps({"rank": 3}))
    with pytest.raises(ValueError, match="not a file of xling align"):
        FittedPair.load(path)
    with pytest.raises(FileNotFoundError, match="nothing"):
        FittedPair.load(tmp_path / "nothing")
