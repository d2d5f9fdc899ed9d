"""Moses files: what is read, what is counted as broken, what is an error."""

import gzip

import pytest

from tests.corpora.small_corpus import read_rows, write_file
from xling_jax.corpora.readers.base import Row


def test_moses_joins_lines_of_all_languages_there(tmp_path):
    prefix = tmp_path / "corpus"
    german = write_file(tmp_path / "corpus.de", "ja\n\nnein\n")
    write_file(tmp_path / "corpus.en.gz", gzip.compress(b"yes\n\nno"))
    write_file(tmp_path / "corpus.fr", "oui\n\n \n")
    assert read_rows(f"moses:{prefix}", ("de", "en", "fr", "it")) == [
        Row({"de": "ja", "en": "yes", "fr": "oui"}, german, 1),
        Row({}, german, 2),
        Row({"de": "nein", "en": "no"}, german, 3),
    ]


def test_moses_pair_restricts_languages(tmp_path):
    for code in ("de", "en", "fr"):
        write_file(tmp_path / f"corpus.{code}", f"{code}\n")
    (row,) = read_rows(f"moses:{tmp_path}/corpus@en-de", ("de", "en", "fr"))
    assert row.texts == {"de": "de", "en": "en"}


@pytest.mark.parametrize(("german", "english"), [(3, 5), (5, 3), (0, 2)])
def test_unequal_moses_files_are_an_error_with_both_counts(tmp_path, german, english):
    write_file(tmp_path / "c.de", "ja\n" * german)
    write_file(tmp_path / "c.en", "yes\n" * english)
    with pytest.raises(ValueError, match=rf"c\.de has {german}, .*c\.en has {english};"):
        read_rows(f"moses:{tmp_path}/c")


def test_broken_side_of_moses_row_is_named(tmp_path):
    german = write_file(tmp_path / "c.de", "ja\nnein\n")
    english = write_file(tmp_path / "c.en", b"yes\nn\xf6\n")
    # A row is counted, and limited by [:N], for the first file, wherever it is broken.
    assert read_rows(f"moses:{tmp_path}/c")[1] == Row({}, german, 2, "broken_utf8", english)


@pytest.mark.parametrize(
    ("german", "english", "message"),
    [
        ("", "", r"c\.de: .*is empty"),
        ("\n \n", "\n \n", r"c\.de: .*no line holds text"),
        ("ja\nnein\n", "\n\n", r"c\.en: no line holds text"),
        (b"\xf6\n", "yes\n", r"c\.de: text must be UTF-8; .* is it Latin-1\?"),
        ("ja\n", None, r"at least two of de, en; found .*c\.de"),
    ],
)
def test_empty_blank_and_missing_moses_files_are_errors(tmp_path, german, english, message):
    for code, content in (("de", german), ("en", english)):
        if content is not None:
            write_file(tmp_path / f"c.{code}", content)
    with pytest.raises(FileNotFoundError if english is None else ValueError, match=message):
        read_rows(f"moses:{tmp_path}/c")
