"""Vocabularies: special ids, determinism, normalization, and errors that name the way out."""

import pickle

import numpy as np
import pytest
import tokenizers

from xling_jax.text.huggingface_vocab import HuggingFaceText, HuggingFaceVocab
from xling_jax.text.vocab import (
    SPECIALS,
    Vocab,
    check_layout,
    normalize_text,
    normalizer,
    remove_invisible,
    text_hash,
    train_vocab,
)
from xling_jax.text.vocabularies import write_vocab

_WORDS = ["river", "stone", "bright", "cloud", "winter", "garden", "window", "silver"]
_WORDS += ["brother", "little", "Straße", "Fluß", "été"]


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(_WORDS, 6)) for _ in range(300)]


@pytest.fixture(scope="module")
def vocab(sentences) -> Vocab:
    return train_vocab(sentences, size=80, layout="laser")


@pytest.mark.parametrize("layout", sorted(SPECIALS))
def test_special_tokens_have_the_ids_of_their_layout(sentences, layout):
    vocab = train_vocab(sentences, size=70, layout=layout)
    assert tuple(vocab.pieces()[: len(SPECIALS[layout])]) == SPECIALS[layout]
    assert vocab.size == 70
    check_layout(vocab, layout, "vocab")
    if layout == "dual":
        assert (vocab.pad_id, vocab.unk_id, vocab.mask_id) == (0, 1, 2)
        assert vocab.bos_id is None and vocab.eos_id is None
    else:
        ids = (vocab.bos_id, vocab.pad_id, vocab.eos_id, vocab.unk_id, vocab.mask_id)
        assert ids == (0, 1, 2, 3, 4 if layout == "masked" else None)


def test_text_that_spells_a_special_token_is_not_one(vocab):
    (ids,) = vocab.encode(["<s> stone </s> <pad>"])
    assert not set(ids.tolist()) & {vocab.bos_id, vocab.eos_id, vocab.pad_id}


@pytest.mark.parametrize("model_type, size", [("bpe", 36), ("unigram", 36), ("word", 12)])
def test_same_sentences_and_seed_give_the_same_bytes(sentences, model_type, size):
    models = [
        train_vocab(sentences, size=size, model_type=model_type, seed=7).model_bytes
        for _ in range(2)
    ]
    assert models[0] == models[1]


def test_a_word_vocabulary_has_the_frequent_words_and_one_id_for_all_others(sentences):
    text = [*sentences, "rare rare", "rarest"]
    words = train_vocab(text, size=4 + 14, model_type="word")
    normal = {f"▁{normalize_text(word)}" for word in _WORDS}
    assert set(words.pieces()) == {*SPECIALS["laser"], *normal, "▁rare"}
    known = {piece: i for i, piece in enumerate(words.pieces())}
    (ids,) = words.encode(["River rarest  stone. rare stone."])
    unk = words.unk_id  # One for a run of unknown words.
    assert ids.tolist() == [known["▁river"], unk, known["▁rare"], unk]
    with pytest.raises(ValueError, match="use at most 19, or more text"):
        train_vocab(text, size=20, model_type="word")


def test_encode_normalizes_and_keeps_order(vocab):
    rows = vocab.encode(["", "River  STONE", "river\u200b stone", "\t"])
    assert [row.dtype for row in rows] == [np.int32] * 4
    assert len(rows[0]) == 0 and len(rows[3]) == 0
    np.testing.assert_array_equal(rows[1], rows[2])
    assert vocab.decode(rows[1]) == "river stone"
    assert vocab.encode([]) == []
    surrogate, plain = vocab.encode(["ri\ud83dver", "river"])
    np.testing.assert_array_equal(surrogate, plain)
    with pytest.raises(ValueError, match="wrap it"):
        vocab.encode("river")


def test_save_load_and_pickle_keep_ids_and_fingerprint(vocab, tmp_path):
    write_vocab(vocab, tmp_path)
    loaded = Vocab(tmp_path / "sentencepiece.model")
    copied = pickle.loads(pickle.dumps(loaded))
    for other in (loaded, copied):
        assert other.fingerprint == vocab.fingerprint
        np.testing.assert_array_equal(other.encode(["été"])[0], vocab.encode(["été"])[0])


def test_fingerprint_depends_on_preprocessing(vocab):
    assert Vocab(vocab.model_bytes, lowercase=False).fingerprint != vocab.fingerprint
    moses = Vocab(vocab.model_bytes, moses=True)
    assert moses.fingerprint != vocab.fingerprint
    assert (vocab.options, moses.options) == (
        {"lowercase": True},
        {"lowercase": True, "moses": True},
    )
    assert pickle.loads(pickle.dumps(moses)).fingerprint == moses.fingerprint


def test_moses_splits_punctuation_from_words_and_normalizes_it():
    prepare = normalizer(moses=True)
    assert prepare("„Ja“, sagte er – dann ging er\u200b.") == '" ja , " sagte er - dann ging er .'
    assert prepare("Don't pay 2,000 €!") == "don 't pay 2,000 € !"  # not &apos;t
    assert prepare("Mr. Smith's (old) house.") == "mr. smith 's ( old ) house ."
    assert prepare("No. 5 is here.") == "no. 5 is here ."  # an abbreviation in this case alone


@pytest.mark.parametrize("content", [b"", b"hello"])
def test_a_file_that_is_no_model_is_named(tmp_path, content):
    path = tmp_path / "sentencepiece.model"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="sentencepiece.model: not a SentencePiece model"):
        Vocab(path)


def test_wrong_layout_is_explained(vocab):
    with pytest.raises(ValueError, match="needs <pad> <unk> <MASK> as ids 0 to 2; found <pad>=1"):
        check_layout(vocab, "dual", "my.model")
    with pytest.raises(ValueError, match="layout='bert' must be one of laser, dual, masked"):
        check_layout(vocab, "bert", "my.model")


@pytest.mark.parametrize(
    "size, message",
    [(10, "vocab.size=10 is smaller than the"), (50_000, "use at most [0-9]+, or more text")],
)
def test_impossible_sizes_say_what_is_possible(sentences, size, message):
    with pytest.raises(ValueError, match=message):
        train_vocab(sentences, size=size)
    long = train_vocab([*sentences, "жук " * 1000], size=80)  # long sentences are trained on
    assert long.unk_id not in long.encode(["жук"])[0]


def test_text_that_cannot_be_trained_on_is_explained(sentences):
    with pytest.raises(ValueError, match="more than 3 training sentences can fill"):
        train_vocab(["", *sentences[:3], "  "], size=5000)
    with pytest.raises(ValueError, match="no text to train"):
        train_vocab(["", "  "], size=70)
    with pytest.raises(
        ValueError, match="vocab.model_type='char' must be one of bpe, unigram, word"
    ):
        train_vocab(sentences, size=70, model_type="char")


@pytest.mark.parametrize("error", [KeyboardInterrupt("Ctrl-C"), OSError("corpus.tsv: gone")])
def test_an_error_while_sentences_are_read_is_not_one_of_sentencepiece(error):
    def sentences():
        yield "la mo ti"
        raise error

    with pytest.raises(type(error), match=str(error)):
        train_vocab(sentences(), size=50)


@pytest.mark.parametrize(
    "text, normal",
    [
        ("  A\u00a0b\tc\n", "a b c"),
        ("e\u0301t\u00e9", "été"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("soft\u00adhyphen", "softhyphen"),
        ("nul\x00 bell\x07", "nul bell"),
        ("İstanbul ΣΑΣ", "i̇stanbul σας"),
        ("\u200b \u2028", ""),
    ],
)
def test_normalize_text(text, normal):
    assert normalize_text(text) == normal
    assert normalize_text(normal) == normal
    assert normalize_text(" Ab  C ", lowercase=False) == "Ab C"


def test_invisible_characters_are_removed_and_white_space_is_not():
    spaces = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\xa0 \u2028\u3000"
    assert remove_invisible(spaces) == spaces
    controls = {chr(code) for code in (*range(32), *range(127, 160))} - {*spaces}
    marks = "\xad\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u202a\u202e\u2060\u2066\u206f\ufeff"
    others = "\ufff9\ufffb\U000e0001\U000e007f\ud800\udfff"
    for character in (*controls, *marks, *others):
        assert remove_invisible(f"a{character}b") == "ab", ascii(character)


def test_hashes_are_those_of_normalized_text_in_its_case():
    assert text_hash(" Cafe\u0301\u200b  x\n") == text_hash("Café x") != text_hash("café x")


@pytest.mark.parametrize("name", ["[UNK]", "⁇"])
def test_the_unknown_token_of_a_published_tokenizer_may_have_any_name(name):
    word_level = tokenizers.models.WordLevel({"[PAD]": 0, "dog": 1, name: 2}, unk_token=name)
    tokenizer = tokenizers.Tokenizer(word_level)
    text = HuggingFaceText(bos_id=None, eos_id=None, pad_id=0)
    vocab = HuggingFaceVocab({"tokenizer.json": tokenizer.to_str().encode()}, text)
    assert vocab.split(["cat"], 1) == [[vocab.unk_id]] == [[2]]
