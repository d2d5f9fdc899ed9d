import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pytest

import xling_jax
from tests.formats.conftest import TEXTS, save_again
from xling_jax.cli.main import main
from xling_jax.encode.model_directory import load_model
from xling_jax.formats.huggingface import convert_huggingface
from xling_jax.formats.sentence_transformers import export_sentence_transformers

library = pytest.importorskip("sentence_transformers")

from tests.formats import huggingface_reference as reference  # noqa: E402

# Without special tokens, transformers cannot take a text without tokens.
WITH_TOKENS = [text for text in TEXTS if text.strip()]


@pytest.mark.parametrize("name", ["tlaser", "dual_max"])
def test_sentence_transformers_gives_the_same_vectors(tmp_path, models, name, recwarn):
    directory, out = models(name), str(tmp_path / "out")
    command = ["export", "--to", "sentence-transformers", "--model", str(directory)]
    assert main([*command, "--output", out]) == 0
    model = library.SentenceTransformer(out, device="cpu")
    assert model.max_seq_length == 40
    texts = TEXTS if name == "tlaser" else WITH_TOKENS
    ours = xling_jax.load(directory).encode(texts)
    assert np.ptp(ours) > 0.1
    np.testing.assert_allclose(model.encode(texts), ours, atol=1e-5)


@pytest.mark.parametrize("kind", ["xlm-roberta", "distilbert"])
def test_published_encoders_go_back_and_come_again(tmp_path, kind):
    transformer, published = tmp_path / "transformer", tmp_path / "p"
    ours, theirs, again = (tmp_path / name for name in ("o", "t", "a"))
    reference.save_model(transformer, kind)
    reference.save_sentence_transformer(published, transformer, "mean", dense=True)
    convert_huggingface(published, ours)
    export_sentence_transformers(ours, theirs)
    convert_huggingface(theirs, again)
    expected = xling_jax.load(ours).encode(reference.TEXTS)
    model = library.SentenceTransformer(str(theirs), device="cpu")
    # Random layers enlarge rounding: DistilBERT's are 1e-5 from float64 in PyTorch and here.
    np.testing.assert_allclose(model.encode(reference.TEXTS), expected, atol=5e-5)
    found = xling_jax.load(again).encode(reference.TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert load_model(again).max_length_tokens == load_model(ours).max_length_tokens


def test_prompts_and_width_go_along(tmp_path, models):
    settings = {"prompts": {"query": "the dog "}, "default_prompt": "query", "truncate_dim": 5}
    training = {"similarity": "dot"}
    save_again(models("tlaser"), tmp_path / "m", training=training, **settings)
    export_sentence_transformers(tmp_path / "m", tmp_path / "out")
    model = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert model.similarity_fn_name == "dot"
    ours = xling_jax.load(tmp_path / "m")
    found = model.encode(TEXTS)
    assert found.shape[1] == 5
    np.testing.assert_allclose(found, ours.encode(TEXTS), atol=1e-5)
    found = model.encode(TEXTS, prompt="")
    np.testing.assert_allclose(found, ours.encode(TEXTS, prompt=""), atol=1e-5)


@pytest.mark.parametrize("prompts", [{}, {"query": "mo "}])
def test_what_goes_before_every_text_becomes_part_of_the_prompts(tmp_path, prompts):
    reference.save_model(tmp_path / "p", "bert", num_hidden_layers=1)
    convert_huggingface(tmp_path / "p", tmp_path / "o", prefix="la: ")
    default = "query" if prompts else None
    save_again(tmp_path / "o", tmp_path / "m", prompts=prompts, default_prompt=default)
    export_sentence_transformers(tmp_path / "m", tmp_path / "out")
    model = library.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    texts = ["la mo ti", "ren su"]
    expected = xling_jax.load(tmp_path / "m").encode(texts)
    np.testing.assert_allclose(model.encode(texts), expected, atol=5e-5)
    assert model.prompts[model.default_prompt_name] == "la: " + prompts.get("query", "")


def test_texts_are_cut_on_the_side_of_the_original(tmp_path):
    reference.save_model(tmp_path / "p", "bert", num_hidden_layers=1)
    reference.edit_json(tmp_path / "p" / "tokenizer_config.json", truncation_side="left")
    convert_huggingface(tmp_path / "p", tmp_path / "m", max_length_tokens=6)
    export_sentence_transformers(tmp_path / "m", tmp_path / "out")
    texts = ["la mo ti ren su kel da vi bor", "ti"]
    found = library.SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(texts)
    np.testing.assert_allclose(found, xling_jax.load(tmp_path / "m").encode(texts), atol=5e-5)
    written = json.loads((tmp_path / "out" / "tokenizer.json").read_bytes())
    assert written["truncation"]["direction"] == "Left"


@pytest.mark.parametrize(
    "name, says",
    [
        ("dual_pre", "encoder.pooling='weighted_mean' does not exist in"),
        ("dual_attention", "encoder.pooling='self_attention' does not exist in"),
        ("laser", "encoders of family laser do not exist in.*--to onnx.*--to laser"),
        ("static", "encoders of family static do not exist in.*--to model2vec, which"),
        ("mean", "encoder.layers=0 does not exist in transformers"),
    ],
)
def test_what_its_modules_cannot_say_is_refused(tmp_path, models, name, says):
    with pytest.raises(ValueError, match=says):
        export_sentence_transformers(models(name), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_forms_that_cannot_be_said_or_come_back_are_refused(tmp_path, models):
    spec = load_model(models("dual"))
    params = {k: v for k, v in spec.params.items() if k != "embedding_norm"}
    arguments = spec.config["encoder"] | {"norm": "pre"}
    save_again(models("dual"), tmp_path / "m", params=params, encoder_args=arguments)
    with pytest.raises(ValueError, match="encoder.norm='pre' without a norm after the last layer"):
        export_sentence_transformers(tmp_path / "m", tmp_path / "out")
    for name in ("dual", "tlaser"):
        export_sentence_transformers(models(name), tmp_path / name)
        with pytest.raises(ValueError, match="must be False; .* use the model directory that was"):
            convert_huggingface(tmp_path / name, tmp_path / "a")
