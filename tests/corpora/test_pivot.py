"""Joining two corpora on the language that they share."""

from xling_jax.corpora.pivot import join_on
from xling_jax.corpora.readers.base import Row


def rows(code, *pairs):
    return [
        Row({c: t for c, t in (("en", english), (code, text)) if t}, f"x.{code}", line)
        for line, (english, text) in enumerate(pairs, 1)
    ]


def test_equal_english_joins_in_the_order_of_occurrence():
    german = rows(
        "de", ("Thank you.", "Danke."), ("One.", "Eins."), ("Thank you.", "Danke schön."),
        ("Thank you.", "Vielen Dank."), ("one.", "eins."), ("Two.", ""), ("", "Drei."),
    )  # fmt: skip
    spanish = rows(
        "es", ("One.", "Uno."), ("Thank you.", "Gracias."), ("Two.", "Dos."), ("", "Tres."),
        ("Thank you.", "Muchas gracias."), ("Four.", "Cuatro."),
    )  # fmt: skip
    assert list(join_on("en", german, spanish, ("de", "es"))) == [
        (1, {"de": "Danke.", "es": "Gracias."}),
        (2, {"de": "Eins.", "es": "Uno."}),
        (3, {"de": "Danke schön.", "es": "Muchas gracias."}),
    ]


def test_a_row_without_text_in_the_other_language_takes_no_partner():
    german = rows("de", ("Yes.", ""), ("Yes.", "Ja."))
    italian = rows("it", ("Yes.", ""), ("Yes.", "Sì."))
    assert list(join_on("en", german, italian, ("de", "it"))) == [(2, {"de": "Ja.", "it": "Sì."})]
