import pickle
import re

import pytest
from sacremoses import MosesTokenizer

from xling_jax.text.laser_vocab import LaserText


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "„Hello“,\tWORLD\u200b…\n", '"hello," world ...'),
        ("en", "5\u00a0000 people ‘said’ so", '5.000 people "said" so'),
        ("de", "5\u00a0000 „Leute“, sagte er.", '5,000 "leute", sagte er.'),
        ("de", "Er sagte: „Ja.“", 'er sagte: "ja".'),
        ("it", "Disse: «Sì.»", 'disse: "sì".'),
        ("cs", "Řekl: „Ano.“", 'řekl: "ano."'),
    ],
)
def test_laser2_text_has_moses_punctuation_and_lower_case(language, text, expected):
    """Expected from normalize-punctuation.perl, whose lines end in a line break."""
    assert LaserText(language)(text) == expected


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "He's <here>, Dr. No.", "he 's < here > , dr. no ."),
        ("fr", "L'ami & moi.", "l' ami & moi ."),
        ("en", "U.K. 我们 와 한국어.", "u.k. 我们 와 한국어 ."),
    ],
)
def test_text_is_split_into_words(language, text, expected):
    assert LaserText(language, moses_tokenizer=True)(text) == expected


@pytest.mark.parametrize("language", ["zh", "ja", "yue"])
def test_languages_whose_words_moses_does_not_find_are_refused(language):
    with pytest.raises(ValueError, match=f"language='{language}'.*jieba or MeCab.*LASER2"):
        LaserText(language, moses_tokenizer=True)
    assert LaserText(language)("你好。") == "你好。"


def test_text_that_is_left_as_it_is_has_no_lone_surrogates():
    assert LaserText(raw=True, lowercase=False)("Ja\ud83d, 👍\x00\n") == "Ja?, 👍\x00\n"


def test_it_can_be_pickled():
    prepare = LaserText("de")
    prepare("Ein Satz.")
    assert pickle.loads(pickle.dumps(prepare))("„Ja“") == '"ja"'
    used = LaserText("de", moses_tokenizer=True)
    assert pickle.loads(pickle.dumps(used))("Ja!") == used("Ja!") == "ja !"
    assert pickle.loads(pickle.dumps(used))("Ja!") == "ja !"


def test_characters_are_separated_as_by_the_pattern_of_sacremoses():
    ranges = (range(0x600), range(0x2000, 0x2100), range(0x3040, 0x3100), (0x1F600, 0x20000))
    text = "".join(chr(code) for codes in ranges for code in codes)
    pattern, padded = MosesTokenizer("cjk").PAD_NOT_ISALNUM
    ours, pad = LaserText(moses_tokenizer=True)._moses_words.PAD_NOT_ISALNUM
    assert re.sub(ours, pad, text) == re.sub(pattern, padded, text)
