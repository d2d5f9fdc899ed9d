"""Static encoders of model2vec and sentence-transformers in, ours out, and back."""

import json

import numpy as np
import pytest

import xling_jax
from tests.encode.random_models import random_static, save_random
from xling_jax.cli.main import main
from xling_jax.encode.model_directory import SHIPPED, load_model
from xling_jax.formats.model2vec import convert_static, export_model2vec
from xling_jax.models.numpy_static import NumpyStatic
from xling_jax.text.huggingface_vocab import HuggingFaceText, HuggingFaceVocab
from xling_jax.text.vocab import train_vocab

model2vec = pytest.importorskip("model2vec")
sentence_transformers = pytest.importorskip("sentence_transformers")

from tests.formats import huggingface_reference as reference  # noqa: E402

TEXTS = [*reference.TEXTS, *reference.HOSTILE, *reference.world()]


def save(path, vocab, storage="float32", normalize=False, limit=3000, **settings):
    """Saves a random static encoder."""
    static = NumpyStatic(vocab.size, 24, pad_id=vocab.pad_id, normalize=normalize)
    params = random_static(static, vocab, [])
    if storage != "float32":
        _, params = static.quantized(params, storage)
    arguments = {"width": 24, "normalize": normalize, "storage": storage}
    given = {"params": params, "max_length_tokens": limit, **settings}
    return xling_jax.load(save_random(path, "static", vocab, arguments, **given))


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def vocab(request):
    text = [*reference.corpus(), *reference.world()[::2]]  # half of the scripts are unknown
    size = {"unigram": 1560, "bpe": 3000}[request.param]
    return train_vocab(text, size=size, model_type=request.param, character_coverage=1.0)


@pytest.mark.parametrize(
    ("storage", "normalize"),
    [("float32", False), ("int8", False), ("int4", False), ("float32", True)],
)
def test_both_libraries_have_our_vectors(vocab, tmp_path, storage, normalize):
    encoder = save(tmp_path / "m", vocab, storage, normalize)
    assert any(vocab.unk_id in ids for ids in vocab.encode(TEXTS))
    export_model2vec(tmp_path / "m", tmp_path / "out")
    static = model2vec.StaticModel.from_pretrained(tmp_path / "out")
    assert static.embedding.dtype == {"int4": "int8"}.get(storage, storage)
    same = [text for text in TEXTS if has_same_tokens(static, vocab, text)]
    assert len(TEXTS) - len(same) <= 3  # with marks that SentencePiece composes
    expected = encoder.encode(same)
    np.testing.assert_allclose(static.encode(same), expected, atol=2e-5)
    path = str(tmp_path / "out")
    found = sentence_transformers.SentenceTransformer(path, device="cpu").encode(same)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    convert_static(tmp_path / "out", tmp_path / "back")
    np.testing.assert_allclose(xling_jax.load(tmp_path / "back").encode(same), expected, atol=2e-5)


def has_same_tokens(static, vocab, text):
    """Whether a text is split in the same way; unknown runs are a token after ours."""
    found = [vocab.unk_id if i == vocab.size else i for i in static.tokenize([text])[0]]
    return found == list(vocab.encode([text])[0])


def test_long_texts_are_cut_at_the_same_token(vocab, tmp_path):
    encoder = save(tmp_path / "m", vocab, limit=50)
    texts = ["la" * 900, "L A " * 900, "la mo ti ren " * 90]
    export_model2vec(tmp_path / "m", tmp_path / "out")
    static = model2vec.StaticModel.from_pretrained(tmp_path / "out")
    cut = [text[: 50 * static.median_token_length] for text in texts]
    chosen = [text for text, ids in zip(texts, vocab.encode(cut)) if len(ids) >= 50]
    assert chosen  # the others are cut by their characters
    np.testing.assert_allclose(static.encode(chosen), encoder.encode(chosen), atol=1e-5)


def test_what_model2vec_does_not_have_is_refused(vocab, tmp_path):
    def refused(name, message, vocab=vocab, **settings):
        save(tmp_path / name, vocab, **settings)
        with pytest.raises(ValueError, match=message):
            export_model2vec(tmp_path / name, tmp_path / "out")

    with pytest.raises(ValueError, match="mini: has vectors for pairs, triples of tokens, which"):
        export_model2vec("mini", tmp_path / "out")
    prompts = {"prompts": {"query": "query: "}, "default_prompt": "query"}
    refused("prompt", "puts 'query: ' in front of a text, and model2vec has no prompts", **prompts)
    refused("cut", "keeps truncate_dim=8 dimensions of", normalize=True, truncate_dim=8)
    tokenizer = reference.train_tokenizer("byte-level")
    tokenizer.enable_truncation(9, direction="left")
    files = {"tokenizer.json": tokenizer.to_str().encode()}
    text = HuggingFaceText(None, None, tokenizer.get_vocab_size(), truncates=True)
    refused("left", "keeps the end of long texts, and model2vec", HuggingFaceVocab(files, text))
    tokenizer.no_truncation()
    files = {"tokenizer.json": tokenizer.to_str().encode()}
    text = HuggingFaceText(None, None, tokenizer.get_vocab_size(), prefix="la: ")
    refused("prefix", "puts 'la: ' in front of a text", HuggingFaceVocab(files, text))
    tokenizer = reference.train_tokenizer("wordpiece")
    files = {"tokenizer.json": tokenizer.to_str().encode()}
    text = HuggingFaceText(None, None, tokenizer.get_vocab_size())
    refused("known", "has a vector for unknown tokens, which", HuggingFaceVocab(files, text))
    assert "mini" in SHIPPED and not (tmp_path / "out").exists()
    save(tmp_path / "m", vocab, truncate_dim=8)
    export_model2vec(tmp_path / "m", tmp_path / "out")
    assert model2vec.StaticModel.from_pretrained(tmp_path / "out").dim == 8
    with pytest.raises(FileExistsError, match="out: already exists"):
        export_model2vec(tmp_path / "m", tmp_path / "out")
    with pytest.raises(ValueError, match="m: only an earlier output or an empty"):
        export_model2vec(tmp_path / "m", tmp_path / "m", overwrite=True)
    (tmp_path / "empty").mkdir()
    export_model2vec(tmp_path / "m", tmp_path / "empty")


def test_round_trip_of_a_directory_of_model2vec(tmp_path):
    path = reference.save_model2vec(tmp_path / "m2v")
    convert_static(path, tmp_path / "ours")
    export_model2vec(tmp_path / "ours", tmp_path / "out")
    expected = model2vec.StaticModel.from_pretrained(path)
    found = model2vec.StaticModel.from_pretrained(tmp_path / "out")
    np.testing.assert_array_equal(found.encode(TEXTS), expected.encode(TEXTS))
    assert (found.max_length, found.normalize) == (expected.max_length, expected.normalize)
    assert load_model(tmp_path / "ours").max_length_tokens == expected.max_length


def test_a_shorter_limit_cuts_on_the_side_of_the_tokenizer(tmp_path):
    from sentence_transformers.sentence_transformer import modules

    tokenizer = reference.train_tokenizer("unigram")
    tokenizer.enable_truncation(11, direction="left")
    parts = [modules.StaticEmbedding(tokenizer, embedding_dim=20)]
    model = sentence_transformers.SentenceTransformer(modules=parts, device="cpu")
    model.save(str(tmp_path / "st"))
    convert_static(tmp_path / "st", tmp_path / "m", max_length_tokens=5)
    convert_static(tmp_path / "st", tmp_path / "whole")
    model[0].tokenizer.enable_truncation(5, direction="left")
    expected = model.encode(TEXTS)
    found = xling_jax.load(tmp_path / "m").encode(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    found = xling_jax.load(tmp_path / "whole").with_max_length(5).encode(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_commands(tmp_path, capsys):
    path = str(reference.save_model2vec(tmp_path / "m2v", "wordpiece"))
    command = ["convert", path, "--output", str(tmp_path / "m")]
    assert main([*command, "--from", "sentence-transformers"]) == 2
    assert "is not for --from sentence-transformers; use --from model2vec" in (
        capsys.readouterr().err
    )
    assert main([*command, "--pooling", "mean"]) == 2
    assert "--pooling does not apply to static encoders" in capsys.readouterr().err
    assert main([*command, "--max-length-tokens", "600"]) == 2
    assert (
        "--max-length-tokens=600 must be at most 512, the model's limit" in capsys.readouterr().err
    )
    assert main(command) == 0 and xling_jax.load(tmp_path / "m").dim == 24


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    options = {"vocabulary_quantization": 40, "quantize_to": "int8"}
    path = reference.save_model2vec(tmp_path / "m2v", "bpe", **options)
    from safetensors.numpy import load_file, save_file

    tensors = load_file(path / "model.safetensors")

    def refused(message, **changes):
        save_file({**tensors, **changes}, path / "model.safetensors")
        with pytest.raises(ValueError, match=message):
            convert_static(path, tmp_path / "m")

    mapping = tensors["mapping"]
    for beyond in (np.where(mapping == 39, 40, mapping), mapping - 1):
        refused("mapping must hold rows of the table, below 40", mapping=beyond)
    refused("mapping must hold rows of the table", mapping=tensors["mapping"].astype(np.float32))
    few = {"mapping": mapping[:-1], "weights": tensors["weights"][:-1]}
    refused(r"must hold a table with a row for each of the \d+ tokens", **few)
    refused(r"tensor weights must be \[\d+\]", weights=tensors["weights"][:7])
    refused(
        "tensor embeddings must be one of F64, .*found U8", embeddings=np.ones((3, 3), np.uint8)
    )
    save_file(tensors, path / "model.safetensors")
    reference.edit_json(path / "config.json", head_config={"type": "linear"})
    with pytest.raises(ValueError, match="config.json: head_config must be None; found"):
        convert_static(path, tmp_path / "m")
    (path / "tokenizer.json").unlink()
    reference.edit_json(path / "config.json", head_config=None)
    with pytest.raises(ValueError, match="tokenizer.json: missing; it splits text"):
        convert_static(path, tmp_path / "m")
    (path / "config.json").unlink()
    modules = json.loads((path / "modules.json").read_text())
    dense = {"idx": 1, "name": "1", "path": "1_Dense", "type": "sentence_transformers.models.Dense"}
    (path / "modules.json").write_text(json.dumps([*modules, dense]))
    with pytest.raises(ValueError, match="modules must be StaticEmbedding, then Normalize where"):
        convert_static(path, tmp_path / "m")
