"""Pictures are drawn; projections keep what they should."""

import numpy as np
import pytest

from xling_jax.eval.results import Heatmap, Projection
from xling_jax.report import pictures


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


def test_pictures_are_png_files(tmp_path):
    rng = np.random.default_rng(0)
    embeddings = {code: rng.standard_normal((12, 4)) for code in ("en", "de", "zh")}
    pictures.draw(Projection("p", embeddings, "toy", {0: "one", 7: "七"}), tmp_path)
    pictures.draw(Heatmap("m", np.full((1, 2), np.nan), ["en"], ["de", "fr"], "t"), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"p.pca.png", "p.tsne.png", "m.png"}
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")


def test_wrong_sizes_of_pictures_are_refused(tmp_path):
    with pytest.raises(ValueError, match="shape of the names"):
        pictures.draw(Heatmap("m", np.eye(2), ["en"], ["de"], "t"), tmp_path)
    with pytest.raises(ValueError, match="row counts"):
        pictures.draw(Projection("p", {"a": np.eye(2), "b": np.eye(3)}, "t", {}), tmp_path)
    with pytest.raises(ValueError, match="method='umap' must be one of pca, tsne"):
        pictures.project(np.eye(3), "umap")
