import json
import re
import subprocess
import sys

import flax.linen
import jax
import numpy as np
import pytest

import xling_jax
from tests.formats.conftest import TEXTS, save_again
from xling_jax.cli.main import main
from xling_jax.encode.model_directory import load_model
from xling_jax.text.huggingface_vocab import HuggingFaceText, HuggingFaceVocab
from xling_jax.text.vocab import Vocab

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("jax2onnx")

from xling_jax.formats import onnx_file  # noqa: E402


def run_script(directory, sentences):
    """The vectors of the script in the model card, run by itself, and the modules it loads."""
    (script,) = re.findall("```python\n(.*?)```", (directory / "README.md").read_text(), re.DOTALL)
    assert len(script.splitlines()) <= 14
    script = re.sub(r"(?m)^sentences = .*", lambda _: f"sentences = {sentences!r}", script)
    script += "import sys; np.save('vectors.npy', vectors); print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=directory, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return np.load(directory / "vectors.npy"), {name.split(".")[0] for name in run.stdout.split()}


def vectors_of(directory, sentences):
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokens = np.array([row.ids for row in tokenizer.encode_batch(sentences)], np.int32)
    tokens = tokens.reshape(len(sentences), -1)  # also without any
    session = onnxruntime.InferenceSession(directory / "model.onnx")
    return session.run(None, {"tokens": tokens})[0]


@pytest.fixture(scope="module")
def exported(models, tmp_path_factory):
    """A function from a name of `ENCODERS` to its model directory, its export and its facts."""
    top, facts = tmp_path_factory.mktemp("onnx"), {}

    def export(name):
        if name not in facts:
            facts[name] = onnx_file.export_onnx(models(name), top / name)
        return models(name), top / name, facts[name]

    return export


@pytest.mark.parametrize(
    "name",
    [
        *("dual_pre", "mean", "laser_mixed", "static_features", "static_narrow"),
        pytest.param("tlaser", marks=pytest.mark.exhaustive),
        pytest.param("dual_attention", marks=pytest.mark.exhaustive),
    ],
)
def test_vectors_are_the_same_in_batches_of_any_size(exported, name):
    directory, out, facts = exported(name)
    ours = xling_jax.load(directory).encode(TEXTS)
    assert np.ptp(ours) > 0.1 and facts["largest_difference"] < 1e-5
    np.testing.assert_allclose(vectors_of(out, TEXTS), ours, atol=1e-5)
    for part in (slice(0, 3), slice(7, 8), slice(7, 9), slice(11, 13)):
        found = vectors_of(out, TEXTS[part])
        np.testing.assert_allclose(found, ours[part], atol=1e-5)
    model = onnx.load(out / "model.onnx")
    onnx.checker.check_model(model)
    sizes = [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert sizes == ["batch", "length"]


def test_few_bits_stay_few(tmp_path, models):
    small = tmp_path / "small"
    words = ["export", "--model", str(models("static_features")), "--storage", "mixed"]
    assert main([*words, "--output", str(small)]) == 0
    facts = onnx_file.export_onnx(small, tmp_path / "out")
    assert facts["largest_difference"] < 1e-5
    ours = xling_jax.load(small).encode(TEXTS)
    np.testing.assert_allclose(vectors_of(tmp_path / "out", TEXTS), ours, atol=1e-5)
    graph = onnx.load(tmp_path / "out" / "model.onnx").graph
    stored = {tuple(constant.dims): constant.data_type for constant in graph.initializer}
    static = load_model(small).static
    assert stored[static.feature_rows, static.feature_dims] == onnx.TensorProto.INT8


@pytest.mark.parametrize("name", ["mini", "mean"])
def test_the_script_of_the_card_runs_without_jax(tmp_path, models, name):
    given = name if name == "mini" else str(models(name))
    assert main(["export", "--to", "onnx", "--model", given, "--output", str(tmp_path / "o")]) == 0
    found, loaded = run_script(tmp_path / "o", TEXTS)
    np.testing.assert_allclose(found, xling_jax.load(given).encode(TEXTS), atol=1e-5)
    assert not loaded & {"jax", "flax", "torch", "xling_jax"}
    assert {"numpy", "onnxruntime", "tokenizers"} <= loaded


def xlm_vocab(pad_id):
    """Letters and last letters of words; texts keep their end."""
    pieces = [*"abcdefghijklmnopqrstuvwxyz"]
    pieces += [f"{piece}</w>" for piece in pieces]
    pieces[pad_id:pad_id] = ["<pad>"]
    ids = {piece: number for number, piece in enumerate([*pieces, "<unk>"])}
    text = HuggingFaceText(None, None, pad_id, truncation_side="left")
    return HuggingFaceVocab({"vocab.json": json.dumps(ids).encode(), "merges.txt": b""}, text)


@pytest.mark.parametrize("kind", [pytest.param("moses", marks=pytest.mark.exhaustive), "xlm"])
def test_the_script_reads_vocabularies_of_other_kinds_without_jax(tmp_path, models, kind):
    spec = load_model(models("static"))
    xlm, moses = xlm_vocab(spec.vocab.pad_id), Vocab(spec.vocab.model_bytes, moses=True)
    settings = {"prompts": {"query": "the dog "}, "default_prompt": "query", "truncate_dim": 5}
    vocab = {"moses": moses, "xlm": xlm}[kind]
    save_again(models("static"), tmp_path / "m", vocab=vocab, **settings)
    onnx_file.export_onnx(tmp_path / "m", tmp_path / "o")
    found, loaded = run_script(tmp_path / "o", TEXTS)
    ours = xling_jax.load(tmp_path / "m").encode(TEXTS)
    assert found.shape == (len(TEXTS), 5)
    np.testing.assert_allclose(found, ours, atol=1e-5)
    assert not loaded & {"jax", "flax", "torch"}


def test_a_graph_that_computes_something_else_is_not_written(tmp_path, models, monkeypatch):
    right = onnx_file._graph

    def wrong(spec):
        model = right(spec)
        for constant in model.graph.initializer:
            value = onnx.numpy_helper.to_array(constant)
            if value.shape == (128, 16):
                constant.CopyFrom(onnx.numpy_helper.from_array(value * 1.01, constant.name))
        return model

    monkeypatch.setattr(onnx_file, "_graph", wrong)
    with pytest.raises(ValueError, match="does not compute what the encoder does"):
        onnx_file.export_onnx(models("static"), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_wrong_use_is_refused(tmp_path, models, capsys):
    model = str(models("static"))
    export = ["export", "--model", model, "--output", str(tmp_path / "o")]
    for wrong, says in (
        (["--to", "laser"], "is of family static; --to laser writes only family laser"),
        (["--workdir", "w", "--storage", "int8"], "give --workdir and --checkpoint, or --model"),
        (["--to", "onnx", "--storage", "int8"], "--to onnx: write the smaller model first (leave"),
    ):
        assert main([*export, *wrong]) == 2
        assert says in capsys.readouterr().err
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "thesis.txt").write_text("mine")
    assert main([*export, "--to", "onnx"]) == 2
    assert "exists; choose another --output" in capsys.readouterr().err
    assert main([*export, "--to", "onnx", "--overwrite"]) == 2
    assert "only an earlier output or an empty" in capsys.readouterr().err
    assert (tmp_path / "o" / "thesis.txt").read_text() == "mine"


def test_a_missing_package_is_named(tmp_path, models, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'xling_jax\[onnx\]'"):
        onnx_file.export_onnx(models("static"), tmp_path / "o")


@pytest.mark.parametrize("name", ["mean", "laser_mixed", "static_features"])
def test_no_sentences_and_no_tokens_give_vectors_of_their_number(exported, name):
    session = onnxruntime.InferenceSession(exported(name)[1] / "model.onnx")
    run = lambda *shape: session.run(None, {"tokens": np.zeros(shape, np.int32)})[0]
    dim = run(1, 1).shape[1]
    for batch, length in ((0, 5), (0, 0), (2, 0)):
        assert run(batch, length).shape == (batch, dim)


@pytest.mark.slow
def test_nothing_of_ours_is_changed_by_an_export(tmp_path, models):
    """jax2onnx replaces functions of JAX and Flax while it traces."""
    encode = lambda: xling_jax.load(models("tlaser")).encode(TEXTS)
    before = encode()
    patched = lambda: {
        (module.__name__, name): value
        for module in (jax, jax.lax, jax.nn, jax.numpy, flax.linen)
        for name, value in vars(module).items()
    }
    functions = patched()
    onnx_file.export_onnx(models("tlaser"), tmp_path / "o")
    found = patched()
    assert [name for name in functions if found[name] is not functions[name]] == []
    jax.clear_caches()
    np.testing.assert_array_equal(encode(), before)
    squares = jax.jit(lambda x: flax.linen.softmax(jax.numpy.cumsum(x * x)))(np.arange(3.0))
    np.testing.assert_allclose(squares, np.exp([-5, -4, 0]) / np.exp([-5, -4, 0]).sum(), rtol=1e-5)
