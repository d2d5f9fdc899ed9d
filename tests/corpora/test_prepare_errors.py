"""Preparation of what cannot be prepared, and on disks that take no more."""

import pytest

from tests.corpora.small_corpus import prepare, settings, vocab_path, write_corpus
from xling_jax.corpora.stages import load_prepared

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.fixture
def corpus(tmp_path) -> str:
    return write_corpus(tmp_path / "corpus.tsv", 300)


@pytest.mark.parametrize(
    "content, message",
    [
        ("de\ten\n\t\n \t \n", "no row holds text in de or en"),
        ("", "empty"),
        (
            "de\ten\nJa\t\n\tYes\n",
            r"cleaning dropped every row \(2 empty\)|none of 2 rows has both",
        ),
        ("de\ten\nOK\tOK\n", r"cleaning dropped every row \(1 identical\)"),
    ],
)
def test_a_corpus_without_usable_rows_is_named(tmp_path, content, message):
    path = tmp_path / "corpus.tsv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        prepare(workdir=tmp_path / "w", **settings(f"tsv:{path}", pairs=("de-en",)))
    assert "corpus.tsv" in str(error.value)
    assert not list((tmp_path / "w/data").glob("text/*"))


def test_wrong_arguments_are_explained_before_data_is_touched(corpus, tmp_path):
    for changes, message in [
        ({"pairs": ("de-xx",)}, "data.pairs: unknown language 'xx'; known: de, en, fr"),
        ({"pairs": ()}, "data.pairs must be a list of at least one"),
        ({"corpora": ()}, "data.corpora must be a list of at least one"),
        ({"corpora": (corpus, corpus)}, "data.corpora: tsv:.*corpus.tsv is named twice"),
        (
            {"vocab": {"sizes": 3}},
            "vocab.sizes is not an option of VocabOptions; did you mean size",
        ),
        ({"vocab": {"model_type": "char"}}, "vocab.model_type='char' must be one of bpe, unigram"),
        ({"cleaning": {"max_wordz": 3}}, "cleaning.max_wordz is not an option"),
        ({"layout": "bert"}, "layout='bert' must be one of laser, dual, masked"),
    ]:
        with pytest.raises(ValueError, match=message):
            prepare(workdir=tmp_path / "w", **settings(corpus, **changes))
    assert not (tmp_path / "w").exists()


def test_a_pair_no_corpus_has_is_an_error(tmp_path):
    spec = write_corpus(tmp_path / "a.tsv", 50, ("de", "en"))
    with pytest.raises(ValueError, match="no corpus has rows of en-fr"):
        prepare(workdir=tmp_path / "w", **settings(spec))


def test_a_missing_corpus_is_an_error_before_the_first_is_cleaned(corpus, tmp_path):
    with pytest.raises((ValueError, OSError), match="no.tsv"):
        prepare(workdir=tmp_path / "w", **settings(corpus, f"tsv:{tmp_path}/no.tsv"))
    assert not (tmp_path / "w/data/text").exists()


def test_a_vocabulary_of_another_family_is_refused(corpus, tmp_path):
    dual = prepare(workdir=tmp_path / "a", **settings(corpus, layout="dual"))
    vocab = {"model": str(vocab_path(dual))}
    with pytest.raises(ValueError, match="the layout 'laser' needs"):
        prepare(workdir=tmp_path / "w", **settings(corpus, vocab=vocab))


def test_loading_unprepared_data_says_what_to_run(tmp_path):
    with pytest.raises(ValueError, match="run `xling prepare`"):
        load_prepared(tmp_path)


def test_a_workdir_that_cannot_be_made_is_named(corpus, tmp_path):
    with pytest.raises(OSError, match="corpus.tsv"):
        prepare(workdir=tmp_path / "corpus.tsv" / "w", **settings(corpus))
