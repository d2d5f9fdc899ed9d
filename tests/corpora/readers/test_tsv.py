"""TSV files, plain and compressed: what is read, what is counted as broken, what is an error."""

import bz2
import gzip
import lzma
import tracemalloc

import pytest
import zstandard

from tests.corpora.small_corpus import read_rows, write_file
from xling_jax.corpora.readers.base import Row
from xling_jax.corpora.specs import read_corpus
from xling_jax.files import lines
from xling_jax.files.lines import MAX_LINE_BYTES

_COMPRESS = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
}


def test_tsv_gives_wanted_columns_with_file_and_line(tmp_path):
    path = write_file(tmp_path / "a.tsv", "id\ten\tfr\tde\n1\tyes\toui\tja\n2\tno\t\tnein\n")
    assert read_rows(f"tsv:{path}", ("de", "fr", "it")) == [
        Row({"de": "ja", "fr": "oui"}, path, 2),
        Row({"de": "nein"}, path, 3),
    ]


@pytest.mark.parametrize(
    "content, rows",
    [
        ("de\ten\n \t\u00a0\n\n  \nja\tyes", [{}, {}, {}, {"de": "ja", "en": "yes"}]),
        ("\ufeffde\ten\r\nja\tyes\r\n", [{"de": "ja", "en": "yes"}]),
        ("de\ten\na\u2028b\x0bd\x1ce\rf\tx\n", [{"de": "a\u2028b\x0bd\x1ce\rf", "en": "x"}]),
    ],
)  # fmt: skip
def test_what_a_cell_and_a_line_are(tmp_path, content, rows):
    """Blank cells are no text; only line feeds end a line."""
    assert [row.texts for row in read_rows(write_file(tmp_path / "a.tsv", content))] == rows


@pytest.mark.parametrize("suffix", ["", ".zst"])
@pytest.mark.parametrize("length", [0, 1, 2_000_000])
def test_a_line_may_have_a_million_bytes(tmp_path, suffix, length):
    problem = "line_too_long" if length else None
    line = b"x" * (MAX_LINE_BYTES - len("\tyes") + length) + b"\tyes"
    content = _COMPRESS.get(suffix, bytes)(b"de\ten\n" + line + b"\nnein\tno\n" + line)
    rows = read_rows(write_file(tmp_path / f"a.tsv{suffix}", content))
    assert [(row.line, row.problem) for row in rows] == [(2, problem), (3, None), (4, problem)]


def test_zstd_files_may_have_a_long_window(tmp_path):
    long = zstandard.ZstdCompressionParameters.from_level(1, window_log=29, enable_ldm=True)
    stream = zstandard.ZstdCompressor(compression_params=long).compressobj()
    content = stream.compress(b"de\ten\nja\tyes\n") + stream.flush()
    assert read_rows(write_file(tmp_path / "a.tsv.zst", content))[0].texts == {
        "de": "ja",
        "en": "yes",
    }


@pytest.mark.parametrize("suffix", _COMPRESS)
def test_compressed_file_reads_as_the_plain_one(tmp_path, suffix):
    content = "de\ten\n" + "".join(f"Satz {i} ä\tsentence {i}\n" for i in range(20_000))
    path = write_file(tmp_path / f"a.tsv{suffix}", _COMPRESS[suffix](content.encode()))
    rows = read_rows(path)
    assert len(rows) == 20_000
    assert rows[-1] == Row({"de": "Satz 19999 ä", "en": "sentence 19999"}, path, 20_001)


def test_several_compressed_frames_in_a_file_are_all_read(tmp_path):
    for suffix, compress in _COMPRESS.items():
        parts = compress(b"de\ten\nja\tye") + compress(b"s\nnein\tno\n")
        path = write_file(tmp_path / f"a.tsv{suffix}", parts)
        assert [row.texts["en"] for row in read_rows(path)] == ["yes", "no"]


@pytest.mark.parametrize("suffix", _COMPRESS)
def test_damaged_compressed_file_is_an_error_that_names_it(tmp_path, suffix):
    content = "de\ten\n" + "".join(f"{i * i}\t{i**3}\n" for i in range(5_000))
    for damaged in (_COMPRESS[suffix](content.encode())[:-9], content):  # cut, or not compressed
        path = write_file(tmp_path / f"a.tsv{suffix}", damaged)
        with pytest.raises(ValueError, match=rf"a\.tsv{suffix}: damaged compressed file"):
            read_rows(path)


def test_glob_reads_files_in_order_and_skips_those_without_a_pair(tmp_path):
    second = write_file(tmp_path / "b.tsv", "en\tde\nno\tnein\n")
    first = write_file(tmp_path / "a.tsv", "de\ten\nja\tyes\n")
    write_file(tmp_path / "c.tsv", "en\tpt\nno\tnão\n")
    assert [(row.file, row.texts["de"]) for row in read_rows(f"tsv:{tmp_path}/*.tsv")] == [
        (first, "ja"),
        (second, "nein"),
    ]


def test_missing_column_is_an_error_before_reading(tmp_path):
    path = write_file(tmp_path / "a.tsv", "src\ten\nja\tyes\n")
    with pytest.raises(ValueError) as error:
        read_corpus(path, ("de", "en"))
    assert str(error.value).startswith(f"{path}:1: the header must name at least two of de, en;")
    assert str(error.value).endswith("say which they are, ?columns=de:NAME,en:NAME")


def test_a_line_of_text_in_place_of_a_header_is_shown_as_it_reads(tmp_path):
    path = write_file(tmp_path / "a.tsv", "Er scherzt über sie\tHe jokes\nja\tyes\n")
    with pytest.raises(
        ValueError, match=r"found 'Er .* sie<TAB>He jokes'; .*a\.tsv\?columns=de,en;"
    ):
        read_corpus(path, ("de", "en"))


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", r":1: the first line must name the columns"),
        (b"  \n\n", r":1: the first line must name the columns"),
        (b"de\ten\n", r": no row holds text in de or en"),
        (b"de\ten\n\t\n \t \n", r": no row holds text in de or en"),
        (b"de\ten\tde\nja\tyes\tja\n", r":1: the header names 'de' twice"),
        ("de\ten\nja\tyes\n".encode("utf-16"), r": is UTF-16; .* iconv -f UTF-16 -t UTF-8$"),
        ("de\ten\nja\tyes\n".encode("utf-16-le"), r": is UTF-16; text must be UTF-8"),
        (b"f\xfcr\ten\nja\tyes\n", r":1: the header must be UTF-8"),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            r": is a git-lfs pointer.* git lfs pull$",
        ),
        (gzip.compress(b"de\ten\nja\tyes\n", mtime=0), r": is gzip, not text; name it \.gz$"),
        (b"a.tsv".ljust(257, b"\0") + b"ustar", r": is a tar archive, .* tar -xf$"),
        (b"PAR1\0\0", r": is Parquet, not text; corpora .* write the column as lines of text$"),
    ],
)
def test_broken_files_are_errors_with_file_and_line(tmp_path, content, message):
    path = write_file(tmp_path / "a.tsv", content)
    with pytest.raises(ValueError, match=rf"a\.tsv{message}"):
        read_rows(path)


def test_a_row_with_another_number_of_cells_is_a_problem(tmp_path):
    content = 'de\ten\nja\nja\tyes\nja\tyes\tdoch\n"Nein"\tsay "no"\nnein\t"no\nnot"\n'
    rows = read_rows(write_file(tmp_path / "a.tsv", content))
    wrong = {row.line: row.detail for row in rows if row.problem == "wrong_row"}
    assert [*wrong] == [2, 4, 7]
    assert wrong[2] == "a row must have 2 cells (de, en); found 1"
    assert wrong[7].endswith("add ?quotes=yes to the path")
    assert rows[3].texts == {"de": '"Nein"', "en": 'say "no"'}


def test_broken_utf8_and_nul_lines_are_rows_with_a_problem(tmp_path):
    path = write_file(tmp_path / "a.tsv", b"de\ten\nja\tyes\nf\xfcr\tfor\na\0b\tc\nnein\tno\n")
    assert read_rows(path) == [
        Row({"de": "ja", "en": "yes"}, path, 2),
        Row({}, path, 3, "broken_utf8"),
        Row({}, path, 4, "nul_byte"),
        Row({"de": "nein", "en": "no"}, path, 5),
    ]


def test_a_line_without_end_is_refused_at_its_limit(monkeypatch):
    with pytest.raises(ValueError, match="^/dev/zero:1: a line must be below 1,000,000 bytes"):
        next(lines.iterate_lines("/dev/zero"))
    monkeypatch.setattr(lines, "_ENDLESS_BYTES", 3 * MAX_LINE_BYTES)
    with pytest.raises(ValueError, match="^/dev/zero: no line end in 3,.* bytes; is it text"):
        list(lines.read_line_blocks("/dev/zero"))


def test_lines_that_end_in_cr_alone_are_refused(tmp_path):
    path = write_file(tmp_path / "a.tsv", b"de\ten\rja\tyes\rnein\tno\r")
    with pytest.raises(ValueError, match=r"a\.tsv: lines end in CR alone; convert it with tr"):
        read_rows(path)
    path = write_file(tmp_path / "a.tsv", b"de\ten\nja\rdoch\tyes")
    assert read_rows(path) == [Row({"de": "ja\rdoch", "en": "yes"}, path, 2)]


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "a.tsv.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(b"de\ten\n" + b"ja\tyes\n" * 100_000)
        for _ in range(30):
            stream.write(b"x" * MAX_LINE_BYTES)
        stream.write(b"\nja\tyes\n")
    tracemalloc.start()
    count = sum(1 for _ in read_corpus(str(path), ("de", "en")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 100_002
    assert peak < 16 * MAX_LINE_BYTES
