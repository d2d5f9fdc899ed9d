"""Converted LASER encoders against LASER's own code in PyTorch, with random weights."""

import argparse
import json
import pickle
import sys

import numpy as np
import pytest

import xling_jax
from xling_jax.cli.main import main
from xling_jax.encode.model_directory import load_model
from xling_jax.formats.laser import convert_laser, read_laser_checkpoint
from xling_jax.text.fastbpe import FastBPE

torch = pytest.importorskip("torch")

from tests.formats import laser_reference as reference  # noqa: E402

TEXTS = [
    "La mo TI, ren „su“ kel.",
    "",
    "da vi\u200bbor né ☃ ♥",
    "lamo tiren sukel davi borné " * 6,
    "ti",
]
WORDS = ["Low, LOWER newer", "", "ein „Newer“ low 木 lololow", "aa kéé er x", "low " * 40]


@pytest.fixture
def laser2(tmp_path, sentences):
    return reference.write_laser2(tmp_path, [text for text in sentences if text.strip()])


@pytest.fixture
def laser1(tmp_path):
    return reference.write_laser1(tmp_path)


def test_the_vocabulary_can_be_pickled(tmp_path, laser1):
    convert_laser(laser1, tmp_path / "m")
    vocab = load_model(tmp_path / "m").vocab
    copied = pickle.loads(pickle.dumps(vocab))
    assert copied.fingerprint == vocab.fingerprint
    assert [list(ids) for ids in copied.encode(WORDS)] == [list(ids) for ids in vocab.encode(WORDS)]


@pytest.mark.parametrize("num_layers", [1, 3])
def test_laser2_embeds_as_the_original(tmp_path, sentences, num_layers):
    text = [sentence for sentence in sentences if sentence.strip()]
    checkpoint = reference.write_laser2(tmp_path, text, num_layers)
    convert_laser(checkpoint, tmp_path / "m")
    texts = TEXTS + sentences[:30]
    lines = [reference.laser2_pieces(text, tmp_path / "laser2.spm") for text in texts]
    found = xling_jax.load(tmp_path / "m").encode(texts)
    np.testing.assert_allclose(found, reference.encode(checkpoint, lines), atol=1e-4)


@pytest.mark.parametrize("language", ["en", "de", "el"])
def test_laser1_embeds_as_the_original(tmp_path, laser1, language):
    texts = [*WORDS, "Καλημέρα Αλίμ λω"]
    convert_laser(laser1, tmp_path / "m", language=language)
    bpe = FastBPE("\n".join(reference.CODES), "\n".join(reference.VOCABULARY))
    words = [reference.laser1_words(text, language).split() for text in texts]
    lines = [" ".join(piece for word in line for piece in bpe.split(word)) for line in words]
    assert ("a@@" in lines[-1]) == (language == "el")
    found = xling_jax.load(tmp_path / "m").encode(texts)
    np.testing.assert_allclose(found, reference.encode(laser1, lines), atol=1e-4)


def test_one_direction_and_the_encoder_prefix_are_read(tmp_path):
    state = reference.write_checkpoint(tmp_path / "a.pt", ["▁a"], 2)
    params = {**state["params"], "bidirectional": False}
    model = reference.LaserLstmEncoder(**params).state_dict()
    prefixed = {f"encoder.{name}": value.half() for name, value in model.items()}
    torch.save({**state, "params": params, "model": prefixed}, tmp_path / "b.pt")
    read = read_laser_checkpoint(tmp_path / "b.pt")
    assert read.encoder_args["width"] == 10 and read.encoder_args["unidirectional_layers"] == 2
    assert read.params["layers_1"]["input_kernel"].shape == (1, 10, 40)
    assert read.params["embedding"].dtype == np.float32


def test_pieces_are_looked_up_as_text(tmp_path, laser2):
    """☃ is unknown to SentencePiece but in the dictionary; the last pieces are the other way."""
    convert_laser(laser2, tmp_path / "m")
    vocab = load_model(tmp_path / "m").vocab
    dictionary = torch.load(laser2, weights_only=True)["dictionary"]
    missing = [piece for piece in vocab.splitter_pieces() if piece not in dictionary]
    assert len(missing) == 15
    assert vocab.encode(["la ☃"])[0][-1] == dictionary["☃"]
    for text in ("la ♥", "la " + missing[-1].strip("▁")):
        assert vocab.encode([text])[0][-1] == reference.SPECIALS["<unk>"]
    assert [len(ids) for ids in vocab.encode(["", "  \t"])] == [0, 0]


def test_the_config_records_where_it_came_from_and_how_text_is_prepared(tmp_path, laser1):
    convert_laser(laser1, tmp_path / "m", language="el", languages=("el", "en"))
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["preprocessing"] == {
        "tokenizer": "laser",
        "language": "el",
        "lowercase": True,
        "moses_tokenizer": True,
        "romanize_greek": True,
    }
    assert config["training"]["checkpoint"] == "bilstm.93langs.2018-12-26.pt"
    assert config["training"]["vocabulary"] == "93langs.fcodes"
    assert (config["languages"], config["max_length_tokens"]) == (["el", "en"], 2048)
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert names >= {"dictionary.json", "fastbpe.codes", "fastbpe.vocab"}


def test_laser2_does_not_romanize_greek(tmp_path, laser2):
    convert_laser(laser2, tmp_path / "m", language="el")
    settings = load_model(tmp_path / "m").vocab.settings
    assert settings["language"] == "el" and not settings["romanize_greek"]


def test_the_fingerprint_follows_language_and_dictionary(tmp_path, laser2):
    def fingerprint(**options):
        convert_laser(laser2, tmp_path / "m", overwrite=True, **options)
        return load_model(tmp_path / "m").fingerprint

    first = fingerprint()
    assert fingerprint() == first
    assert fingerprint(language="de") != first
    dictionary = tmp_path / "m" / "dictionary.json"
    dictionary.write_text(dictionary.read_text().replace("☃", "☀").replace("\\u2603", "☀"))
    with pytest.raises(ValueError, match="dictionary.json: damaged, or a file was changed"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("dictionary.json", b"{", "dictionary.json: not valid JSON"),
        ("dictionary.json", b'{"<s>": 0}', "dictionary.json: <pad> must have id 1; found none"),
        ("dictionary.json", b'{"<s>": "0"}', "must map each piece to its id"),
        ("fastbpe.codes", b"l o\n", "fastBPE codes, line 1: must hold 3 fields"),
        ("fastbpe.vocab", b"\xff 1\n", "fastbpe.vocab: not UTF-8 text"),
        ("fastbpe.vocab", None, "fastbpe.vocab is missing"),
    ],
)
def test_a_broken_vocabulary_of_a_model_is_named(tmp_path, laser1, name, content, message):
    convert_laser(laser1, tmp_path / "m")
    (tmp_path / "m" / name).unlink()
    if content is not None:
        (tmp_path / "m" / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        load_model(tmp_path / "m")
    assert "\n" not in str(error.value)


def without(mapping, name):
    return {key: value for key, value in mapping.items() if key != name}


DAMAGES = {
    "no params": (
        lambda state: without(state, "params"),
        r"holds params, model and dictionary; found \['dictionary', 'model'\]",
    ),
    "a list": (lambda state: [1], "holds params, model and dictionary; found list"),
    "fairseq": (lambda state: {"cfg": {}, "model": {}}, "is a fairseq checkpoint, such as LASER3"),
    "objects": (
        lambda state: {"args": argparse.Namespace(arch="laser"), "model": {}},
        "holds Python objects.*Namespace.*only BiLSTM encoders are supported",
    ),
    "size": (
        lambda state: {**state, "params": {**state["params"], "hidden_size": 11}},
        r"lstm.weight_ih_l0 must be float32 \[44, 12\]; found float32 \[40, 12\]",
    ),
    "sizes": (lambda state: {**state, "params": {}}, "params must hold num_embeddings, a whole"),
    "padding": (
        lambda state: {**state, "params": {**state["params"], "padding_idx": 0}},
        "padding_idx must be 1; found 0",
    ),
    "tensors": (
        lambda state: {**state, "model": {"layers.0.fc1.weight": torch.zeros(1)}},
        "only BiLSTM .* 9 are missing, first embed_tokens.weight; 1 are unknown, first layers.0",
    ),
    "ids": (
        lambda state: {**state, "dictionary": {**state["dictionary"], "▁x": 10**6}},
        "ids of the dictionary must be below the 109 embeddings",
    ),
    "id": (
        lambda state: {**state, "dictionary": {**state["dictionary"], "▁x": 109}},
        "ids of the dictionary must be below the 109 embeddings",
    ),
    "specials": (
        lambda state: {**state, "dictionary": {**state["dictionary"], "</s>": 9}},
        "</s> must have id 2; found 9",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_another_checkpoint_is_refused_in_one_line(tmp_path, laser2, damage):
    change, message = DAMAGES[damage]
    torch.save(change(torch.load(laser2, weights_only=True)), laser2)
    with pytest.raises(ValueError, match=message) as error:
        convert_laser(laser2, tmp_path / "m")
    assert "\n" not in str(error.value) and str(laser2) in str(error.value)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("length", [0, 10, 1000, -30])
def test_a_damaged_checkpoint_is_refused_in_one_line(tmp_path, laser2, length):
    laser2.write_bytes(laser2.read_bytes()[:length])
    with pytest.raises(
        ValueError, match="is not a PyTorch file of plain data, or is damaged"
    ) as error:
        convert_laser(laser2, tmp_path / "m")
    assert "\n" not in str(error.value)


def test_a_vocabulary_that_is_missing_ambiguous_or_of_another_model_is_named(tmp_path, laser2):
    model = (tmp_path / "laser2.spm").rename(tmp_path / "other.spm")
    convert_laser(laser2, tmp_path / "m")  # the only one there
    (tmp_path / "third.spm").write_bytes(model.read_bytes())
    with pytest.raises(ValueError, match=r"needs its \.spm file beside it; found other.spm, third"):
        convert_laser(laser2, tmp_path / "n")
    convert_laser(laser2, tmp_path / "n", vocabulary=model)
    state = torch.load(laser2, weights_only=True)
    shuffled = {f"▁▁{piece}": number for piece, number in state["dictionary"].items()}
    torch.save({**state, "dictionary": shuffled}, laser2)
    with pytest.raises(
        ValueError, match="must be the vocabulary of laser2.pt; that knows 0 of its"
    ):
        convert_laser(laser2, tmp_path / "o", vocabulary=model)
    model.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="other.spm: sentencepiece.model: not a SentencePiece"):
        convert_laser(laser2, tmp_path / "o", vocabulary=model)


def test_without_pytorch_the_way_out_is_told(tmp_path, laser2, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="once needs PyTorch: pip install torch"):
        convert_laser(laser2, tmp_path / "m")


def test_converted_by_command_a_file_is_embedded(tmp_path, laser2, capsys):
    model, text, vectors = tmp_path / "m", tmp_path / "t.txt", tmp_path / "v.npy"
    command = ["convert", "--from", "laser", str(laser2), "--output", str(model)]
    assert main([*command, "--languages", "de,en"]) == 0
    assert main(command) == 2
    assert "exists; choose another --output or add --overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite", "--language", "german"]) == 0
    assert load_model(model).config["preprocessing"]["language"] == "de"
    text.write_text("".join(f"{line}\n" for line in TEXTS))
    assert (
        main(["embed", "--model", str(model), "--input", str(text), "--output", str(vectors)]) == 0
    )
    lines = [reference.laser2_pieces(line, tmp_path / "laser2.spm", "de") for line in TEXTS]
    np.testing.assert_allclose(np.load(vectors), reference.encode(laser2, lines), atol=1e-4)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--language", "klingon language"], "must be a language code"),
        (["--max-length-tokens", "1"], "must be at least 2"),
        (["--vocabulary", "nowhere.spm"], "--vocabulary nowhere.spm: no such file"),
    ],
)
def test_wrong_use_of_the_command_is_one_line(tmp_path, laser2, capsys, option, message):
    output = tmp_path / "m"
    assert main(["convert", "--from", "laser", str(laser2), "--output", str(output), *option]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and "\n" not in error
    assert not output.exists()
