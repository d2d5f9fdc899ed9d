"""The encoder in the package: its files, its vectors, and what it is for."""

import itertools
from pathlib import Path

import numpy as np
import pytest

import xling_jax
from xling_jax.config import find_config
from xling_jax.encode.model_directory import SHIPPED

SENTENCES = ("Where is the station?", "Wo ist der Bahnhof?", "Ich mag Tee, aber keinen Kaffee.")
# The first dimensions of their vectors.
PINNED = (
    (-0.06615160, 0.12816724, 0.05212046, -0.46639225),
    (-0.04830081, -0.00443080, 0.16397868, -0.46979508),
    (-0.06848008, -0.15751623, -0.10674809, -0.04806608),
)


@pytest.fixture(scope="module")
def mini():
    return xling_jax.load("mini")


@pytest.fixture(scope="module")
def translations():
    """Language -> 40 sentences that no encoder was trained on."""
    path = find_config("quickstart").with_name("quickstart_sentences.tsv")
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    columns = {code: place for place, code in enumerate(rows[0])}
    return {
        code: [row[columns[code]] for row in rows[1:] if all(row)]
        for code in ("de", "en", "es", "fr", "it")
    }


def test_it_is_small_and_says_what_it_is():
    files = {path.name: path.stat().st_size for path in SHIPPED["mini"].iterdir()}
    assert sum(files.values()) < 32_000_000
    card = (SHIPPED["mini"] / "README.md").read_text(encoding="utf-8")
    for word in ("licenses", "Europarl", "negation", "What scores mean"):
        assert word in card


def test_the_cosines_that_its_card_quotes_are_its_own(mini, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "lab" / "mini")
    from card_figures import EXAMPLE

    card = (SHIPPED["mini"] / "README.md").read_text(encoding="utf-8")
    examples = EXAMPLE.findall(card)
    assert len(examples) > 10
    for one, other, _, cosine in examples:
        texts = [" ".join(text.split()) for text in (one, other)]
        found = np.dot(*mini.encode(texts, normalize=True))
        assert abs(found - float(cosine)) < 0.006, (texts, found)


def test_its_vectors_are_pinned(mini):
    found = mini.encode(SENTENCES)
    assert (found.shape, found.dtype, mini.languages) == (
        (3, 256),
        np.float32,
        ("de", "en", "es", "fr", "it"),
    )
    np.testing.assert_allclose(found[:, :4], PINNED, atol=1e-5)


@pytest.mark.parametrize(("dim", "least"), [(256, 0.97), (128, 0.95), (64, 0.85)])
def test_it_finds_translations_at_every_width(mini, translations, dim, least):
    encoder = mini.truncated(dim)
    vectors = {code: encoder.encode(t, normalize=True) for code, t in translations.items()}
    right = [
        (vectors[a] @ vectors[b].T).argmax(1) == np.arange(len(vectors[a]))
        for a in vectors
        for b in vectors
        if a != b
    ]
    assert np.mean(right) > least


# Of the first English, Russian and Japanese sentence below.
PINNED_WORLD = (
    (0.01175478, 0.00710010, -0.28923640, 0.01759927),
    (-0.00393923, 0.07050584, -0.21378936, -0.07511689),
    (0.04637060, 0.19141933, 0.01799853, 0.00783595),
)


@pytest.fixture(scope="module")
def world():
    return xling_jax.load("world")


# In twelve scripts: the same three sentences.
IN_MANY_SCRIPTS = {
    "en": ("Where is the station?", "I drink tea every morning.", "The children are playing."),
    "ru": ("Где находится вокзал?", "Я пью чай каждое утро.", "Дети играют."),
    "el": ("Πού είναι ο σταθμός;", "Πίνω τσάι κάθε πρωί.", "Τα παιδιά παίζουν."),
    "ar": ("أين المحطة؟", "أشرب الشاي كل صباح.", "الأطفال يلعبون."),
    "he": ("איפה התחנה?", "אני שותה תה כל בוקר.", "הילדים משחקים."),
    "hi": ("स्टेशन कहाँ है?", "मैं हर सुबह चाय पीता हूँ।", "बच्चे खेल रहे हैं।"),
    "ja": ("駅はどこですか。", "私は毎朝お茶を飲みます。", "子供たちは遊んでいます。"),
    "ko": ("역이 어디에 있나요?", "나는 매일 아침 차를 마신다.", "아이들이 놀고 있다."),
    "zh": ("车站在哪里？", "我每天早上喝茶。", "孩子们在玩。"),
    "th": ("สถานีอยู่ที่ไหน", "ฉันดื่มชาทุกเช้า", "เด็กๆ กำลังเล่น"),
    "ka": ("სად არის სადგური?", "ყოველ დილით ჩაის ვსვამ.", "ბავშვები თამაშობენ."),
    "ta": ("நிலையம் எங்கே?", "நான் தினமும் காலையில் தேநீர் குடிக்கிறேன்.", "குழந்தைகள் விளையாடுகிறார்கள்."),
}


def test_world_finds_translations_in_twelve_scripts(world):
    vectors = {code: world.encode(t, normalize=True) for code, t in IN_MANY_SCRIPTS.items()}
    for source, target in itertools.permutations(vectors, 2):
        nearest = (vectors[source] @ vectors[target].T).argmax(1)
        assert nearest.tolist() == [0, 1, 2], (source, target)


def test_the_vectors_of_world_are_pinned(world):
    assert len(world.languages) == 56 and world.calibration
    found = world.encode([IN_MANY_SCRIPTS[code][0] for code in ("en", "ru", "ja")])
    np.testing.assert_allclose(found[:, :4], PINNED_WORLD, atol=1e-5)
    files = [path.stat().st_size for path in SHIPPED["world"].iterdir()]
    assert sum(files) < 32_100_000
