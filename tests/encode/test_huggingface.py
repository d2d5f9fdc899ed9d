"""Converted encoders against transformers and sentence-transformers, with random weights."""

import json
import pickle

import numpy as np
import pytest

import xling_jax
from xling_jax.cli.main import main
from xling_jax.encode.huggingface import convert_huggingface
from xling_jax.encode.model_directory import load_model

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")

from tests.encode import huggingface_reference as reference  # noqa: E402

TEXTS = reference.TEXTS
LIMITS = {"bert": 34, "distilbert": 34, "roberta": 32, "xlm": 34, "xlm-roberta": 32}


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """A directory of every kind, each made once."""
    made = {}

    def directory(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("published") / kind
            reference.save_model(made[kind], kind)
        return made[kind]

    return directory


@pytest.fixture
def copied(published, tmp_path):
    """A copy of a published directory, free to be damaged."""

    def copy(kind):
        target = tmp_path / kind
        target.mkdir()
        for path in published(kind).iterdir():
            (target / path.name).write_bytes(path.read_bytes())
        return target

    return copy


def edit_json(path, **changes):
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | changes))


@pytest.mark.parametrize("kind", LIMITS)
def test_the_mean_of_token_states_is_that_of_transformers(published, tmp_path, kind):
    convert_huggingface(published(kind), tmp_path / "m", languages=("de", "en"))
    encoder = xling_jax.load(tmp_path / "m")
    assert encoder.max_length_tokens == LIMITS[kind] and encoder.languages == ("de", "en")
    states, mask = reference.token_states(published(kind), TEXTS, limit=LIMITS[kind])
    np.testing.assert_allclose(encoder.encode(TEXTS), reference.mean(states, mask), atol=1e-4)


@pytest.mark.parametrize("kind", LIMITS)
def test_ids_are_those_of_the_published_tokenizer(published, tmp_path, kind):
    import transformers

    convert_huggingface(published(kind), tmp_path / "m")
    vocab = load_model(tmp_path / "m").vocab
    tokenizer = transformers.AutoTokenizer.from_pretrained(published(kind))
    for text, ids in zip(TEXTS, vocab.encode(TEXTS), strict=True):
        assert [vocab.bos_id, *ids, vocab.eos_id] == tokenizer(text)["input_ids"]
    assert vocab.pad_id == tokenizer.pad_token_id
    flat, lengths = vocab.encode_flat(TEXTS)
    np.testing.assert_array_equal(flat, np.concatenate(vocab.encode(TEXTS)))
    assert list(lengths) == [len(ids) for ids in vocab.encode(TEXTS)] and flat.dtype == np.int32
    copied = pickle.loads(pickle.dumps(vocab))
    assert copied.fingerprint == vocab.fingerprint
    np.testing.assert_array_equal(copied.encode_flat(TEXTS)[0], flat)


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("pooling", ["first", "max", "mean"])
def test_any_layer_is_pooled(published, tmp_path, layer, pooling):
    convert_huggingface(published("bert"), tmp_path / "m", layer=layer, pooling=pooling)
    states, mask = reference.token_states(published("bert"), TEXTS[:4], layer, 34)
    expected = {
        "first": states[:, 0],
        "max": np.where(mask[..., None], states, -np.inf).max(1),
        "mean": reference.mean(states, mask),
    }[pooling]
    found = xling_jax.load(tmp_path / "m").encode(TEXTS[:4])
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_mean_without_special_tokens(published, tmp_path):
    convert_huggingface(published("roberta"), tmp_path / "m", pool_specials=False)
    states, mask = reference.token_states(published("roberta"), TEXTS, limit=32)
    mask[np.arange(len(TEXTS)), mask.sum(1) - 1] = False
    mask[:, 0] = False
    found = xling_jax.load(tmp_path / "m").encode(TEXTS)
    np.testing.assert_allclose(found, reference.mean(states, mask), atol=1e-4)
    np.testing.assert_array_equal(found[1], 0)
