"""Published encoders given where a model is expected: converted once, into the cache."""

import json
import logging
import os
import shutil
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import xling_jax
from xling_jax.cli.main import main
from xling_jax.config import load
from xling_jax.encode.model_directory import find_model_directory, load_model
from xling_jax.formats.files import read_origin
from xling_jax.options import OptionError

hub = pytest.importorskip("huggingface_hub")
pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

from tests.formats import huggingface_reference as reference  # noqa: E402


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/xling_jax/models"


@pytest.fixture(scope="module")
def directories(published, tmp_path_factory):
    """A directory of each library, by the --from that reads it."""
    top = tmp_path_factory.mktemp("directories")
    reference.save_sentence_transformer(top / "st", published("bert"), "mean", True)
    reference.save_model2vec(top / "m2v", normalize=True)
    return {
        "huggingface": published("distilbert"),
        "sentence-transformers": top / "st",
        "model2vec": top / "m2v",
    }


@pytest.mark.parametrize("kind", ["huggingface", "sentence-transformers", "model2vec"])
def test_a_directory_is_converted_once_and_again_when_it_changes(
    directories, cache, tmp_path, caplog, kind
):
    source = directories[kind]
    caplog.set_level(logging.INFO, "xling_jax")
    vectors = xling_jax.load(source).encode(reference.TEXTS)
    (line,) = [r.getMessage() for r in caplog.records if "converted" in r.getMessage()]
    copy = find_model_directory(source)
    assert line == f"{source}: converted as --from {kind} into {copy}" and copy.name == source.name
    assert main(["convert", str(source), "--output", str(tmp_path / "m")]) == 0
    np.testing.assert_array_equal(vectors, xling_jax.load(tmp_path / "m").encode(reference.TEXTS))
    assert len(list(cache.iterdir())) == 1
    os.utime(source / "tokenizer.json")
    xling_jax.load(source)
    assert len(list(cache.iterdir())) == 2


def test_every_command_takes_one_in_a_bare_interpreter(directories, cache, tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(reference.TEXTS) + "\n")
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache.parents[1])}
    words = [sys.executable, "-m", "xling_jax.cli.main", "embed", "--model"]
    words += [directories["sentence-transformers"], "--input", "t.txt", "--output", "v.npy"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "converted as --from sentence-transformers into" in done.stderr
    found = xling_jax.load(directories["sentence-transformers"]).encode(reference.TEXTS)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), found, atol=1e-6)


def test_the_hub_is_read_from_its_cache(directories, cache, tmp_path, monkeypatch):
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OptionError, match="hf:org/none: ") as error:
        xling_jax.load("hf:org/none")
    assert "\n" not in str(error.value)
    repository, commit = tmp_path / "hub/models--org--name", "a" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text(commit)
    (repository / "snapshots").mkdir()
    (repository / "snapshots" / commit).symlink_to(directories["sentence-transformers"])
    encoder = xling_jax.load("hf:org/name")
    assert encoder.dim == 16
    # What we uploaded ourselves is there as it was saved.
    encoder.save(tmp_path / "own")
    (repository / "snapshots" / commit).unlink()
    (repository / "snapshots" / commit).symlink_to(tmp_path / "own")
    assert xling_jax.load("hf:org/name@main").fingerprint == encoder.fingerprint


def test_of_the_hub_pickles_are_fetched_where_there_is_nothing_else(
    directories, cache, tmp_path, monkeypatch
):
    import torch

    repository = shutil.copytree(directories["sentence-transformers"], tmp_path / "repository")
    for path in repository.glob("*_Dense/model.safetensors"):
        tensors = safetensors.numpy.load_file(path)
        tensors = {name: torch.from_numpy(value) for name, value in tensors.items()}
        torch.save(tensors, path.with_name("pytorch_model.bin"))
        path.unlink()
    (repository / "pytorch_model.bin").write_bytes(b"large")

    def download(name, revision, ignore_patterns):
        files = [str(p.relative_to(repository)) for p in repository.rglob("*") if p.is_file()]
        for file in hub.utils.filter_repo_objects(files, ignore_patterns=ignore_patterns):
            (tmp_path / "snapshot" / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(repository / file, tmp_path / "snapshot" / file)
        return str(tmp_path / "snapshot")

    monkeypatch.setattr(hub, "snapshot_download", download)
    found = xling_jax.load("hf:org/name").encode(reference.TEXTS)
    expected = xling_jax.load(directories["sentence-transformers"]).encode(reference.TEXTS)
    np.testing.assert_array_equal(found, expected)
    assert not (tmp_path / "snapshot/pytorch_model.bin").exists()


def test_an_error_of_the_hub_is_told_to_its_end(cache, monkeypatch):
    def download(*_, **__):
        raise FileNotFoundError("Got: ConnectError\n" + 20 * "No snapshot. " + "Please try again.")

    monkeypatch.setattr(hub, "snapshot_download", download)
    with pytest.raises(OptionError, match="^hf:org/name: Got: ConnectError No .* try again.$"):
        xling_jax.load("hf:org/name")


def test_other_paths_are_refused_in_one_line(tmp_path, cache, directories):
    with pytest.raises(OptionError, match="a model must be a name or a path; found None"):
        xling_jax.load(None)
    (tmp_path / "text.txt").write_text("no model")
    for path in (tmp_path, tmp_path / "text.txt", tmp_path / "missing"):
        with pytest.raises(OptionError, match="use a model directory, a workdir of xling train, a"):
            xling_jax.load(path)
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.json").write_text(json.dumps(load("t_laser:smoke").config))
    with pytest.raises(OptionError, match="not exported an encoder yet: run xling train again"):
        xling_jax.load(run)
    for wrong, kind in (("model2vec", "huggingface"), ("laser", "model2vec")):
        words = ["convert", "--from", wrong, str(directories[kind])]
        assert main([*words, "--output", str(tmp_path / "m")]) == 2


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("huggingface", "mixed"), ("sentence-transformers", "float16"), ("model2vec", "bfloat16")],
)
def test_half_precision_without_jax(directories, tmp_path, kind, dtype):
    """The process of the tests has JAX, which gives NumPy the name bfloat16."""
    source = shutil.copytree(directories[kind], tmp_path / "source")
    half = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    for path in source.rglob("*.safetensors"):
        tensors = safetensors.numpy.load_file(path)
        for number, (name, value) in enumerate(sorted(tensors.items())):
            if value.dtype == np.float32 and (dtype != "mixed" or number % 2):
                tensors[name] = value.astype(ml_dtypes.bfloat16 if dtype == "mixed" else half)
        safetensors.numpy.save_file(tensors, path, {"format": "pt"})
    if kind == "huggingface":  # sharded
        tensors = safetensors.numpy.load_file(source / "model.safetensors")
        names = sorted(tensors)
        shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
        for file, members in shards.items():
            safetensors.numpy.save_file({n: tensors[n] for n in members}, source / file)
        (source / "model.safetensors").unlink()
        index = {n: file for file, members in shards.items() for n in members}
        (source / "model.safetensors.index.json").write_text("{}")
        reference.edit_json(source / "model.safetensors.index.json", weight_map=index)
    program = (
        "import sys; from xling_jax.cli.main import main; "
        f"code = main(['convert', 'source', '--from', '{kind}', '--output', 'm']); "
        "assert not {'jax', 'flax'} & {*sys.modules}; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert main(["convert", str(directories[kind]), "--output", str(tmp_path / "whole")]) == 0
    one, other = (
        xling_jax.load(tmp_path / name).encode(["la mo", "ti"]) for name in ("m", "whole")
    )
    assert 0 < np.abs(one - other).max() < 0.1


def test_float8_and_what_is_not_finite_are_refused(directories, tmp_path, cache):
    source = shutil.copytree(directories["huggingface"], tmp_path / "source")
    path, name = source / "model.safetensors", "transformer.layer.0.ffn.lin1.bias"
    tensors = safetensors.numpy.load_file(path)
    for value in (np.nan, np.inf):
        changed = {**tensors, name: np.full(40, value, np.float32)}
        safetensors.numpy.save_file(changed, path)
        with pytest.raises(ValueError, match=f"{name}: holds values that are not finite"):
            xling_jax.load(source)
    safetensors.numpy.save_file({**tensors, name: np.zeros(40, np.uint8)}, path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"U8"', b'"F8_E4M3"').replace(content[:8], _size(content), 1))
    message = "found F8_E4M3, as in a quantized model; take the"
    with pytest.raises(ValueError, match=message) as error:
        xling_jax.load(source)
    assert "\n" not in str(error.value)


def _size(content):
    """The size of the header with a longer name of a dtype."""
    size = int.from_bytes(content[:8], "little") + len("F8_E4M3") - len("U8")
    return size.to_bytes(8, "little")


@pytest.mark.parametrize("pattern", ["_orig_mod.module.{}", "0.auto_model._orig_mod.bert.{}"])
def test_names_inside_of_wrappers(published, tmp_path, cache, pattern):
    source = shutil.copytree(published("bert"), tmp_path / "source")
    path = source / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    inside = lambda name: name.replace("layer.0.", "layer.0._orig_mod.")
    wrapped = {pattern.format(inside(name)): value for name, value in tensors.items()}
    safetensors.numpy.save_file(wrapped, path)
    expected = xling_jax.load(published("bert")).encode(["la mo"])
    np.testing.assert_array_equal(xling_jax.load(source).encode(["la mo"]), expected)
    two = {f"{side}.{name}": value for side in ("query", "text") for name, value in tensors.items()}
    safetensors.numpy.save_file(two, path)
    with pytest.raises(ValueError, match="holds 2 transformers, before whose names stand query"):
        xling_jax.load(source)


@pytest.mark.parametrize("kind", ["sentence-transformers", "model2vec"])
def test_license_languages_and_origin_are_those_of_the_card(directories, tmp_path, kind):
    source = tmp_path / "models--org--name/snapshots" / ("b" * 40)
    shutil.copytree(directories[kind], source)
    (source / "README.md").write_text("---\nlanguage: [eng, x-no]\nlicense: mit\n---\n# name\n")
    assert main(["convert", str(source), "--output", str(tmp_path / "m")]) == 0
    words = ["export", "--to", kind, "--model", str(tmp_path / "m")]
    assert main([*words, "--output", str(tmp_path / "x")]) == 0
    config = load_model(tmp_path / "m").config
    assert (config["training"]["source"], config["languages"]) == ("org/name", ["en"])
    cards = ["m"] if kind == "model2vec" else ["m", "x"]
    for card in (hub.ModelCard.load(tmp_path / name / "README.md") for name in cards):
        assert (card.data.license, card.data.base_model) == ("mit", "org/name")
        assert card.data.language == ["en"] and "cross-lingual" not in card.data.tags
        assert "similar sentences get close vectors." in card.text and "transl" not in card.text
    for content in ("no header", "---\n: [\n---\n", "---\n- a\n---\n"):
        (source / "README.md").write_text(content)
        assert read_origin(source) == ({"source": "org/name"}, [])
