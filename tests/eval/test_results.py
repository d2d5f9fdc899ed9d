"""Results: whole files, strict JSON, tables that can be read."""

import json

import numpy as np
import pytest

from xling_jax.eval import neighbors, results, retrieval
from xling_jax.report import pictures


def test_results_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "results.json"
    results.write_results(path, {"a": 1.5})
    with pytest.raises(ValueError, match="not JSON compliant"):
        results.write_results(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1.5}
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.json"]


def test_markdown_table_is_aligned_and_escaped():
    table = results.markdown_table(["a|b", "value"], [["x", "1.0"], ["long name", "12.5"]])
    assert table.splitlines() == [
        "| a\\|b      | value |",
        "| --------- | ----: |",
        "| x         |   1.0 |",
        "| long name |  12.5 |",
    ]


def test_retrieval_table_shows_every_direction():
    rng = np.random.default_rng(0)
    matrix = retrieval.retrieval_matrix({"en": np.eye(4), "de": rng.permutation(np.eye(4))})
    table = results.retrieval_table("toy", matrix, "cosine")
    share = f"{100 * matrix.mean('p_at_1'):.1f}"
    assert "## toy: retrieval by cosine, %" in table
    assert "| **en**" in table and table.count(share) >= 3
    json.dumps(matrix.to_dict(), allow_nan=False)


def test_sparse_matrices_become_a_list_of_pairs():
    nan = np.nan
    values = np.full((5, 5), nan)
    values[0, 1:], values[1:, 0] = [1, 0.5, 0.25, 1], [0, 0.75, 1, 1]
    counts = np.where(np.isfinite(values), 7, 0)
    matrix = retrieval.RetrievalMatrix(
        ("en", "de", "fr", "it", "es"), {"p_at_1": values}, counts, counts
    )
    table = results.retrieval_table("toy", matrix, "cosine")
    assert "| en-de |" in table and "| de-en |" not in table and "| en-it |" in table


def test_versions_name_python_and_numpy():
    assert {"python", "numpy"} <= set(results.versions())


def test_nearest_sentences_by_hand():
    places = {"sun": [1, 0], "ice": [0, 1], "Sonne": [0.9, 0.1], "Eis": [0.1, 0.9]}
    found = neighbors.nearest_sentences(
        lambda texts: np.array([places[text] for text in texts]),
        ["sun", "ice"],
        {"de": ["Eis", "Sonne"], "en": ["ice", "sun"]},
    )
    assert [(n.query, n.language, n.text) for n in found] == [
        (0, "de", "Sonne"),
        (0, "en", "sun"),
        (1, "de", "Eis"),
        (1, "en", "ice"),
    ]
    text = neighbors.format_neighbors(["sun", "ice"], found, width=18)
    assert text.splitlines()[:3] == ["sun", "  de   0.99  Sonne", "  en   1.00  sun"]
    assert max(map(len, text.splitlines())) <= 18


def test_pca_keeps_distances_of_points_in_a_plane_and_repeats():
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 2 * np.pi, 20)
    vectors = np.zeros((20, 5))
    vectors[:, 1], vectors[:, 3] = np.cos(angles), np.sin(angles)
    points = pictures.project(vectors)
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    expected = np.linalg.norm(vectors[:, None] - vectors, axis=-1)
    np.testing.assert_allclose(distances, expected, atol=1e-6)
    np.testing.assert_array_equal(points, pictures.project(vectors))


@pytest.mark.parametrize("method", pictures.PROJECTIONS)
def test_pictures_are_png_files(tmp_path, method):
    rng = np.random.default_rng(0)
    embeddings = {code: rng.standard_normal((12, 4)) for code in ("en", "de", "zh")}
    pictures.draw_projection(
        tmp_path / "p.png", embeddings, title="toy", method=method, examples={0: "one", 7: "七"}
    )
    pictures.draw_matrix(
        tmp_path / "m.png", np.full((1, 2), np.nan), ["en"], ["de", "fr"], title="t"
    )
    for name in ("p.png", "m.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_wrong_sizes_of_pictures_are_refused(tmp_path):
    with pytest.raises(ValueError, match="shape of the names"):
        pictures.draw_matrix(tmp_path / "m.png", np.eye(2), ["en"], ["de"], title="t")
    with pytest.raises(ValueError, match="row counts"):
        pictures.draw_projection(tmp_path / "p.png", {"a": np.eye(2), "b": np.eye(3)}, title="t")
    with pytest.raises(ValueError, match="one of pca, tsne"):
        pictures.project(np.eye(3), "umap")
