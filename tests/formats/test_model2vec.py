"""Static encoders of ours in model2vec and sentence-transformers, and back."""

import numpy as np
import pytest

import xling_jax
from xling_jax.encode.model_directory import SHIPPED, load_model, save_model
from xling_jax.formats.model2vec import convert_model2vec
from xling_jax.models.static_form import StaticForm
from xling_jax.text.huggingface_vocab import HuggingFaceText, HuggingFaceVocab
from xling_jax.text.vocab import train_vocab

model2vec = pytest.importorskip("model2vec")
sentence_transformers = pytest.importorskip("sentence_transformers")

from tests.formats import huggingface_reference as reference  # noqa: E402
from xling_jax.formats.model2vec import export_model2vec  # noqa: E402

TEXTS = [*reference.TEXTS, *reference.HOSTILE, *reference.world()]


def save(path, vocab, storage="float32", normalize=False, limit=3000, **settings):
    """Saves a random static encoder."""
    form = StaticForm(vocab.size, 24, pad_id=vocab.pad_id, normalize=normalize)
    generator = np.random.default_rng(0)
    params = {
        "embedding": generator.normal(size=(form.token_rows, 24)).astype(np.float32),
        "token_weight": generator.uniform(0.1, 2, form.token_rows).astype(np.float32),
    }
    if storage != "float32":
        form, params = form.quantized(params, storage)
    arguments = {"width": 24, "pad_id": vocab.pad_id, "normalize": normalize, "storage": storage}
    save_model(
        path,
        family="static",
        encoder_args=arguments,
        params=params,
        vocab=vocab,
        languages=(),
        max_length_tokens=limit,
        training={},
        **settings,
    )
    return xling_jax.load(path)


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
    convert_model2vec(tmp_path / "out", tmp_path / "back")
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
    with pytest.raises(ValueError, match="m: only an earlier export or an empty"):
        export_model2vec(tmp_path / "m", tmp_path / "m", overwrite=True)
    (tmp_path / "empty").mkdir()
    export_model2vec(tmp_path / "m", tmp_path / "empty")


def test_round_trip_of_a_directory_of_model2vec(tmp_path):
    path = reference.save_model2vec(tmp_path / "m2v")
    convert_model2vec(path, tmp_path / "ours")
    export_model2vec(tmp_path / "ours", tmp_path / "out")
    expected = model2vec.StaticModel.from_pretrained(path)
    found = model2vec.StaticModel.from_pretrained(tmp_path / "out")
    np.testing.assert_array_equal(found.encode(TEXTS), expected.encode(TEXTS))
    assert (found.max_length, found.normalize) == (expected.max_length, expected.normalize)
    assert load_model(tmp_path / "ours").max_length_tokens == expected.max_length


def test_a_limit_given_to_an_encoder_without_one_goes_along(tmp_path):
    path = reference.save_model2vec(tmp_path / "m2v", "byte-level", max_length=None)
    convert_model2vec(path, tmp_path / "ours")
    xling_jax.load(tmp_path / "ours").with_max_length(5).save(tmp_path / "short")
    for name, limit in (("ours", None), ("short", 5)):
        export_model2vec(tmp_path / name, tmp_path / f"{name}_out")
        found = model2vec.StaticModel.from_pretrained(tmp_path / f"{name}_out")
        assert found.max_length == limit
