"""XLM's tokenizer against the one of transformers, and damaged files of others."""

import base64
import json
import random

import pytest

from xling_jax.encode.model_directory import find_model_directory
from xling_jax.text.huggingface_vocab import XlmTokenizer, load_tokenizer

transformers = pytest.importorskip("transformers")
pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

from tests.formats import huggingface_reference as reference  # noqa: E402

TEXTS = [
    *reference.TEXTS,
    "a",
    "la。 mo．ti ，su、 kel：（davi）「bor」… １２３ ％",
    "Mr. La isn't mo-ti; e.g. http://la.mo/ti?su=kel&davi <la> 'bor'",
    "la\u200bmo\tti\u00a0su\x07kel\u3000da",
    "Ünïcödé ÅÉÎ ǅ İstanbul ß ﬁ",
    "木林 かな ไทย हिन्दी العربية",
    "«la» “mo” ‘ti’ ― – — −1 1,000.50 $5 & @@ </w>",
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("xlm")
    reference.save_tokenizer("xlm", path)
    return path


def read(directory):
    """Vocabulary and merges."""
    return json.loads((directory / "vocab.json").read_text()), (
        directory / "merges.txt"
    ).read_text()


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("language", ["en", "de", "fr", "ro"])
def test_ids_are_those_of_transformers(directory, lowercase, language):
    files = [directory / name for name in ("vocab.json", "merges.txt")]
    theirs = transformers.XLMTokenizer(*map(str, files), do_lowercase_and_remove_accent=lowercase)
    ours = XlmTokenizer(*read(directory), language=language, lowercase=lowercase)
    generator = random.Random(0)
    letters = "".join(TEXTS) + "lamotirensukeldaviborné" * 9
    noise = ["".join(generator.choices(letters, k=40)) for _ in range(50)]
    for text in TEXTS + noise:
        expected = theirs.convert_tokens_to_ids(theirs._tokenize(text, lang=language))
        assert ours.encode(text) == expected, text
    known = [number for text in TEXTS for number in ours.encode(text) if number != 3]
    assert len(set(known)) > 30


def test_languages_without_spaces_between_words_are_refused(directory):
    with pytest.raises(ValueError, match="language='zh': XLM expects words from KyTea, .*use 'en'"):
        XlmTokenizer(*read(directory), language="zh", lowercase=True)


@pytest.fixture(scope="module")
def charsmap():
    pb2 = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    model = find_model_directory("mini") / "sentencepiece.model"
    return pb2.ModelProto.FromString(model.read_bytes()).normalizer_spec.precompiled_charsmap


def tokenizer_with(charsmap):
    model = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    coded = base64.b64encode(charsmap).decode()
    normalizer = {"type": "Precompiled", "precompiled_charsmap": coded}
    content = json.dumps({"version": "1.0", "model": model, "normalizer": normalizer})
    return load_tokenizer(content.encode(), "the file")


def test_a_damaged_charsmap_is_one_line_before_the_library_sees_it(charsmap, capfd):
    """It would panic, and print its stack."""
    assert tokenizer_with(charsmap).encode("\uff41").ids == [0]
    rng = random.Random(0)
    damaged = [b"", bytes(4), charsmap[:-9], charsmap[:3000], charsmap[4:], rng.randbytes(2000)]
    for place in (7, 100_001, len(charsmap) - 50):  # trie, its values, replacements
        damaged.append(charsmap[:place] + b"\xff" * 8 + charsmap[place + 8 :])
    for content in damaged:
        with pytest.raises(ValueError, match="^the file: not a tokenizer") as caught:
            tokenizer_with(content)
        assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
