"""TFDS datasets: our builders on dummy data, and what of a dataset becomes a row."""

import subprocess
import sys
import tarfile

import numpy as np
import pytest

from xling_jax.corpora.readers import tfds as reader
from xling_jax.corpora.readers.base import Row
from xling_jax.corpora.specs import read_corpus

tfds = pytest.importorskip("tensorflow_datasets")
tfds_builders = pytest.importorskip("xling_jax.corpora.tfds_builders")


def _read(name, languages, tmp_path):
    return list(read_corpus(f"tfds:{name}?data_dir={tmp_path}", languages))


def fetch_europarl(directory, **pairs):
    """Archives as statmt.org has them, where the user puts them: de_en=[(english, german), …]."""
    target = directory / "downloads/manual/europarl_v7"
    target.mkdir(parents=True, exist_ok=True)
    for name, lines in pairs.items():
        pair = name.replace("_", "-")
        with tarfile.open(target / f"{pair}.tgz", "w:gz") as archive:
            for code, texts in zip(("en", pair.split("-")[0]), zip(*lines)):
                path = directory / f"europarl-v7.{pair}.{code}"
                path.write_text("".join(f"{text}\n" for text in texts), "utf-8")
                archive.add(path, path.name)


@pytest.fixture
def europarl(tmp_path):
    closed = "The debate is closed."
    german = [
        ("Resumption of the session", "Wiederaufnahme der Sitzungsperiode"),
        (closed, "Die Aussprache ist geschlossen."),
    ]
    fetch_europarl(tmp_path, de_en=german, fr_en=[(closed, "Le débat est clos."), ("", "(Rires)")])
    return tmp_path


def test_europarl_with_english_is_the_release_as_it_is(europarl):
    file = "tfds:europarl_v7/de-en"
    assert _read("europarl_v7/de-en", ("en", "de", "fr"), europarl) == [
        Row(
            {"en": "Resumption of the session", "de": "Wiederaufnahme der Sitzungsperiode"}, file, 1
        ),
        Row({"en": "The debate is closed.", "de": "Die Aussprache ist geschlossen."}, file, 2),
    ]


def test_europarl_without_english_is_joined_through_it(europarl):
    (row,) = _read("europarl_v7/de-fr", ("de", "en", "fr"), europarl)
    assert row.texts == {"de": "Die Aussprache ist geschlossen.", "fr": "Le débat est clos."}


def test_missing_archive_is_told_in_one_line_when_the_corpus_is_opened(tmp_path):
    fetch_europarl(tmp_path, de_en=[("Yes.", "Ja.")])
    with pytest.raises(FileNotFoundError) as error:
        read_corpus(f"tfds:europarl_v7/de-es?data_dir={tmp_path}", ("de", "es"))
    assert (
        f"es-en.tgz: no such file; wget -P {tmp_path}/downloads/manual/europarl_v7 "
        "https://www.statmt.org/europarl/v7/es-en.tgz, and likewise for the languages of other"
    ) in str(error.value)
    assert "\n" not in str(error.value)


def test_our_builder_says_where_it_comes_from(tmp_path):
    info = tfds.builder("europarl_v7/de-en", data_dir=tmp_path).info
    assert info.homepage.startswith("https://") and info.description
    assert "@inproceedings{koehn-2005-europarl" in info.citation
    assert info.as_proto.redistribution_info.license


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("europarl_v8/de-en", r"unknown dataset; did you mean europarl_v7\?"),
        ("europarl_v7/en-de", "must name a configuration of europarl_v7, .*; found 'en-de'"),
        ("europarl_v7/de-en:1.0.0", "cannot be loaded at version 1.0.0"),
        ("a b", "must be tfds:NAME"),
    ],
)
def test_wrong_name_is_an_error_of_one_line(name, message):
    with pytest.raises(ValueError, match=message) as error:
        read_corpus(f"tfds:{name}", ("de", "en"))
    assert "\n" not in str(error.value)


def test_unknown_split_is_an_error_that_lists_the_splits(europarl):
    with pytest.raises(ValueError, match="no split 'dev'; it has train"):
        _read("europarl_v7/de-en:dev", ("de", "en"), europarl)


def test_dataset_without_our_languages_is_an_error(europarl):
    with pytest.raises(
        ValueError, match="no example has text in it or pt; its features are de, en"
    ):
        _read("europarl_v7/de-en", ("it", "pt"), europarl)


def test_examples_of_every_translation_feature_become_rows():
    fixed = {"de": b"ja", "en": b"yes", "fr": b"oui"}
    variable = {
        "language": np.array([b"de", b"en", b"en", b"fr"]),
        "translation": np.array([b"ja", b"yes", b"yeah", b"oui"]),
    }
    for example in (fixed, variable, {"talk": b"x", "translations": variable}):
        row = reader._make_row(example, "tfds:x", 3, ("de", "en"))
        assert row == Row({"de": "ja", "en": "yes"}, "tfds:x", 3)


@pytest.mark.parametrize(
    ("value", "problem"),
    [(b"\xff", "broken_utf8"), (b"a\0", "nul_byte"), (b"x" * 1_000_001, "line_too_long")],
)
def test_broken_example_is_a_row_with_a_problem(value, problem):
    row = reader._make_row({"de": value, "en": b"x"}, "tfds:x", 1, ("de", "en"))
    assert row == Row({}, "tfds:x", 1, problem)


def test_reading_needs_no_tensorflow(europarl):
    _read("europarl_v7/de-en", ("de", "en"), europarl)
    code = (
        "import sys; from xling_jax.corpora.specs import read_corpus;"
        f"rows = list(read_corpus('tfds:europarl_v7/de-en?data_dir={europarl}', ('de', 'en')));"
        "assert len(rows) == 2 and 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def pivot_rows(code, *pairs):
    return [
        Row({c: t for c, t in (("en", english), (code, text)) if t}, f"x.{code}", line)
        for line, (english, text) in enumerate(pairs, 1)
    ]


def test_equal_english_joins_in_the_order_of_occurrence():
    german = pivot_rows(
        "de", ("Thank you.", "Danke."), ("One.", "Eins."), ("Thank you.", "Danke schön."),
        ("Thank you.", "Vielen Dank."), ("one.", "eins."), ("Two.", ""), ("", "Drei."),
        ("Two.", "Zwei."),
    )  # fmt: skip
    spanish = pivot_rows(
        "es", ("One.", "Uno."), ("Thank you.", "Gracias."), ("Two.", "Dos."), ("", "Tres."),
        ("Thank you.", "Muchas gracias."), ("Four.", "Cuatro."),
    )  # fmt: skip
    assert list(tfds_builders.join_on("en", german, spanish, ("de", "es"))) == [
        (1, {"de": "Danke.", "es": "Gracias."}),
        (2, {"de": "Eins.", "es": "Uno."}),
        (3, {"de": "Danke schön.", "es": "Muchas gracias."}),
        (8, {"de": "Zwei.", "es": "Dos."}),  # a row without text takes no partner
    ]
