"""LAWDR as a whole: the equations in float64, invariances, files, degenerate and bad input."""

import json
import pickle

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from sklearn.decomposition import PCA

from xling_jax.align import rows
from xling_jax.documents import lawdr as module
from xling_jax.documents.lawdr import Lawdr, document_vectors

SETTINGS = [
    {"rank": 3},
    {"rank": 3, "center": True},
    {"rank": 3, "weighting": "none"},
    {"rank": 3, "center": True, "weighting": "none"},
    {"rank": None},
    {"rank": None, "weighting": "none"},
    {"rank": 3, "density_dim": 5},
    {"rank": 2, "bandwidth": 1.2, "density_dim": 4, "seed": 5},
]


def corpus(seed=0, n=200, dim=24):
    """Clustered sentence vectors with a language component, and documents, some empty."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((6, dim))
    vectors = centers[rng.integers(0, 6, n)] + 0.4 * rng.standard_normal((n, dim)) + 2
    cuts = np.sort(rng.integers(0, n + 1, 38))
    offsets = np.concatenate([[0, 0], cuts, [n, n]])
    return vectors.astype(np.float32), offsets


def reference(vectors, offsets, settings, bandwidth):
    """The paper's equations, step by step, in float64."""
    vectors = vectors.astype(np.float64)
    rank, center = settings["rank"], settings.get("center", False)
    debiased = vectors
    if rank is not None:
        mean = vectors.mean(axis=0) if center else 0
        u = np.linalg.svd(vectors - mean)[2][:rank].T
        debiased = (vectors - mean) - (vectors - mean) @ u @ u.T
    if settings.get("weighting") == "none":
        parts = [debiased[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
        return np.array([p.mean(axis=0) if len(p) else 0 * vectors[0] for p in parts])
    points = PCA(settings.get("density_dim", 16), svd_solver="full").fit_transform(vectors)
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    density = (distances <= bandwidth).sum(axis=1)
    half = density.mean() / 2
    weighted = (half / (half + density))[:, None] * debiased
    return np.array(
        [weighted[a:b].sum(axis=0) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    )


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_documents_equal_the_equations(settings):
    vectors, offsets = corpus()
    lawdr = Lawdr(**settings).fit(vectors)
    documents = lawdr.transform(vectors, offsets)
    bandwidth = lawdr.density.bandwidth if lawdr.density else None
    assert settings.get("bandwidth", bandwidth) == bandwidth
    expected = reference(vectors, offsets, settings, bandwidth)
    assert documents.dtype == np.float32
    np.testing.assert_allclose(documents, expected, atol=2e-5)
    empty = np.diff(offsets) == 0
    assert empty.sum() >= 2 and not documents[empty].any()
    if lawdr.components is not None:
        np.testing.assert_allclose(documents @ lawdr.components, 0, atol=2e-5)


def test_weights_are_a_third_at_the_mean_density():
    vectors, _ = corpus()
    lawdr = Lawdr(rank=3).fit(vectors)
    weights, counts = lawdr.weights(vectors), lawdr.density.fitted_counts
    assert ((weights > 0) & (weights <= 1)).all()
    np.testing.assert_allclose(weights, 1 / (1 + 2 * counts / counts.mean()), rtol=1e-12)
    assert len(np.unique(counts)) > 10
    # Far from all that was fitted there is no density.
    assert Lawdr(rank=3).fit(vectors).weights(vectors[:1] + 1000).tolist() == [1]
    assert Lawdr(weighting="none", rank=3).fit(vectors).weights(vectors[:4]).tolist() == [1] * 4


def test_scaling_all_vectors_scales_the_documents():
    vectors, offsets = corpus()
    documents = Lawdr(rank=3).fit(vectors).transform(vectors, offsets)
    scaled = Lawdr(rank=3).fit(64 * vectors).transform(64 * vectors, offsets)
    np.testing.assert_allclose(scaled, 64 * documents, rtol=1e-4, atol=1e-3)


def test_documents_do_not_depend_on_each_other():
    vectors, offsets = corpus()
    lawdr = Lawdr(rank=3).fit(vectors)
    documents = lawdr.transform(vectors, offsets)
    number = int(np.argmax(np.diff(offsets)))
    alone = vectors[offsets[number] : offsets[number + 1]]
    found = lawdr.transform(alone, np.array([0, len(alone)]))
    np.testing.assert_allclose(found[0], documents[number], atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_mapped_equals_in_memory_and_blocks_change_little(tmp_path, monkeypatch, dtype):
    vectors, offsets = corpus()
    vectors = vectors.astype(dtype)
    np.save(tmp_path / "v.npy", vectors)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    expected = Lawdr(rank=3).fit(vectors).transform(vectors, offsets)
    found = Lawdr(rank=3).fit(mapped).transform(mapped, offsets)
    np.testing.assert_array_equal(found, expected)
    monkeypatch.setattr(rows, "BLOCK_ROWS", 7)
    monkeypatch.setattr(module, "BLOCK_ROWS", 7)
    blocks = Lawdr(rank=3).fit(mapped).transform(mapped, offsets)
    np.testing.assert_allclose(blocks, expected, atol=1e-4)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_saved_and_loaded_gives_the_same_bits(tmp_path, settings):
    vectors, offsets = corpus()
    others, other_offsets = corpus(seed=1, n=90)
    lawdr = Lawdr(**settings).fit(vectors)
    lawdr.save(tmp_path / "en.lawdr")
    loaded = Lawdr.load(tmp_path / "en.lawdr")
    assert loaded.options == lawdr.options and loaded.num_sentences == 200
    for given, cuts in ((vectors, offsets), (others, other_offsets)):
        np.testing.assert_array_equal(loaded.transform(given, cuts), lawdr.transform(given, cuts))
        np.testing.assert_array_equal(loaded.weights(given), lawdr.weights(given))
    assert [path.name for path in tmp_path.iterdir()] == ["en.lawdr"]


def test_size_of_the_file_is_as_promised(tmp_path):
    vectors, _ = corpus(n=1000)
    Lawdr(rank=4).fit(vectors).save(tmp_path / "file")
    dim = vectors.shape[1]
    tensors = 4 * dim * 4 + 72 * len(vectors) + 4 * dim * 17
    assert tensors < (tmp_path / "file").stat().st_size < tensors + 2000


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    vectors, _ = corpus()
    path = tmp_path / "file"
    Lawdr(rank=2).fit(vectors).save(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        Lawdr(rank=3).fit(vectors).save(path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def altered(path, change):
    """Rewrites a saved file with its tensors and facts changed."""
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    tensors, facts = load_file(path), json.loads(metadata["lawdr"])
    change(tensors, facts)
    save_file(tensors, path, {**metadata, "lawdr": json.dumps(facts)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, facts: tensors.pop("components"), "tensors must be"),
        (lambda tensors, facts: tensors.update(extra=np.ones(1)), "tensors must be"),
        (lambda tensors, facts: tensors.update(components=np.ones((24, 2), "f4")), "components"),
        (lambda tensors, facts: tensors.update({"density.mean": np.ones(24)}), "float64"),
        (lambda tensors, facts: facts["settings"].update(rank=-1), "rank must be"),
        (lambda tensors, facts: facts["settings"].update(color="red"), "color"),
        (lambda tensors, facts: facts["settings"].update(density_on="debiased"), "fit it again"),
        (lambda tensors, facts: facts.pop("dim"), "dim"),
        (lambda tensors, facts: facts["density"].update(bandwidth="wide"), "wide"),
    ],
)
def test_files_with_other_content_are_refused(tmp_path, change, message):
    path = tmp_path / "file"
    Lawdr(rank=3).fit(corpus()[0]).save(path)
    altered(path, change)
    with pytest.raises(ValueError, match=f"file: not a LAWDR estimator.*{message}"):
        Lawdr.load(path)


def test_files_of_0_3_are_read(tmp_path):
    vectors, offsets = corpus()
    lawdr = Lawdr(rank=3).fit(vectors)
    lawdr.save(tmp_path / "file")
    altered(tmp_path / "file", lambda _, facts: facts["settings"].update(density_on="raw"))
    found = Lawdr.load(tmp_path / "file").transform(vectors, offsets)
    np.testing.assert_array_equal(found, lawdr.transform(vectors, offsets))


def test_files_of_other_kinds_are_refused(tmp_path):
    path = tmp_path / "file"
    save_file({"components": np.ones((2, 2))}, path)
    with pytest.raises(ValueError, match="something else"):
        Lawdr.load(path)
    path.write_bytes(pickle.dumps({"rank": 3}))
    with pytest.raises(ValueError, match="not a LAWDR estimator"):
        Lawdr.load(path)
    with pytest.raises(FileNotFoundError, match="nothing"):
        Lawdr.load(tmp_path / "nothing")


def test_one_sentence_and_one_document():
    vectors = np.arange(6, dtype=np.float32)[None]
    lawdr = Lawdr(rank=None).fit(vectors)
    np.testing.assert_allclose(lawdr.transform(vectors, [0, 1]), vectors / 3)
    with pytest.raises(ValueError, match="removing that many leaves nothing"):
        Lawdr(rank=1).fit(vectors)
    vectors, _ = corpus()
    assert Lawdr(rank=3).fit(vectors).transform(vectors, [0, 200]).shape == (1, 24)
    vectors, _ = corpus(n=4)  # fewer than folds and axes
    documents = Lawdr(rank=2).fit(vectors).transform(vectors, [0, 1, 4])
    assert np.isfinite(documents).all() and documents.any(axis=1).all()


def test_identical_sentences_weigh_alike():
    vectors = np.full((30, 8), 0.3, np.float32)
    lawdr = Lawdr(rank=None).fit(vectors)
    np.testing.assert_allclose(lawdr.weights(vectors), 1 / 3)
    np.testing.assert_allclose(lawdr.transform(vectors, [0, 30]), 30 * vectors[:1] / 3, rtol=1e-6)


def test_transform_before_fit_is_refused():
    for use in (lambda x: x.transform(np.eye(3), [0, 3]), lambda x: x.save("nowhere")):
        with pytest.raises(ValueError, match="not fitted"):
            use(Lawdr())


def test_a_fit_that_fails_changes_nothing():
    vectors, offsets = corpus()
    lawdr = Lawdr(rank=3).fit(vectors)
    expected = lawdr.transform(vectors, offsets)
    with pytest.raises(ValueError, match="removing that many"):
        lawdr.fit(vectors[:2])
    np.testing.assert_array_equal(lawdr.transform(vectors, offsets), expected)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.empty((0, 4)), "at least one sentence"),
        (np.array([[1.0, 2], [np.nan, 1]]), r"vectors\[1\] must be finite"),
        (np.ones(4), "shape"),
    ],
)
def test_bad_vectors_are_refused(vectors, message):
    with pytest.raises(ValueError, match=message):
        Lawdr(rank=1).fit(vectors)


def test_vectors_of_another_encoder_are_refused():
    vectors, _ = corpus()
    lawdr = Lawdr(rank=3).fit(vectors)
    with pytest.raises(ValueError, match="dim 24.*got 23.*same encoder"):
        lawdr.transform(vectors[:, 1:], [0, 200])
    mean = Lawdr(rank=None, weighting="none").fit(vectors)
    with pytest.raises(ValueError, match="dim 24.*got 23.*same encoder"):
        mean.transform(vectors[:, 1:], [0, 200])
    with pytest.raises(ValueError, match="number of sentences, 200"):
        lawdr.transform(vectors, [0, 199])
    broken = vectors.copy()
    broken[7] = np.inf
    with pytest.raises(ValueError, match=r"vectors\[7\]"):
        lawdr.transform(broken, [0, 200])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "rank must be at least 1, or None"),
        ({"rank": None, "center": True}, "center=True is part of debiasing"),
        ({"weighting": "idf"}, "weighting='idf' must be one of kde, none"),
        ({"density_dim": 0}, "density_dim must be at least 1"),
        ({"bandwidth": 0.0}, "bandwidth must be positive, or None"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Lawdr(**settings)


def loop(vectors, offsets, weights):
    documents = np.zeros((len(offsets) - 1, vectors.shape[1]))
    for document, (start, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        for sentence in range(start, end):
            share = 1 / (end - start) if weights is None else weights[sentence]
            documents[document] += share * vectors[sentence].astype(np.float64)
    return documents


@pytest.mark.parametrize("block", [1, 3, 8, 1000])
@pytest.mark.parametrize("weighted", [False, True])
def test_documents_equal_a_loop_for_every_block(monkeypatch, block, weighted):
    monkeypatch.setattr(rows, "BLOCK_ROWS", block)
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((40, 5)).astype(np.float32)
    # Empty documents at the start, at the end, two in a row; one of a sentence, one of many.
    offsets = np.array([0, 0, 1, 3, 3, 3, 8, 30, 32, 40, 40])
    weights = rng.random(40) if weighted else None
    documents = document_vectors(vectors, offsets, weights)
    assert documents.dtype == np.float32
    np.testing.assert_allclose(documents, loop(vectors, offsets, weights), atol=1e-6)
    assert not documents[[0, 3, 4, 9]].any()


def test_documents_by_hand():
    vectors = np.array([[1.0, 2], [3, 4]])
    assert document_vectors(vectors, [0, 2], np.array([1, 0.5])).tolist() == [[2.5, 4]]  # a sum
    assert document_vectors(vectors, [0, 2]).tolist() == [[2, 3]]
    vectors = np.array([[2**25], [1], [-(2**25)]], np.float32)  # sums are of double precision
    assert document_vectors(vectors, [0, 3], np.ones(3)).tolist() == [[1]]
    assert document_vectors(np.empty((0, 3)), np.array([0])).shape == (0, 3)
    assert document_vectors(np.empty((0, 3)), np.array([0, 0, 0])).tolist() == [[0] * 3] * 2


@pytest.mark.parametrize(
    ("offsets", "weights", "message"),
    [
        ([0, 2], None, "number of sentences, 3; got 0 to 2"),
        ([1, 3], None, "got 1 to 3"),
        ([0, 2, 1, 3], None, "decreasing"),
        ([0.0, 3.0], None, "integers"),
        ([], None, "integers of shape"),
        ([[0, 3]], None, "integers of shape"),
        ([0, 3], [1, 1], r"weights must have shape \(3,\); got \(2,\)"),
    ],
)
def test_bad_offsets_and_weights_are_refused(offsets, weights, message):
    with pytest.raises(ValueError, match=message):
        document_vectors(np.ones((3, 2)), offsets, weights)
