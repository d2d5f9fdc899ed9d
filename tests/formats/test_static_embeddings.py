"""Converted static encoders against model2vec and sentence-transformers."""

import json

import numpy as np
import pytest

import xling_jax
from xling_jax.cli.main import main
from xling_jax.encode.model_directory import load_model
from xling_jax.formats.model2vec import convert_model2vec, convert_static_embedding

model2vec = pytest.importorskip("model2vec")
sentence_transformers = pytest.importorskip("sentence_transformers")

from tests.formats import huggingface_reference as reference  # noqa: E402

TEXTS = [*reference.TEXTS, *reference.HOSTILE, *reference.world()]
TOKENIZERS = ("wordpiece", "unigram", "bpe", "byte-level", "words")


@pytest.mark.parametrize(
    ("kind", "options", "tolerance"),
    [
        ("wordpiece", {"normalize": True, "max_length": 7}, 1e-5),
        ("unigram", {"weights": True, "max_length": 40}, 1e-5),
        ("bpe", {"max_length": None}, 1e-5),
        ("byte-level", {"normalize": True}, 1e-5),  # no unknown token
        ("words", {"weights": True}, 1e-5),
        ("unigram", {"quantize_to": "int8", "normalize": True}, 1e-5),
        ("wordpiece", {"quantize_to": "float16"}, 1e-3),  # model2vec rounds its vectors to float16
        ("wordpiece", {"quantize_to": "float64"}, 1e-5),
        ("unigram", {"vocabulary_quantization": 40, "dimensionality": 9}, 1e-5),
        ("bpe", {"vocabulary_quantization": 30, "quantize_to": "int8"}, 1e-5),
    ],
)
def test_vectors_are_those_of_model2vec(tmp_path, kind, options, tolerance):
    path = reference.save_model2vec(tmp_path / "m2v", kind, **options)
    recorded = convert_model2vec(path, tmp_path / "m", languages=("de",))
    model = model2vec.StaticModel.from_pretrained(path)
    expected = model.encode(TEXTS).astype(np.float32)
    encoder = xling_jax.load(tmp_path / "m")
    found = encoder.encode(TEXTS)
    scale = np.abs(expected).max()
    assert np.abs(found - expected).max() <= tolerance * scale
    assert recorded["storage"] == ("int8" if "int8" in options.values() else "float32")
    dropped = "dropped" if model.unk_token_id is not None else "counted"
    assert recorded["unknown_tokens"] == dropped
    assert encoder.max_length_tokens == (model.max_length or 1_000_000)
    # One at a time is computed in another way.
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS[:9]])
    np.testing.assert_allclose(alone, found[:9], atol=1e-5 * scale)


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_are_those_of_a_static_embedding(tmp_path, kind, normalize):
    from sentence_transformers.sentence_transformer import modules

    tokenizer = reference.train_tokenizer(kind)
    if normalize:
        tokenizer.enable_truncation(11, direction="left")
    parts = [modules.StaticEmbedding(tokenizer, embedding_dim=20)]
    parts += [modules.Dropout(0.3), modules.Normalize()] if normalize else []
    prompts = {"query": "la mo: "}
    model = sentence_transformers.SentenceTransformer(
        modules=parts, device="cpu", prompts=prompts, truncate_dim=12
    )
    reference.randomize(parts[0])
    model.save(str(tmp_path / "st"))
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "st"), device="cpu")
    convert_static_embedding(tmp_path / "st", tmp_path / "m")
    encoder = xling_jax.load(tmp_path / "m")
    np.testing.assert_allclose(encoder.encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    expected = model.encode(TEXTS, prompt_name="query", normalize_embeddings=True)
    found = encoder.encode(TEXTS, prompt_name="query", normalize=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert encoder.dim == 12


def test_a_shorter_limit_cuts_on_the_side_of_the_tokenizer(tmp_path):
    from sentence_transformers.sentence_transformer import modules

    tokenizer = reference.train_tokenizer("unigram")
    tokenizer.enable_truncation(11, direction="left")
    parts = [modules.StaticEmbedding(tokenizer, embedding_dim=20)]
    model = sentence_transformers.SentenceTransformer(modules=parts, device="cpu")
    model.save(str(tmp_path / "st"))
    convert_static_embedding(tmp_path / "st", tmp_path / "m", max_length_tokens=5)
    convert_static_embedding(tmp_path / "st", tmp_path / "whole")
    model[0].tokenizer.enable_truncation(5, direction="left")
    expected = model.encode(TEXTS)
    found = xling_jax.load(tmp_path / "m").encode(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    found = xling_jax.load(tmp_path / "whole").with_max_length(5).encode(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_sentence_transformers_reads_a_directory_of_model2vec_in_its_own_way(tmp_path):
    path = reference.save_model2vec(tmp_path / "m2v", "unigram", weights=True, max_length=9)
    convert_static_embedding(path, tmp_path / "m")
    model = sentence_transformers.SentenceTransformer(str(path), device="cpu")
    found = xling_jax.load(tmp_path / "m").encode(TEXTS)
    np.testing.assert_allclose(found, model.encode(TEXTS), atol=1e-5)
    assert np.abs(found - model2vec.StaticModel.from_pretrained(path).encode(TEXTS)).max() > 0.1


def test_model2vec_reads_a_directory_of_sentence_transformers(tmp_path):
    from sentence_transformers.sentence_transformer import modules

    embedding = modules.StaticEmbedding(reference.train_tokenizer("wordpiece"), embedding_dim=20)
    model = sentence_transformers.SentenceTransformer(modules=[embedding], device="cpu")
    model.save(str(tmp_path / "st"))
    convert_model2vec(tmp_path / "st", tmp_path / "m")
    expected = model2vec.StaticModel.from_pretrained(tmp_path / "st").encode(TEXTS)
    np.testing.assert_allclose(xling_jax.load(tmp_path / "m").encode(TEXTS), expected, atol=1e-5)


def test_training_computes_the_same_vectors(tmp_path):
    path = reference.save_model2vec(tmp_path / "m2v", "unigram", weights=True, normalize=True)
    convert_model2vec(path, tmp_path / "m")
    spec, texts = load_model(tmp_path / "m"), TEXTS[:6]
    rows = spec.vocab.encode(texts)
    tokens = np.full((len(rows), max(map(len, rows))), spec.vocab.pad_id, np.int32)
    for row, ids in zip(tokens, rows):
        row[: len(ids)] = ids
    found = spec.module.apply({"params": spec.params}, tokens)
    np.testing.assert_allclose(found, xling_jax.load(tmp_path / "m").encode(texts), atol=1e-5)


def test_the_commands(tmp_path, capsys):
    path = str(reference.save_model2vec(tmp_path / "m2v", "wordpiece"))
    for source in ("model2vec", "sentence-transformers"):
        command = ["convert", "--from", source, path, "--output", str(tmp_path / source)]
        assert main(command) == 0
        assert xling_jax.load(tmp_path / source).dim == 24
    capsys.readouterr()
    again = ["convert", "--from", "sentence-transformers", path, "--output", str(tmp_path / "x")]
    assert main([*again, "--pooling", "mean"]) == 2
    assert "--pooling does not apply to static encoders" in capsys.readouterr().err
    again[2] = "huggingface"
    assert main(again) == 1
    assert "holds a StaticEmbedding, which is no transformer" in capsys.readouterr().err
    again[2] = "model2vec"
    assert main([*again, "--max-length-tokens", "600"]) == 1
    assert "max_length_tokens=600 must be at most 512, the model's limit" in capsys.readouterr().err


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    path = reference.save_model2vec(tmp_path / "m2v", "wordpiece", vocabulary_quantization=40)
    from safetensors.numpy import load_file, save_file

    tensors = load_file(path / "model.safetensors")

    def refused(message, **changes):
        save_file({**tensors, **changes}, path / "model.safetensors")
        with pytest.raises(ValueError, match=message):
            convert_model2vec(path, tmp_path / "m")

    mapping = tensors["mapping"]
    for beyond in (mapping + 9, np.where(mapping == 39, 40, mapping), mapping - 1):
        refused("mapping must hold rows of the table, below 40", mapping=beyond)
    refused("mapping must hold rows of the table", mapping=tensors["mapping"].astype(np.float32))
    for count in (7, len(mapping) - 1):
        few = {"mapping": mapping[:count], "weights": tensors["weights"][:count]}
        refused(r"must hold a table with a row for each of the \d+ tokens", **few)
    refused(r"tensor weights must be \[\d+\]", weights=tensors["weights"][:7])
    refused(
        "tensor embeddings must be one of F64, .*found U8", embeddings=np.ones((3, 3), np.uint8)
    )
    save_file(tensors, path / "model.safetensors")
    reference.edit_json(path / "config.json", head_config={"type": "linear"})
    with pytest.raises(ValueError, match="config.json: head_config must be None; found"):
        convert_model2vec(path, tmp_path / "m")
    reference.edit_json(path / "config.json", head_config=None)
    modules = json.loads((path / "modules.json").read_text())
    dense = {"idx": 1, "name": "1", "path": "1_Dense", "type": "sentence_transformers.models.Dense"}
    (path / "modules.json").write_text(json.dumps([*modules, dense]))
    with pytest.raises(ValueError, match="modules must be StaticEmbedding, then Normalize where"):
        convert_static_embedding(path, tmp_path / "m")
    (path / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="tokenizer.json: missing; it splits text"):
        convert_model2vec(path, tmp_path / "m")
