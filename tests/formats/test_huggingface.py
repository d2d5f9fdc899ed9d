"""Converted encoders against transformers and sentence-transformers, with random weights."""

import json

import numpy as np
import pytest

import xling_jax
from xling_jax.encode.model_directory import load_model
from xling_jax.formats.huggingface import convert_huggingface
from xling_jax.formats.huggingface_layouts import read_config

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")

from tests.formats import huggingface_reference as reference  # noqa: E402

TEXTS = reference.TEXTS
LIMITS = {"bert": 34, "distilbert": 34, "roberta": 32, "xlm": 34, "xlm-roberta": 32}
LIMITS |= {"camembert": 32}


def test_padding_is_not_what_the_config_says(tmp_path):
    """MiniLM and e5 are BERT with XLM-R's tokenizer; their pad_token_id is its <s>."""
    reference.save_model(tmp_path / "e5", "bert", tokenizer="xlm-roberta", pad_token_id=0)
    convert_huggingface(tmp_path / "e5", tmp_path / "m")
    vocab = load_model(tmp_path / "m").vocab
    assert (vocab.bos_id, vocab.pad_id) == (0, vocab.size - 1)
    states, mask = reference.token_states(tmp_path / "e5", TEXTS, limit=34)
    found = xling_jax.load(tmp_path / "m").encode(TEXTS)
    np.testing.assert_allclose(found, reference.mean(states, mask), atol=1e-4)


@pytest.mark.parametrize("kind", LIMITS)
def test_what_a_config_leaves_out_is_as_in_transformers(tmp_path, kind):
    import transformers

    sizes = {**reference.SIZES, **reference.OTHER_SIZES.get(kind, {})}
    full = transformers.AutoConfig.for_model(kind)
    config = {"model_type": kind, "vocab_size": 99, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = read_config(tmp_path)
    after_attention = 0.0 if kind == "distilbert" else 0.1
    assert tuple(found.dropout.values()) == (0.1, 0.1, after_attention)
    assert found.sizes["layer_norm_epsilon"] == getattr(full, "layer_norm_eps", 1e-12)
    assert found.sizes["activation"] == "gelu"
    assert found.token_types == getattr(full, "type_vocab_size", 0)
    counted = kind in ("bert", "distilbert", "xlm")
    assert (found.unplaced_id is None) == counted
    assert found.unplaced_id in (None, full.pad_token_id)
    assert found.first_position == LIMITS["bert"] - LIMITS[kind]
    (tmp_path / "config.json").write_text(json.dumps(config | {"pad_token_id": 5}))
    assert read_config(tmp_path).first_position == (6 if found.first_position else 0)


def test_prefixes(published, tmp_path):
    path = tmp_path / "st"
    reference.save_sentence_transformer(path, published("xlm-roberta"), "mean", dense=False)
    convert_huggingface(path, tmp_path / "plain")
    expected = xling_jax.load(tmp_path / "plain").encode(["query: la mo", "mo ti: la mo"])
    convert_huggingface(path, tmp_path / "query", prefix="query: ")
    found = xling_jax.load(tmp_path / "query").encode(["la mo"])
    np.testing.assert_allclose(found, expected[:1], atol=1e-5)
    prompts = {"prompts": {"query": "mo ti: "}, "default_prompt_name": "query"}
    reference.edit_json(path / "config_sentence_transformers.json", **prompts)
    convert_huggingface(path, tmp_path / "prompt")
    found = xling_jax.load(tmp_path / "prompt").encode(["la mo"])
    np.testing.assert_allclose(found, expected[1:], atol=1e-5)
    convert_huggingface(path, tmp_path / "both", prefix="query: ")
    both = xling_jax.load(tmp_path / "both")
    np.testing.assert_allclose(both.encode(["la mo"]), expected[:1], atol=1e-5)
    assert both.prompts == {}
