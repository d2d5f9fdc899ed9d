"""TSV and Moses files: what is read, what is counted as broken, what is an error."""

import bz2
import gzip
import lzma
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from xling_jax.corpora.specs import MAX_LINE_BYTES, Row, corpus_files, read_corpus

_COMPRESS = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
}


def _write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def _read(spec: str, languages=("de", "en")) -> list[Row]:
    return list(read_corpus(spec, languages))


def test_tsv_gives_wanted_columns_with_file_and_line(tmp_path):
    path = _write(tmp_path / "a.tsv", "id\ten\tfr\tde\n1\tyes\toui\tja\n2\tno\t\tnein\n")
    assert _read(f"tsv:{path}", ("de", "fr", "it")) == [
        Row({"de": "ja", "fr": "oui"}, path, 2),
        Row({"de": "nein"}, path, 3),
    ]


def test_tsv_blank_cells_and_blank_lines_have_no_text(tmp_path):
    path = _write(tmp_path / "a.tsv", "de\ten\n \t\u00a0\n\n  \nja\tyes")
    assert [row.texts for row in _read(path)] == [{}, {}, {}, {"de": "ja", "en": "yes"}]


def test_byte_order_mark_and_windows_line_ends_are_no_text(tmp_path):
    path = _write(tmp_path / "a.tsv", b"\xef\xbb\xbfde\ten\r\nja\tyes\r\n")
    assert _read(path) == [Row({"de": "ja", "en": "yes"}, path, 2)]


def test_only_line_feeds_end_a_line(tmp_path):
    text = "a\u2028b\u0085c\x0bd\x1ce\rf"
    path = _write(tmp_path / "a.tsv", f"de\ten\n{text}\tyes\n")
    assert _read(path) == [Row({"de": text, "en": "yes"}, path, 2)]


@pytest.mark.parametrize("suffix", _COMPRESS)
def test_compressed_file_reads_as_the_plain_one(tmp_path, suffix):
    content = "de\ten\n" + "".join(f"Satz {i} ä\tsentence {i}\n" for i in range(50_000))
    path = _write(tmp_path / f"a.tsv{suffix}", _COMPRESS[suffix](content.encode()))
    rows = _read(path)
    assert len(rows) == 50_000
    assert rows[-1] == Row({"de": "Satz 49999 ä", "en": "sentence 49999"}, path, 50_001)


def test_several_compressed_frames_in_a_file_are_all_read(tmp_path):
    for suffix, compress in _COMPRESS.items():
        parts = compress(b"de\ten\nja\tye") + compress(b"s\nnein\tno\n")
        path = _write(tmp_path / f"a.tsv{suffix}", parts)
        assert [row.texts["en"] for row in _read(path)] == ["yes", "no"]


@pytest.mark.parametrize("suffix", _COMPRESS)
def test_truncated_compressed_file_is_an_error_that_names_it(tmp_path, suffix):
    content = "de\ten\n" + "".join(f"{i * i}\t{i**3}\n" for i in range(5_000))
    path = _write(tmp_path / f"a.tsv{suffix}", _COMPRESS[suffix](content.encode())[:-9])
    with pytest.raises(ValueError, match=rf"a\.tsv{suffix}: damaged compressed file"):
        _read(path)


@pytest.mark.parametrize("suffix", _COMPRESS)
def test_file_that_is_not_compressed_as_named_is_an_error(tmp_path, suffix):
    path = _write(tmp_path / f"a.tsv{suffix}", "de\ten\nja\tyes\n")
    with pytest.raises(ValueError, match="damaged compressed file"):
        _read(path)


def test_glob_reads_files_in_order_and_skips_those_without_a_pair(tmp_path):
    second = _write(tmp_path / "b.tsv", "en\tde\nno\tnein\n")
    first = _write(tmp_path / "a.tsv", "de\ten\nja\tyes\n")
    _write(tmp_path / "c.tsv", "en\tpt\nno\tnão\n")
    assert [(row.file, row.texts["de"]) for row in _read(f"tsv:{tmp_path}/*.tsv")] == [
        (first, "ja"),
        (second, "nein"),
    ]


def test_missing_column_is_an_error_before_reading(tmp_path):
    path = _write(tmp_path / "a.tsv", "deu\ten\nja\tyes\n")
    with pytest.raises(ValueError) as error:
        read_corpus(path, ("de", "en"))
    assert str(error.value).startswith(f"{path}:1: the header must name at least two of de, en;")
    assert "rename 'deu' to 'de'" in str(error.value)


def test_column_twice_is_an_error(tmp_path):
    path = _write(tmp_path / "a.tsv", "de\ten\tde\nja\tyes\tja\n")
    with pytest.raises(ValueError, match=r":1: the header names 'de' twice"):
        _read(path)


@pytest.mark.parametrize("line", ["ja", "ja\tyes\tdoch"])
def test_wrong_cell_count_is_an_error_with_file_and_line(tmp_path, line):
    path = _write(tmp_path / "a.tsv", f"de\ten\nja\tyes\n{line}\n")
    found = line.count("\t") + 1
    with pytest.raises(ValueError, match=rf"a\.tsv:3: a row must have 2 cells.*found {found}\."):
        _read(path)


@pytest.mark.parametrize("content", ["", "\n", "  \n\n"])
def test_tsv_without_header_text_is_an_error(tmp_path, content):
    path = _write(tmp_path / "a.tsv", content)
    with pytest.raises(ValueError, match=r"a\.tsv:1: the first line must name the columns"):
        _read(path)


@pytest.mark.parametrize("rows", ["", "\n\n", "\t\n \t \n"])
def test_tsv_without_text_is_an_error(tmp_path, rows):
    path = _write(tmp_path / "a.tsv", f"de\ten\n{rows}")
    with pytest.raises(ValueError, match=r"a\.tsv: no line below the header holds text"):
        _read(path)


def test_header_that_is_not_utf8_is_an_error(tmp_path):
    path = _write(tmp_path / "a.tsv", "de\ten\nja\tyes\n".encode("utf-16"))
    with pytest.raises(ValueError, match=r"a\.tsv:1: the header must be UTF-8"):
        _read(path)


def test_broken_utf8_and_nul_lines_are_rows_with_a_problem(tmp_path):
    path = _write(tmp_path / "a.tsv", b"de\ten\nja\tyes\nf\xfcr\tfor\na\0b\tc\nnein\tno\n")
    assert _read(path) == [
        Row({"de": "ja", "en": "yes"}, path, 2),
        Row({}, path, 3, "broken_utf8"),
        Row({}, path, 4, "nul_byte"),
        Row({"de": "nein", "en": "no"}, path, 5),
    ]


@pytest.mark.parametrize("suffix", ["", *_COMPRESS])
@pytest.mark.parametrize("length", [MAX_LINE_BYTES + 1, 3 * MAX_LINE_BYTES])
def test_too_long_line_is_a_row_with_a_problem(tmp_path, suffix, length):
    content = b"de\ten\nja\tyes\n" + b"x" * length + b"\nnein\tno\n"
    path = _write(tmp_path / f"a.tsv{suffix}", _COMPRESS.get(suffix, bytes)(content))
    assert [(row.line, row.problem) for row in _read(path)] == [
        (2, None),
        (3, "line_too_long"),
        (4, None),
    ]


def test_longest_line_allowed_is_read(tmp_path):
    text = "x" * (MAX_LINE_BYTES - len("\tyes"))
    path = _write(tmp_path / "a.tsv", f"de\ten\n{text}\tyes\n{text}x\tyes\n")
    assert [row.problem for row in _read(path)] == [None, "line_too_long"]


def test_too_long_last_line_without_end_is_found(tmp_path):
    path = _write(tmp_path / "a.tsv", b"de\ten\nja\tyes\n" + b"x" * (2 * MAX_LINE_BYTES))
    assert _read(path)[-1] == Row({}, path, 3, "line_too_long")


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "a.tsv.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(b"de\ten\n" + b"ja\tyes\n" * 200_000)
        for _ in range(30):
            stream.write(b"x" * MAX_LINE_BYTES)
        stream.write(b"\nja\tyes\n")
    tracemalloc.start()
    count = sum(1 for _ in read_corpus(str(path), ("de", "en")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 200_002
    assert peak < 16 * MAX_LINE_BYTES


def test_moses_joins_lines_of_all_languages_there(tmp_path):
    prefix = tmp_path / "corpus"
    german = _write(tmp_path / "corpus.de", "ja\n\nnein\n")
    _write(tmp_path / "corpus.en.gz", gzip.compress(b"yes\n\nno"))
    _write(tmp_path / "corpus.fr", "oui\n\n \n")
    assert _read(f"moses:{prefix}", ("de", "en", "fr", "it")) == [
        Row({"de": "ja", "en": "yes", "fr": "oui"}, german, 1),
        Row({}, german, 2),
        Row({"de": "nein", "en": "no"}, german, 3),
    ]


def test_moses_pair_restricts_languages_and_finds_names_with_the_pair(tmp_path):
    for code in ("de", "en", "fr"):
        _write(tmp_path / f"corpus.{code}", f"{code}\n")
        _write(tmp_path / f"other.de-en.{code}", f"{code}\n")
    for prefix in ("corpus", "other"):
        (row,) = _read(f"moses:{tmp_path}/{prefix}@en-de", ("de", "en", "fr"))
        assert row.texts == {"de": "de", "en": "en"}


@pytest.mark.parametrize(("german", "english"), [(3, 5), (5, 3), (0, 2)])
def test_unequal_moses_files_are_an_error_with_both_counts(tmp_path, german, english):
    _write(tmp_path / "c.de", "ja\n" * german)
    _write(tmp_path / "c.en", "yes\n" * english)
    with pytest.raises(ValueError, match=rf"c\.de has {german}, .*c\.en has {english}\."):
        _read(f"moses:{tmp_path}/c")


def test_broken_side_of_moses_row_is_named(tmp_path):
    _write(tmp_path / "c.de", "ja\nnein\n")
    english = _write(tmp_path / "c.en", b"yes\nn\xf6\n")
    assert _read(f"moses:{tmp_path}/c")[1] == Row({}, english, 2, "broken_utf8")


@pytest.mark.parametrize(("content", "state"), [("", "is empty"), ("\n \n", "no line holds text")])
def test_empty_and_blank_moses_files_are_errors(tmp_path, content, state):
    _write(tmp_path / "c.de", content)
    _write(tmp_path / "c.en", content)
    with pytest.raises(ValueError, match=rf"c\.de: .*{state}"):
        _read(f"moses:{tmp_path}/c")


def test_one_blank_moses_side_is_an_error(tmp_path):
    _write(tmp_path / "c.de", "ja\nnein\n")
    _write(tmp_path / "c.en", "\n\n")
    with pytest.raises(ValueError, match=r"c\.en: no line holds text"):
        _read(f"moses:{tmp_path}/c")


def test_missing_moses_side_is_an_error(tmp_path):
    _write(tmp_path / "c.de", "ja\n")
    with pytest.raises(FileNotFoundError, match=r"at least two of de, en; found .*c\.de"):
        read_corpus(f"moses:{tmp_path}/c", ("de", "en"))


@pytest.mark.parametrize("spec", ["csv:a.csv", "tsv:", "corpus.txt", ""])
def test_unknown_kind_is_an_error_that_lists_the_kinds(spec):
    with pytest.raises(ValueError, match="tsv, moses, tmx, gettext, tfds"):
        read_corpus(spec, ("de", "en"))


def test_missing_file_is_an_error_with_the_pattern(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no/\*\.tsv: no such file"):
        read_corpus(f"tsv:{tmp_path}/no/*.tsv", ("de", "en"))


def test_directory_is_an_error(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a directory; name the files in it"):
        read_corpus(f"tsv:{tmp_path}", ("de", "en"))


def test_one_language_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="needs two languages"):
        read_corpus("tsv:a.tsv", ("de",))


def test_corpus_files_are_those_that_are_read(tmp_path):
    german, english, french = (
        _write(tmp_path / name, "x\n") for name in ("c.de", "c.en.gz", "c.fr")
    )
    _write(tmp_path / "c.txt~", "no")
    assert corpus_files(f"moses:{tmp_path}/c") == [german, english, french]
    assert corpus_files(f"moses:{tmp_path}/c", ("de", "en")) == [german, english]
    assert corpus_files(f"moses:{tmp_path}/c@de-fr") == [german, french]
    table = _write(tmp_path / "a.tsv", "de\ten\n")
    assert corpus_files(f"tsv:{tmp_path}/*.tsv") == [table]
    assert corpus_files("tfds:para_crawl/enfr") == []
