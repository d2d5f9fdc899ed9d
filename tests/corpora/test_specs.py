"""Corpora by name: which reader takes them, and their files."""

import pytest

from tests.corpora.small_corpus import read_rows, write_file
from xling_jax.corpora.specs import open_corpus, read_corpus


@pytest.mark.parametrize("spec", ["xls:a.xls", "tsv:", "corpus.txt", ""])
def test_unknown_kind_is_an_error_that_lists_the_kinds(spec):
    with pytest.raises(ValueError, match="tsv, csv, jsonl, parquet, hf, moses"):
        read_corpus(spec, ("de", "en"))


@pytest.mark.parametrize("spec", ["tvs:corpora/*.tsv.gz", "moses2:a.tmx"])
def test_a_misspelt_kind_is_named_though_the_suffix_is_known(spec):
    with pytest.raises(ValueError, match="its kind='.*did you mean (tsv|moses)"):
        open_corpus(spec)


def test_what_cannot_be_opened_is_an_error_with_the_pattern(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no/\*\.tsv: no such file"):
        read_corpus(f"tsv:{tmp_path}/no/*.tsv", ("de", "en"))
    with pytest.raises(IsADirectoryError, match="is a directory; name the files in it"):
        read_corpus(f"tsv:{tmp_path}", ("de", "en"))
    with pytest.raises(ValueError, match="needs two languages"):
        read_corpus("tsv:a.tsv", ("de",))


def test_corpus_files_are_those_that_are_read(tmp_path):
    german, english, french = (
        write_file(tmp_path / name, "x\n") for name in ("c.de", "c.en.gz", "c.fr")
    )
    write_file(tmp_path / "c.txt~", "no")
    files = lambda spec, *languages: open_corpus(spec).files(*languages)
    assert files(f"moses:{tmp_path}/c") == [german, english, french]
    assert files(f"moses:{tmp_path}/c", ("de", "en")) == [german, english]
    assert files(f"moses:{tmp_path}/c@de-fr") == [german, french]
    table = write_file(tmp_path / "a.tsv", "de\ten\n")
    assert files(f"tsv:{tmp_path}/*.tsv") == [table]
    named_like_a_pattern = write_file(tmp_path / "[a].tsv", "de\ten\n")
    assert files(f"tsv:{tmp_path}/[a].tsv") == [named_like_a_pattern]
    assert files("tfds:para_crawl/enfr") == []


@pytest.mark.parametrize(
    "spec, expected",
    [
        ("tsv:data/*.tsv.gz", "tsv:/here/data/*.tsv.gz"),
        ("data/corpus.tsv", "/here/data/corpus.tsv"),
        ("moses:x/europarl@de-en", "moses:/here/x/europarl@de-en"),
        ("tmx:there/*.tmx", "tmx:/here/there/*.tmx"),
        ("gettext:~/locale", "gettext:/here//home/locale"),
        ("tfds:europarl_v7/de-en?data_dir=x", "tfds:europarl_v7/de-en?data_dir=x"),
    ],
)
def test_a_corpus_can_be_moved(spec, expected, monkeypatch):
    monkeypatch.setenv("HOME", "/home")
    assert open_corpus(spec).at(lambda path: f"/here/{path}").name == expected


def test_a_corpus_may_be_cut_to_the_first_rows_of_each_file(tmp_path):
    for name in ("a", "b"):
        rows = "".join(f"{name}{number}\t{name}{number} too\n" for number in range(4))
        write_file(tmp_path / f"{name}.tsv", f"de\ten\n{rows}")
    spec = f"tsv:{tmp_path}/[ab].tsv[:2]"
    assert [row.texts["de"] for row in read_rows(spec)] == ["a0", "a1", "b0", "b1"]
    assert len(read_rows(f"{tmp_path}/a.tsv[:1_000]")) == 4
    assert open_corpus(spec).files() == [f"{tmp_path}/a.tsv", f"{tmp_path}/b.tsv"]
    assert open_corpus(spec).at(lambda where: f"/copy{where}").name == f"tsv:/copy{spec[4:]}"
    with pytest.raises(ValueError, match=r"\[:0\] would leave no rows"):
        read_rows(f"tsv:{tmp_path}/a.tsv[:0]")
    assert open_corpus("tfds:para_crawl/enfr:train[:25%]").where.endswith("[:25%]")
