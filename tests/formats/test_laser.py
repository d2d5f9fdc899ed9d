"""LASER's files: out as they came in, and read by LASER's own code."""

import jax
import numpy as np
import pytest

import xling_jax
from xling_jax.encode.model_directory import load_model, save_model
from xling_jax.formats.laser import convert_laser, export_laser
from xling_jax.models import registry

torch = pytest.importorskip("torch")
pytest.importorskip("transliterate")

from tests.formats import laser_reference as reference  # noqa: E402
from tests.formats.conftest import TEXT  # noqa: E402

TEXTS = [*TEXT, "", "low lower „newer“", "☃"]
WORDS = [f"{a}{b} {c}" for a in "abcdefghijklm" for b in "nopqrst" for c in "uvwxyz"]


@pytest.mark.parametrize("write", ["laser1", "laser2"])
def test_what_came_from_laser_goes_back_and_comes_again(tmp_path, write):
    if write == "laser1":
        checkpoint = reference.write_laser1(tmp_path)
    else:
        checkpoint = reference.write_laser2(tmp_path, WORDS, num_layers=2)
    convert_laser(checkpoint, tmp_path / "ours")
    facts = export_laser(tmp_path / "ours", tmp_path / "theirs")
    suffixes = {"laser1": [".fcodes", ".fvocab"], "laser2": [".spm"]}[write]
    assert facts["files"] == sorted(["encoder.pt", *(f"encoder{s}" for s in suffixes)])
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
    found = xling_jax.load(tmp_path / "again").encode(TEXTS)
    np.testing.assert_array_equal(found, xling_jax.load(tmp_path / "ours").encode(TEXTS))


def trained_here(directory, converted, **options):
    """A model with the vocabulary of a converted one and random parameters."""
    vocab = load_model(converted).vocab
    sizes = {"vocab_size": vocab.size, "width": 8, "embedding_width": 6, "layers": 2} | options
    module = registry.build_encoder("laser", **sizes)
    shapes = jax.eval_shape(module.init, jax.random.key(0), np.ones((1, 8), np.int32))["params"]
    generator = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: generator.normal(size=leaf.shape).astype("f4"), shapes)
    save_model(
        directory,
        family="laser",
        encoder_args=sizes,
        params=params,
        vocab=vocab,
        languages=("en",),
        max_length_tokens=40,
        training={},
    )
    return directory


def test_what_was_trained_here_embeds_as_by_lasers_code(tmp_path):
    convert_laser(reference.write_laser2(tmp_path, WORDS, num_layers=1), tmp_path / "laser2")
    options = {"unidirectional_layers": 2, "published_parameters": True}
    ours = trained_here(tmp_path / "ours", tmp_path / "laser2", **options)
    export_laser(ours, tmp_path / "theirs")
    lines = [reference.laser2_pieces(text, tmp_path / "theirs" / "encoder.spm") for text in WORDS]
    found = reference.encode(tmp_path / "theirs" / "encoder.pt", lines)
    np.testing.assert_allclose(found, xling_jax.load(ours).encode(WORDS), atol=1e-5)
    mixed = trained_here(tmp_path / "mixed", tmp_path / "laser2", unidirectional_layers=1)
    with pytest.raises(ValueError, match="unidirectional_layers=1 of 2: LASER's layers are all"):
        export_laser(mixed, tmp_path / "out")


def test_a_vocabulary_of_our_own_is_refused(tmp_path, models):
    with pytest.raises(ValueError, match="LASER's code prepares text in its own way"):
        export_laser(models("laser"), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_what_lasers_code_does_not_do_is_refused(tmp_path):
    convert_laser(reference.write_laser2(tmp_path, WORDS, num_layers=1), tmp_path / "ours")
    encoder = xling_jax.load(tmp_path / "ours")
    encoder.truncated(4).save(tmp_path / "short")
    with pytest.raises(ValueError, match="short: keeps truncate_dim=4 dimensions, and LASER's"):
        export_laser(tmp_path / "short", tmp_path / "out")
    encoder.prompts, encoder.default_prompt = {"query": "low "}, "query"
    encoder.save(tmp_path / "prompted")
    with pytest.raises(ValueError, match="prompted: puts 'low ' in front of a text, and LASER's"):
        export_laser(tmp_path / "prompted", tmp_path / "out")
    assert not (tmp_path / "out").exists()
