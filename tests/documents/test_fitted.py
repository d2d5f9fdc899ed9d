import numpy as np
import pytest

from tests.documents.test_lawdr import SETTINGS, altered, corpus
from xling_jax.documents.alignment import DocumentAligner
from xling_jax.documents.fitted import FittedPair
from xling_jax.documents.lawdr import Lawdr
from xling_jax.documents.records import Documents


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


def test_an_aligner_fits_estimators_with_its_options():
    options = {"center": True, "seed": 7, "density_on": "debiased", "weighting": "kde"}
    vectors = [corpus(seed)[0] for seed in (0, 1)]
    sides = [Documents(code, code) for code in ("de", "en")]
    estimators = DocumentAligner(debias=2, **options).fit(sides, vectors)
    for lawdr, array in zip(estimators, vectors, strict=True):
        assert lawdr.settings == Lawdr(rank=2, **options).settings
        expected = Lawdr(rank=2, **options).fit(array).transform(array, [0, 50, 200])
        np.testing.assert_array_equal(lawdr.transform(array, [0, 50, 200]), expected)


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


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "file"
    fitted({"rank": 3}).save(path)
    altered(path, lambda tensors, facts: tensors.pop("1.components"))
    with pytest.raises(ValueError, match="file: not a file of xling align --save-debias.*tensors"):
        FittedPair.load(path)
    fitted({"rank": 3}).save(path)
    altered(path, lambda tensors, facts: facts.pop())
    with pytest.raises(ValueError, match="two estimators of one dim"):
        FittedPair.load(path)
    fitted({"rank": 3}).estimators[0].save(path)
    with pytest.raises(ValueError, match="it holds 'xling_jax.lawdr/1'"):
        FittedPair.load(path)
