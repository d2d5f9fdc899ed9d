"""TMX files: languages, markup, broken bytes and broken XML."""

import pytest

from xling_jax.corpora.readers.base import Row
from xling_jax.corpora.specs import read_corpus
from xling_jax.files.lines import MAX_LINE_BYTES


def _tmx(*units: str, head: str = '<?xml version="1.0" encoding="UTF-8"?>\n') -> str:
    body = "\n".join(f"<tu>{unit}</tu>" for unit in units)
    return f'{head}<tmx version="1.4"><header srclang="en"/><body>\n{body}\n</body></tmx>\n'


def _tuv(tag: str, text: str) -> str:
    return f'<tuv xml:lang="{tag}"><seg>{text}</seg></tuv>'


def _read(path, content: str | bytes, languages=("de", "en")) -> list[Row]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_corpus(f"tmx:{path}", languages))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.tmx"


def test_units_are_rows_with_the_line_of_the_unit(path):
    content = _tmx(_tuv("en", "yes") + "\n" + _tuv("de", "ja"), _tuv("de", "nein &amp; so"))
    assert _read(path, content) == [
        Row({"en": "yes", "de": "ja"}, str(path), 3),
        Row({"de": "nein & so"}, str(path), 5),
    ]


def test_languages_match_by_code_then_prefix_then_alias(path):
    content = _tmx(
        _tuv("DE-de", "ja") + _tuv("eng", "yes") + _tuv("pt-BR", "sim") + _tuv("PT-PT", "siim")
    )
    (row,) = _read(path, content, ("de", "en", "pt", "pt_BR"))
    assert row.texts == {"de": "ja", "en": "yes", "pt_BR": "sim", "pt": "siim"}


def test_first_variant_with_text_counts(path):
    content = _tmx(_tuv("en-US", " ") + _tuv("en-GB", "colour") + _tuv("en", "x") + _tuv("de", "F"))
    assert _read(path, content)[0].texts == {"en": "colour", "de": "F"}


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ('a <bpt i="1">&lt;b&gt;</bpt>b<ept i="1">&lt;/b&gt;</ept> <hi>c</hi><ph>x</ph>', "a b c"),
        ("one<ph>{n}</ph>two", "one two"),
        ("one<it>{/i}</it><ph><sub>n</sub></ph>two", "one two"),
        ("one<ph/>, two<ph/> three<ph/>", "one, two three"),
        ("o<bpt>{b}</bpt>n<ept>{/b}</ept>e", "one"),
    ],
)
def test_a_placeholder_between_letters_leaves_a_space(path, segment, text):
    assert _read(path, _tmx(_tuv("en", segment) + _tuv("de", "d")))[0].texts["en"] == text


def test_what_a_file_has_instead_of_pairs_is_said(path):
    no_segments = _tmx(_tuv("en-US", "x") + _tuv("de", "y")).replace("seg>", "note>")
    with pytest.raises(ValueError, match="found de, en-US, but not both with text in <seg>$"):
        _read(path, no_segments)
    with pytest.raises(ValueError, match="is <xliff>, not <tmx>; read it as xlf:.*memory.tmx$"):
        _read(path, "<xliff><file/></xliff>")


def test_broken_bytes_and_nul_cost_one_unit(path):
    pairs = [_tuv("de", text) + _tuv("en", "x") for text in ("a", "BROKEN", "NUL", "b")]
    content = _tmx(*pairs).encode().replace(b"BROKEN", b"f\xfcr").replace(b"NUL", b"a\0b")
    assert [row.problem for row in _read(path, content)] == [None, "broken_utf8", "nul_byte", None]


def test_control_characters_become_spaces(path):
    unit = _tuv("de", "a\x01b&#x1;c&#9;d\uffff\ufffe&#xfffe;e") + _tuv("en", "x")
    assert _read(path, _tmx(unit))[0].texts["de"] == "a b c\td   e"


def test_character_reference_across_chunks_is_whole(path, monkeypatch):
    content = _tmx(_tuv("de", "a&#x2;&#228;&amp;b") + _tuv("en", "x")).encode()
    for size in range(1, 9):
        chunks = [content[i : i + size] for i in range(0, len(content), size)]
        monkeypatch.setattr(
            "xling_jax.corpora.readers.xml_units.read_chunks", lambda *_, c=chunks: iter(c)
        )
        assert _read(path, content)[0].texts["de"] == "a ä&b"


def test_too_long_segment_is_a_problem(path):
    content = _tmx(_tuv("de", "x" * (MAX_LINE_BYTES + 1)) + _tuv("en", "x"), _tuv("de", "a"))
    content = content.replace("</body>", f"<tu>{_tuv('de', 'a')}{_tuv('en', 'b')}</tu></body>")
    assert [row.problem for row in _read(path, content)] == ["line_too_long", None, None]


@pytest.mark.parametrize(
    ("content", "line"),
    [("", 1), ("<tmx>\n<body>\n</tmx>", 3), (_tmx(_tuv("de", "a\n\nb & c")), 5), ("plain\n", 1)],
)
def test_xml_that_is_not_well_formed_is_an_error_with_its_line(path, content, line):
    with pytest.raises(ValueError, match=rf"memory\.tmx:{line}: not well-formed XML"):
        _read(path, content)


def test_file_without_a_pair_is_an_error_that_lists_its_languages(path):
    with pytest.raises(ValueError, match=r"no translation unit has two of de, en; found de, fr-FR"):
        _read(path, _tmx(_tuv("de", "a") + _tuv("fr-FR", "b")))
