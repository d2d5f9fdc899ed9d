"""lab/mini/reshape.py: static encoders averaged, widened, rotated, narrowed and in codes."""

import numpy as np
import pytest

import xling_jax
from tests.encode.random_models import random_static
from tests.encode.test_static import save
from tests.lab.scripts import script
from xling_jax.encode.model_directory import load_model
from xling_jax.models.numpy_static import NumpyStatic

ARGUMENTS = {"width": 16, "features": ["pairs"], "feature_rows": 64}


@pytest.fixture(scope="module")
def reshape():
    with script("mini/reshape.py") as module:
        yield lambda *words: module.main([*map(str, words)])


@pytest.fixture
def text(sentences, tmp_path):
    (tmp_path / "text").write_text("\n".join(sentences), encoding="utf-8")
    return tmp_path / "text"


def vectors(directory, texts):
    return xling_jax.load(directory).encode(texts)


def test_the_mean_of_runs_in_its_own_axes(reshape, vocab, sentences, text, tmp_path, capsys):
    arguments = ARGUMENTS | {"pad_id": vocab.pad_id}
    static = NumpyStatic(vocab.size, **arguments)
    first = random_static(static, vocab, sentences)
    second = {name: value[::-1] * 2 for name, value in first.items()}
    second["feature_keys"] = first["feature_keys"]
    save(tmp_path / "a", vocab, "static", arguments, first)
    save(tmp_path / "b", vocab, "static", arguments, second)
    small, stored = static.quantized(second, "int4")  # can be averaged as well
    save(tmp_path / "c", vocab, "static", arguments | {"storage": "int4"}, stored)
    average = ("--model", tmp_path / "a", "--average", tmp_path / "b", tmp_path / "c")
    reshape(*average, "--output", tmp_path / "mean")
    expected = np.mean([vectors(tmp_path / name, sentences) for name in "abc"], axis=0)
    np.testing.assert_allclose(vectors(tmp_path / "mean", sentences), expected, atol=1e-5)
    assert load_model(tmp_path / "mean").config["training"]["averaged_runs"] == 3

    reshape(*average, "--principal-axes", text, "--output", tmp_path / "rotated")
    found = vectors(tmp_path / "rotated", sentences)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, rtol=1e-3, atol=1e-3)
    scaled = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
    products = scaled.T @ scaled
    assert np.abs(products - np.diag(np.diag(products))).max() < 1e-3

    second["feature_keys"] = np.where(np.arange(64) == 0, 0, first["feature_keys"])
    save(tmp_path / "d", vocab, "static", arguments, second)
    halves = {n: value[:32] if n.startswith("feature") else value for n, value in first.items()}
    save(tmp_path / "e", vocab, "static", arguments | {"feature_rows": 32}, halves)
    for name, problem in {"d": "the same features", "e": "must be of the form and"}.items():
        with pytest.raises(SystemExit):
            reshape(*average, tmp_path / name, "--output", tmp_path / "refused")
        assert problem in capsys.readouterr().err
    assert not (tmp_path / "refused").exists()
