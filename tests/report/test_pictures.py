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
    projection = Projection("p", embeddings, "toy")
    empty = Heatmap("m", np.full((1, 2), np.nan), ["en"], ["de", "fr"], "t")
    pictures.draw_all([projection, empty], tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"p.pca.png", "p.tsne.png", "m.png"}
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")


def test_matrices_drawn_together_have_one_color_scale(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(pictures, "_save", lambda figure, path: drawn.append(figure))
    matrix = lambda value: Heatmap("m", np.full((1, 1), value), ["en"], ["de"], "t")
    pictures.draw_all([matrix(0.95), matrix(0.37), matrix(np.nan)], tmp_path)
    assert [figure.axes[0].collections[0].get_clim() for figure in drawn] == [(30, 100)] * 3


def test_wrong_sizes_of_pictures_are_refused(tmp_path):
    with pytest.raises(ValueError, match="shape of the names"):
        pictures.draw_all([Heatmap("m", np.eye(2), ["en"], ["de"], "t")], tmp_path)
    with pytest.raises(ValueError, match="row counts"):
        wrong = Projection("p", {"a": np.eye(2), "b": np.eye(3)}, "t")
        pictures.draw_all([wrong], tmp_path)
