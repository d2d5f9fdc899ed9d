import io
import random
import unicodedata

import pytest
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from tests.formats import conftest
from xling_jax.text.laser_vocab import LaserText, LaserVocab, dictionary_file
from xling_jax.text.vocab import Vocab, train_vocab

tokenizers = pytest.importorskip("tokenizers")

from xling_jax.formats.tokenizer_json import tokenizer_json  # noqa: E402

TEXT = 20 * conftest.TEXT

HOSTILE = [
    "",
    " \n\t\u3000 ",
    "\u200b\u200d\ufeff",
    "<s> </s> <pad> <unk> <MASK> a<s>b",
    "▁ ▁▁a▁b ▁",
    "ΟΔΟΣ ΣΑΣ Σ ΑΣ' ΑΣ'Α Α.Σ Σ\u0301Σ",
    "İstanbul ǅ ß ẞ ŉ ﬁ ﬃ ½ ㍿ ㎏ ～",
    "e\u0301 é \u0301 a\u0323\u0307 7\u0301 ２\u20e3",
    "ﾊﾞｶﾞﾎﾟ ﾞ ガ",
    "각 한국어 각",
    "👨\u200d👩\u200d👧 👍🏽 🇩🇪",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the\x85cat\x1csat\u2028on\xa0the\u202fmat\x00\x07.",
    "\U0010ffff\ue000\U000e0041x",
    "x" * 3000,
    "the cat " * 2000,
]


def random_texts(count, seed=0):
    """Characters of all planes, with marks only behind letters that have no compatibility form."""
    draw = random.Random(seed)
    blocks = [(0x20, 0x7F), (0x370, 0x400), (0x900, 0x980), (0x0, 0x500), (0x0, 0xD800)]
    blocks += [(0xE000, 0x10000), (0x10000, 0x20000), (0x3040, 0x3100)]
    for _ in range(count):
        block = draw.choice(blocks)
        text = "".join(chr(draw.randrange(*block)) for _ in range(draw.randrange(1, 30)))
        if not any(
            unicodedata.decomposition(a).startswith("<") and unicodedata.combining(b)
            for a, b in zip(text, text[1:])
        ):
            yield text


@pytest.fixture(scope="module", params=["unigram", "cased bpe"])
def vocab(request):
    kind = request.param.split()[-1]
    return train_vocab(
        TEXT,
        size=120 if kind == "unigram" else 150,
        model_type=kind,
        lowercase=kind == request.param,
    )


def test_tokens_are_the_same_for_any_text(vocab):
    tokenizer = tokenizers.Tokenizer.from_str(tokenizer_json(vocab))
    assert tokenizer.get_vocab_size() == vocab.size
    every_character = [chr(n) for n in range(0, 0x10000, 17) if not 0xD800 <= n < 0xE000]
    texts = [*HOSTILE, *TEXT, *random_texts(3000), *(f"a{c}b" for c in every_character)]
    found = [row.ids for row in tokenizer.encode_batch(texts)]
    expected = vocab.split(texts, 1)
    scores = SentencePieceProcessor(model_proto=vocab.model_bytes)
    score = lambda ids: sum(map(scores.get_score, ids))
    for text, ours, theirs in zip(texts, expected, found):
        if ours != theirs:  # a tie, such as the one "a" among "aaaa" that is left of 39
            assert score(theirs) == pytest.approx(score(ours), abs=1e-4), text
            assert len(theirs) == len(ours)
    assert vocab.size > len({n for row in expected for n in row}) > 80


def test_pieces_of_several_words_are_kept():
    """As in a vocabulary of the user's that was trained without splitting at spaces."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        vocab_size=125,
        model_type="unigram",
        split_by_whitespace=False,
        pad_id=3,
        minloglevel=2,
    )
    vocab = Vocab(model.getvalue())
    tokenizer = tokenizers.Tokenizer.from_str(tokenizer_json(vocab))
    texts = [*conftest.TEXT, "the cat and the dog"]
    expected = [list(ids) for ids in vocab.split(texts, 1)]
    assert [row.ids for row in tokenizer.encode_batch(texts)] == expected
    pieces = vocab.pieces()
    assert any("▁" in pieces[number][1:] for ids in expected for number in ids)


@pytest.mark.parametrize(
    "make, reason",
    [
        (lambda: train_vocab(TEXT, size=40, model_type="word"), "vocab.model_type=word"),
        (lambda: Vocab(train_vocab(TEXT, size=150).model_bytes, moses=True), "vocab.moses=True"),
        (
            lambda: LaserVocab(
                {
                    "dictionary.json": dictionary_file({"▁the": 4}),
                    "sentencepiece.model": train_vocab(TEXT, size=150).model_bytes,
                },
                LaserText(),
            ),
            "for a LaserVocab",
        ),
    ],
)
def test_what_has_no_such_form_is_refused(make, reason):
    with pytest.raises(ValueError, match=f"^model: .*{reason}.*--to onnx"):
        tokenizer_json(make(), "model")
