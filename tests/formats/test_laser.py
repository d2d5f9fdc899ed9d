"""LASER's files in and out, against LASER's own code in PyTorch, with random weights."""

import argparse
import sys
from pathlib import PurePosixPath

import numpy as np
import pytest

import xling_jax
from tests.encode.random_models import save_random
from xling_jax.cli.main import main
from xling_jax.encode.model_directory import load_model
from xling_jax.formats.files import load_torch
from xling_jax.formats.laser import convert_laser, export_laser, read_laser_checkpoint
from xling_jax.text.laser_vocab import FastBPE

torch = pytest.importorskip("torch")
pytest.importorskip("transliterate")

from tests.formats import laser_reference as reference  # noqa: E402
from tests.formats.conftest import TEXT, save_again  # noqa: E402

TEXTS = [
    "La mo TI, ren „su“ kel.",
    "",
    "da vi\u200bbor né ☃ ♥",
    "lamo tiren sukel davi borné " * 6,
    "ti",
]
OUT_TEXTS = [*TEXT, "", "low lower „newer“", "☃"]
WORDS = ["Low, LOWER newer", "", "ein „Newer“ low 木 lololow", "aa kéé er x", "low " * 40]
NAMES = [f"{a}{b} {c}" for a in "abcdefghijklm" for b in "nopqrst" for c in "uvwxyz"]


@pytest.fixture
def laser2(tmp_path, sentences):
    return reference.write_laser2(tmp_path, [text for text in sentences if text.strip()])


@pytest.mark.slow  # rules of Moses take seconds to compile
@pytest.mark.parametrize("language", ["de", "el"])
def test_the_encoder_of_2018_embeds_as_the_original_and_goes_back(tmp_path, language):
    checkpoint = reference.write_laser1(tmp_path)
    texts = [*WORDS, "Καλημέρα Αλίμ λω"]
    convert_laser(checkpoint, tmp_path / "m", language=language)
    bpe = FastBPE("\n".join(reference.CODES), "\n".join(reference.VOCABULARY))
    words = [reference.laser1_words(text, language).split() for text in texts]
    lines = [" ".join(piece for word in line for piece in bpe.split(word)) for line in words]
    assert ("a@@" in lines[-1]) == (language == "el")
    found = xling_jax.load(tmp_path / "m").encode(texts)
    np.testing.assert_allclose(found, reference.encode(checkpoint, lines), atol=1e-4)
    assert export_laser(tmp_path / "m", tmp_path / "theirs")["files"] == [
        "encoder.fcodes",
        "encoder.fvocab",
        "encoder.pt",
    ]
    convert_laser(tmp_path / "theirs" / "encoder.pt", tmp_path / "again", language=language)
    np.testing.assert_array_equal(xling_jax.load(tmp_path / "again").encode(texts), found)
    (tmp_path / "m" / "fastbpe.vocab").unlink()
    with pytest.raises(ValueError, match="fastbpe.vocab is missing"):
        load_model(tmp_path / "m")


def test_one_direction_and_the_encoder_prefix_are_read(tmp_path):
    state = reference.write_checkpoint(tmp_path / "a.pt", ["▁a"], 2)
    params = {**state["params"], "bidirectional": False}
    model = reference.LaserLstmEncoder(**params).state_dict()
    prefixed = {f"encoder.{name}": value.half() for name, value in model.items()}
    torch.save({**state, "params": params, "model": prefixed}, tmp_path / "b.pt")
    path = tmp_path / "b.pt"
    arguments, params, _ = read_laser_checkpoint(path, load_torch(path))
    assert arguments["width"] == 10 and arguments["unidirectional_layers"] == 2
    assert params["layers_1"]["input_kernel"].shape == (1, 10, 40)
    assert params["embedding"].dtype == np.float32


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


def without(mapping, name):
    return {key: value for key, value in mapping.items() if key != name}


DAMAGES = {
    "no params": (
        lambda state: without(state, "params"),
        r"holds params, model and dictionary; found \['dictionary', 'model'\]",
    ),
    "fairseq": (lambda state: {"args": argparse.Namespace(arch="laser"), "model": {}}, "LASER3"),
    "objects": (lambda state: {"args": PurePosixPath("a")}, "holds Python objects.*PurePosixPath"),
    "sizes": (lambda state: {**state, "params": {}}, "padding_idx must be 1; found None"),
    "tensors": (
        lambda state: {**state, "model": {"layers.0.fc1.weight": torch.zeros(1)}},
        "tensor embed_tokens.weight is missing; it holds 1 tensors, such as layers.0.fc1.weight",
    ),
    "ids": (
        lambda state: {**state, "dictionary": {**state["dictionary"], "▁x": 10**6}},
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


@pytest.mark.parametrize("length", [0, -30])
def test_a_damaged_checkpoint_is_refused_in_one_line(tmp_path, laser2, length, monkeypatch):
    laser2.write_bytes(laser2.read_bytes()[:length])
    with pytest.raises(
        ValueError, match="is not a PyTorch file of plain data, or is damaged"
    ) as error:
        convert_laser(laser2, tmp_path / "m")
    assert "\n" not in str(error.value)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match="once needs PyTorch: pip install torch"):
        convert_laser(laser2, tmp_path / "m")


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


def test_what_came_from_laser_goes_back_and_comes_again(tmp_path):
    checkpoint = reference.write_laser2(tmp_path, NAMES, num_layers=2)
    convert_laser(checkpoint, tmp_path / "ours")
    facts = export_laser(tmp_path / "ours", tmp_path / "theirs")
    assert facts["files"] == ["encoder.pt", "encoder.spm"]
    state = torch.load(tmp_path / "theirs" / "encoder.pt", weights_only=True)
    original = torch.load(checkpoint, weights_only=True)
    assert state["params"] == original["params"]
    assert original["dictionary"].items() <= state["dictionary"].items()
    lines = [" ".join(list(state["dictionary"])[4:9]), "☃"]
    np.testing.assert_allclose(
        reference.encode(tmp_path / "theirs" / "encoder.pt", lines),
        reference.encode(checkpoint, lines),
        atol=1e-6,
    )
    convert_laser(tmp_path / "theirs" / "encoder.pt", tmp_path / "again")
    found = xling_jax.load(tmp_path / "again").encode(OUT_TEXTS)
    np.testing.assert_array_equal(found, xling_jax.load(tmp_path / "ours").encode(OUT_TEXTS))


def trained_here(directory, converted, **options):
    """A model with the vocabulary of a converted one and random parameters."""
    vocab = load_model(converted).vocab
    sizes = {"width": 8, "embedding_width": 6, "layers": 2} | options
    return save_random(directory, "laser", vocab, sizes)


def test_what_was_trained_here_embeds_as_by_lasers_code(tmp_path):
    convert_laser(reference.write_laser2(tmp_path, NAMES, num_layers=1), tmp_path / "laser2")
    options = {"unidirectional_layers": 2, "published_parameters": True}
    ours = trained_here(tmp_path / "ours", tmp_path / "laser2", **options)
    export_laser(ours, tmp_path / "theirs")
    lines = [reference.laser2_pieces(text, tmp_path / "theirs" / "encoder.spm") for text in NAMES]
    found = reference.encode(tmp_path / "theirs" / "encoder.pt", lines)
    np.testing.assert_allclose(found, xling_jax.load(ours).encode(NAMES), atol=1e-5)
    mixed = trained_here(tmp_path / "mixed", tmp_path / "laser2", unidirectional_layers=1)
    with pytest.raises(ValueError, match="unidirectional_layers=1 of 2: LASER has no mixture"):
        export_laser(mixed, tmp_path / "out")


def test_what_lasers_code_does_not_do_is_refused(tmp_path, models):
    with pytest.raises(ValueError, match="LASER's code prepares text in its own way"):
        export_laser(models("laser"), tmp_path / "out")
    assert not list(tmp_path.iterdir())
    convert_laser(reference.write_laser2(tmp_path, NAMES, num_layers=1), tmp_path / "ours")
    encoder = xling_jax.load(tmp_path / "ours")
    encoder.truncated(4).save(tmp_path / "short")
    with pytest.raises(ValueError, match="short: keeps truncate_dim=4 dimensions, and LASER's"):
        export_laser(tmp_path / "short", tmp_path / "out")
    prompts = {"prompts": {"query": "low "}, "default_prompt": "query"}
    save_again(tmp_path / "ours", tmp_path / "prompted", **prompts)
    with pytest.raises(ValueError, match="prompted: puts 'low ' in front of a text, and LASER's"):
        export_laser(tmp_path / "prompted", tmp_path / "out")
    assert not (tmp_path / "out").exists()
