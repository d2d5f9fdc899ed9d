"""The files of Hugging Face directories: forms that are read, and what is refused in one line."""

import json
import re
import sys

import numpy as np
import pytest

import xling_jax
from xling_jax.cli.main import main
from xling_jax.encode.model_directory import load_model
from xling_jax.formats.huggingface import convert_huggingface

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")

from tests.formats import huggingface_reference as reference  # noqa: E402

TEXTS = reference.TEXTS


@pytest.fixture
def copied(published, tmp_path):
    """A function from a kind to a copy of its directory, free to be damaged."""

    def copy(kind):
        target = tmp_path / kind
        target.mkdir()
        for path in published(kind).iterdir():
            (target / path.name).write_bytes(path.read_bytes())
        return target

    return copy


def test_every_form_of_the_weights_is_read(copied, tmp_path):
    import transformers

    path = copied("roberta")
    convert_huggingface(path, tmp_path / "m")
    expected = load_model(tmp_path / "m").fingerprint
    model = transformers.AutoModel.from_pretrained(path)
    state = model.state_dict()

    def fingerprint():
        convert_huggingface(path, tmp_path / "m", overwrite=True)
        return load_model(tmp_path / "m").fingerprint

    (path / "model.safetensors").unlink()
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): t for name, t in state.items()}
    torch.save(old, path / "pytorch_model.bin")
    assert fingerprint() == expected
    shards: dict = {"a.bin": {}, "b.bin": {}}
    for number, (name, value) in enumerate(old.items()):
        shards["ab"[number % 2] + ".bin"][name] = value
    for shard, content in shards.items():
        torch.save(content, path / shard)
    names = {name: shard for shard, content in shards.items() for name in content}
    index = path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    (path / "pytorch_model.bin").unlink()
    assert fingerprint() == expected
    model.save_pretrained(path, max_shard_size="20KB")
    assert len(list(path.glob("model-*.safetensors"))) > 1
    assert fingerprint() == expected
    next(path.glob("model-*.safetensors")).unlink()
    with pytest.raises(ValueError, match="-of-.*missing; model.safetensors.index.json names it"):
        fingerprint()
    index = path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    for shard in ("", ".", ".."):  # directories
        index.write_text(json.dumps(content | {"weight_map": {"embeddings.bias": shard}}))
        with pytest.raises(ValueError, match="must be the name of a file here|missing; model"):
            fingerprint()
    masked = transformers.RobertaForMaskedLM(model.config)
    masked.roberta.load_state_dict(state, strict=False)
    masked.save_pretrained(path)
    assert fingerprint() == expected


def test_the_length_is_cut_at_what_is_asked_for(published, tmp_path):
    convert_huggingface(published("xlm-roberta"), tmp_path / "m", max_length_tokens=9)
    states, mask = reference.token_states(published("xlm-roberta"), TEXTS, limit=9)
    found = xling_jax.load(tmp_path / "m").encode(TEXTS)
    np.testing.assert_allclose(found, reference.mean(states, mask), atol=1e-4)
    with pytest.raises(ValueError, match="max_length_tokens=33 must be from 3 to 32"):
        convert_huggingface(published("xlm-roberta"), tmp_path / "x", max_length_tokens=33)


def test_convert_and_embed_from_the_command_line(published, tmp_path, capsys):
    source, model = str(published("xlm-roberta")), str(tmp_path / "m")
    command = ["convert", "--from", "huggingface", source, "--output", model]
    assert main([*command, "--languages", "de,en", "--pooling", "mean"]) == 0
    (tmp_path / "text").write_text("\n".join(TEXTS) + "\n")
    embed = ["embed", "--model", model, "--input", str(tmp_path / "text")]
    assert main([*embed, "--output", str(tmp_path / "e.npy")]) == 0
    states, mask = reference.token_states(published("xlm-roberta"), TEXTS, limit=32)
    found = np.load(tmp_path / "e.npy")
    np.testing.assert_allclose(found, reference.mean(states, mask), atol=1e-4)
    card = (tmp_path / "m" / "README.md").read_text()
    assert "lower-cased input | as its tokenizer does" in card
    assert main(command) == 2
    assert "exists; choose another --output" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["a/b"],
            "PATH a/b: no such file or directory; a model of the Hugging Face hub is hf:ORG/NAME",
        ),
        (["."], "config.json: missing; give a model directory as Hugging Face publishes it"),
        ([".", "--vocabulary", "x"], "--vocabulary does not apply to --from huggingface"),
        ([".", "--language", "?"], "--language '\\?' must be a language code such as de"),
    ],
)
def test_wrong_use_is_one_line(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(["convert", "--from", "huggingface", *words, "--output", "m"]) in (1, 2)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error)


CONFIG_CHANGES = {
    "t5": ({"model_type": "t5"}, "='t5' must be one of bert, camembert, distilbert, robe"),
    "decoder": ({"is_decoder": True}, "is_decoder must be False; found True"),
    "relative": ({"position_embedding_type": "relative_key"}, "must be 'absolute'; found 'relati"),
    "size": ({"hidden_size": "24"}, "hidden_size must be a whole number above 0; found '24'"),
    "activation": ({"hidden_act": "elu"}, "hidden_act must be one of gelu, .*found 'elu'"),
    "shape": (
        {"intermediate_size": 41},
        r"model.safetensors: tensor encoder.layer.0.intermediate.dense.weight must be \[41, 24\]; "
        r"found \[40, 24\]",
    ),
    "layers": (
        {"num_hidden_layers": 4},
        "model.safetensors: tensor encoder.layer.3.attention.self.query.weight is missing; it ho",
    ),
    "tokens": ({"vocab_size": 20}, "the tokenizer has 1.. tokens, the model's table 20 rows"),
}


@pytest.mark.parametrize("change", CONFIG_CHANGES)
def test_another_config_is_refused_in_one_line(copied, tmp_path, change):
    changes, message = CONFIG_CHANGES[change]
    path = copied("bert")
    reference.edit_json(path / "config.json", **changes)
    with pytest.raises(ValueError, match=message) as error:
        convert_huggingface(path, tmp_path / "m")
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("bert", "config.json", b"{", "config.json: not valid JSON"),
        ("bert", "config.json", b"[]", "config.json: must hold a JSON object; found list"),
        ("bert", "model.safetensors", None, "must hold model.safetensors, .*found config.json, "),
        ("bert", "model.safetensors", b"12345678", "model.safetensors: is cut or damaged"),
        (
            "bert",
            "model.safetensors",
            b"version https://git-lfs.github.com/spec/v1",
            "git lfs pull",
        ),
        ("bert", "tokenizer.json", None, "tokenizer.json: missing; where transformers is installe"),
        ("bert", "tokenizer.json", b"{}", "tokenizer.json: not a tokenizer of the tokenizers"),
        ("xlm", "merges.txt", None, "merges.txt: missing; XLM's tokenizer is vocab.json and merg"),
        ("xlm", "merges.txt", b"a b\nc\n", r"merges.txt, line 2: must hold two pieces; found"),
        ("xlm", "vocab.json", b"{}", "vocab.json: bos_token '<s>' is not in the vocabulary"),
    ],
)
def test_a_broken_file_is_named_in_one_line(copied, tmp_path, kind, name, content, message):
    path = copied(kind)
    path.joinpath(name).unlink()
    if content is not None:
        path.joinpath(name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        convert_huggingface(path, tmp_path / "m")
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_pickles_are_not_run_and_quantized_weights_not_read(copied, tmp_path):
    path = copied("bert")
    state = {"embeddings": print}
    (path / "model.safetensors").unlink()
    torch.save(state, path / "pytorch_model.bin")
    with pytest.raises(
        ValueError, match="is not a PyTorch file of plain data|holds Python objects"
    ):
        convert_huggingface(path, tmp_path / "m")
    from safetensors.torch import save_file

    name = "embeddings.word_embeddings.weight"
    save_file({name: torch.zeros(3, dtype=torch.int8)}, path / "model.safetensors")
    with pytest.raises(ValueError, match="embeddings.* must be one of F64, .*found I8"):
        convert_huggingface(path, tmp_path / "m")


def test_other_modules_are_refused(published, tmp_path):
    path = tmp_path / "st"
    reference.save_sentence_transformer(path, published("bert"), "mean", dense=True)
    for file, changes, message in (
        ("1_Pooling", {"pooling_mode": ["cls", "mean"]}, "found cls, mean; with --pooling"),
        ("1_Pooling", {"pooling_mode": "weightedmean"}, "lasttoken; found weightedmean"),
        ("2_Dense", {"activation_function": "mine.Act"}, "activation_function must .*'mine.Act'"),
    ):
        before = (path / file / "config.json").read_bytes()
        reference.edit_json(path / file / "config.json", **changes)
        with pytest.raises(ValueError, match=message):
            convert_huggingface(path, tmp_path / "m")
        (path / file / "config.json").write_bytes(before)
    modules = json.loads((path / "modules.json").read_text())
    (path / "modules.json").write_text(json.dumps(modules[::-1]))
    with pytest.raises(ValueError, match="must be Transformer, .*; found Normalize, Dense,"):
        convert_huggingface(path, tmp_path / "m")


def test_without_the_libraries_the_way_out_is_told(copied, tmp_path, monkeypatch):
    path = copied("bert")
    convert_huggingface(path, tmp_path / "m")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for run in (
        lambda: convert_huggingface(path, tmp_path / "x"),
        lambda: load_model(tmp_path / "m"),
    ):
        with pytest.raises(
            ImportError, match=r"^this needs tokenizers; pip install 'xling_jax\[huggingface\]'$"
        ):
            run()
    monkeypatch.delitem(sys.modules, "tokenizers")
    (path / "model.safetensors").unlink()
    (path / "pytorch_model.bin").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        ImportError, match="pytorch_model.bin: reading a PyTorch file once needs PyTorch"
    ):
        convert_huggingface(path, tmp_path / "x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "cls"}, "pooling='cls' must be one of first, mean, max, last"),
        ({"language": "de"}, "language='de': only XLM's tokenizer has rules by langua"),
    ],
)
def test_arguments_out_of_range_are_refused(published, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        convert_huggingface(published("bert"), tmp_path / "m", **options)
