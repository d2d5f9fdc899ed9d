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


@pytest.mark.parametrize("feature_width", [0, 6])
def test_more_dimensions_of_tokens_rotated_and_narrowed(
    feature_width, reshape, vocab, sentences, text, tmp_path, capsys
):
    arguments = ARGUMENTS | {"pad_id": vocab.pad_id, "feature_width": feature_width}
    params = random_static(NumpyStatic(vocab.size, **arguments), vocab, sentences)
    save(tmp_path / "m", vocab, "static", arguments, params)
    more = np.random.default_rng(0).normal(size=(vocab.size, 3)).astype(np.float32)
    np.save(tmp_path / "more.npy", more)
    join = ("--model", tmp_path / "m", "--token-vectors", tmp_path / "more.npy", "--output")
    reshape(*join, tmp_path / "wide")
    wide = vectors(tmp_path / "wide", sentences)
    np.testing.assert_allclose(wide[:, :16], vectors(tmp_path / "m", sentences), atol=1e-6)
    tokens = [ids[:25] for ids in vocab.encode(sentences)]  # the longest input
    means = [more[ids].mean(0) if len(ids) else np.zeros(3) for ids in tokens]
    np.testing.assert_allclose(wide[:, 16:], means, atol=1e-6)

    reshape(*join, tmp_path / "rotated", "--principal-axes", text)
    rotated = vectors(tmp_path / "rotated", sentences)
    np.testing.assert_allclose(rotated @ rotated.T, wide @ wide.T, rtol=1e-3, atol=1e-3)
    unit = xling_jax.load(tmp_path / "rotated").encode(sentences, normalize=True)
    for block in np.split(np.square(unit).sum(0), [feature_width]):  # features stay in theirs
        assert (np.diff(block) < 0.01).all()
    reshape(*join, tmp_path / "few", "--principal-axes", text, "--truncate-dim", 12)
    found = vectors(tmp_path / "few", sentences)
    np.testing.assert_allclose(found, rotated[:, :12], atol=1e-5)

    reshape("--model", tmp_path / "m", "--feature-dim", 4, "--output", tmp_path / "narrow")
    params["feature_embedding"][:, 4:] = 0
    save(tmp_path / "zeros", vocab, "static", arguments, params)
    expected = vectors(tmp_path / "zeros", sentences)
    np.testing.assert_allclose(vectors(tmp_path / "narrow", sentences), expected, atol=1e-5)

    np.save(tmp_path / "more.npy", more[1:])
    with pytest.raises(SystemExit):
        reshape(*join, tmp_path / "refused")
    assert f"of shape [{vocab.size}, any]" in capsys.readouterr().err
