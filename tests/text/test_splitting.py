import random
import time

import pyarrow
import pytest

from xling_jax.text.splitting import (
    SPLITTERS,
    check_texts,
    count_words,
    document_sentences,
    split_sentences,
)

# What text is made of, and what splitters stumble over.
ALPHABET = [*"aBé.!?…\"'«»()[] \n\t\r\v0;:", "。", "」", "؟", "।", "ß", "\u0301", "😀", "\u200b"]
ALPHABET += ["Mr.", "z. B.", "1)", "\n\n", "...", "\u3000", "\xa0", "\u2028", "\u202f", "\x85"]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ('He said "Hi." Then left.', ['He said "Hi."', "Then left."]),
        ('"Stop!" he cried. "Why?" she asked.', ['"Stop!" he cried.', '"Why?" she asked.']),
        ("“Stop!” – “and then?” Yes.", ["“Stop!” – “and then?”", "Yes."]),
        ("Pi is 3.14, not 3.", ["Pi is 3.14, not 3."]),
        ("Von der Regel, d. h. dem Satz, her.", ["Von der Regel, d. h. dem Satz, her."]),
        ("Ja... oder nein? Нет. а да.", ["Ja... oder nein?", "Нет. а да."]),
        ("all small. as in tweets.", ["all small.", "as in tweets."]),
        ("It was in 1999. 2000 was better.", ["It was in 1999.", "2000 was better."]),
        ("¿Qué? ¡No! (Sí.) – Fin.", ["¿Qué?", "¡No!", "(Sí.)", "– Fin."]),
        ("你好。再见。「是。」不？", ["你好。", "再见。", "「是。」", "不？"]),
        ("यह है। वह है।", ["यह है।", "वह है।"]),
        ("هل؟ نعم.", ["هل؟", "نعم."]),
        ("Ես այստեղ եմ: Դու՞:", ["Ես այստեղ եմ:", "Դու՞:"]),
        ("Τι ώρα είναι; Δεν ξέρω.", ["Τι ώρα είναι;", "Δεν ξέρω."]),
        ("Note: this; That", ["Note: this; That"]),
        ("a line\n\nanother\r\nand\u2028more", ["a line", "another", "and", "more"]),
        ("", []),
        (" \n\t\u3000 ", []),
        ("...", ["..."]),
    ],
)
def test_the_rule_cuts_behind_punctuation(text, sentences):
    assert split_sentences(text) == sentences


@pytest.mark.parametrize("splitter", SPLITTERS)
def test_pieces_are_the_text_but_for_white_space(splitter):
    generator = random.Random(0)
    for _ in range(2000):
        text = "".join(generator.choices(ALPHABET, k=generator.randint(0, 40)))
        pieces = split_sentences(text, splitter=splitter)
        assert "".join("".join(pieces).split()) == "".join(text.split())
        assert all(piece and piece == piece.strip() for piece in pieces)
        assert not any(end in piece for piece in pieces for end in "\n\r\f")


def test_lines_are_those_of_files():
    """A line is a row of vectors elsewhere, whatever else Unicode takes for its end."""
    lines = ["Zeile\u2028 und\x85 weiter.", "Noch eine. Zeile"]
    assert split_sentences("\r\n".join(lines), splitter="lines") == lines


def test_a_long_run_of_punctuation_takes_no_time():
    assert len(split_sentences("! " * 100_000)) == 100_000
    assert len(split_sentences("A." * 100_000)) == 1
    start = time.process_time()
    assert len(split_sentences("A" + "." * 100_000 + "B. C")) == 2
    assert time.process_time() - start < 10  # minutes, if it grows with the square


def test_another_splitter_is_refused():
    with pytest.raises(ValueError, match="splitter='spacy' must be one of rule, laser, lines"):
        split_sentences("A.", splitter="spacy")


def test_laser_splits_at_full_stops_that_stand_alone():
    def split(text):
        return document_sentences(text, splitter="laser")

    assert split("the u.s. won . and left . ") == ["the u.s. won .", "and left ."]
    assert split("no point\nat all") == ["no point at all"] and split("") == [""]
    assert split(". . a") == [".", ".", "a"]


@pytest.mark.parametrize(
    "text, num_words",
    [
        ("Good morning, Mr. Smith.", 7),
        ("l'homme qui n'est pas là", 7),
        ("a well-known 1,000.50", 3),
        ("(yes)", 3),
        ("हिन्दी में", 2),
        ("ދިވެހި ބަހެއް.", 3),
        ("اللٰہ تعالیٰ ہے۔", 4),
        ("བོད་ཀྱི་སྐད་ཡིག།", 5),
        ("日本語です", 3),
        ("สวัสดีครับ", 2),
        ("I use 日本 daily", 4),
        ("", 0),
    ],
)
def test_count_words(text, num_words):
    assert count_words(text) == num_words


def test_columns_are_texts_and_tables_are_not():
    assert check_texts(pyarrow.array(["a", "b"])) == ["a", "b"]
    with pytest.raises(ValueError, match="sentences must be one-dimensional.* pick the column"):
        check_texts(pyarrow.table({"text": ["a", "b"]}))
