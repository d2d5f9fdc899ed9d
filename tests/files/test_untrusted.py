"""JSON: what no JSON or no text is refused with its place."""

import pytest

from xling_jax.files.untrusted import parse_json


@pytest.mark.parametrize("text", ['{"a": ["\\ud800"]}', '{"\\uDFFF": 1}', b'{"a": "\xed\xa0\x80"}'])
def test_lone_surrogates_are_refused_unless_allowed(text):
    with pytest.raises(ValueError, match="^c.json: not valid JSON: .* lone surrogate"):
        parse_json(text, "c.json")
    assert parse_json(text, "c.json", allow_surrogates=True)


@pytest.mark.parametrize("text", ['"\\ud83d\\ude00"', b'"\xf0\x9f\x98\x80"', '"\\\\ud800"'])
def test_pairs_of_surrogates_and_escaped_backslashes_are_text(text):
    assert parse_json(text, "c.json") in ("\N{GRINNING FACE}", "\\ud800")
