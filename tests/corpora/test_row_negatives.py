"""Hard negatives from a file: the rows of its texts, found once."""

from pathlib import Path

import numpy as np
import pytest

from tests.corpora.small_corpus import settings, tree, write_corpus
from xling_jax.corpora import row_negatives
from xling_jax.corpora.prepare import load_prepared, prepare
from xling_jax.corpora.row_negatives import read_row_negatives
from xling_jax.corpora.shards import PairTokens
from xling_jax.text.vocab import Vocab
from xling_jax.train.batches import DataOptions, TranslationBatches

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "corpus.tsv"
    return write_corpus(path, 150), [
        line.split("\t") for line in path.read_text("utf-8").splitlines()
    ][1:]


def rows_of(prepared, pair, language):
    """Lower-cased text -> its row in the token shards."""
    vocab, tokens = Vocab(prepared.vocab_path), PairTokens(prepared.directory / pair)
    rows = np.arange(len(tokens))
    ids = [tokens.gather(language, rows[r : r + 1], tokens.lengths[language][r], 0) for r in rows]
    return {vocab.decode(line[0]): row for row, line in enumerate(ids)}


def test_negatives_are_rows_of_the_pairs_that_have_both_texts(corpus, tmp_path):
    spec, ((de, en, fr), *others) = corpus
    file = tmp_path / "negatives.tsv"
    lines = [
        f"{de}\t{others[0][1]}\t{others[1][0]}\tnot in the text\t{others[2][2]}",
        f"  {others[3][2]}  \t{others[4][1]}\t{others[3][2]}",  # one is its own row
        "",
        "nowhere\tat all",
    ]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    prepared = prepare(workdir=tmp_path / "w", **settings(spec, negatives=str(file)))
    for pair, column, expected in (
        ("de-en", 1, {0: [1, 2]}),  # the French text is in another pair
        ("en-fr", 2, {4: [5]}),
    ):
        row_of = rows_of(prepared, pair, pair.split("-")[1])
        rows = [row_of[texts[column].lower()] for texts in corpus[1]]
        found = read_row_negatives(prepared.directory, pair, len(rows))
        for row, number in zip(rows, range(len(rows))):
            wanted = [rows[n] for n in expected.get(number, [])]
            assert found[row].tolist() == wanted + [-1] * (8 - len(wanted))
    with pytest.raises(ValueError, match=r"de-en.npy: missing or damaged hard negatives: .*remove"):
        read_row_negatives(prepared.directory, "de-en", 7)

    data = {"batch_size": 40, "bucket_lengths": (64,), "hard_negatives": 0.5}
    batches = TranslationBatches(
        prepared.directory,
        DataOptions(("de-en",), negatives_file=str(file), **data),
        **{"languages": ("de", "en", "fr"), "prefix": (), "suffix": (), "pad_id": 0, "seed": 0},
    )
    row_of = rows_of(prepared, "de-en", "en")
    first, second = row_of[en.lower()], row_of[others[0][1].lower()]
    planned = [batches.plan[index].rows for index in range(12)]
    alone = [n for n, rows in enumerate(planned) if first in rows[:15] and second not in rows]
    assert alone, "it takes a batch in which the plan does not have both"
    assert all(second in batches.entry(index).rows for index in alone)


def test_negatives_are_found_once_and_count_as_data(corpus, tmp_path, monkeypatch):
    spec, rows = corpus
    plain = prepare(workdir=tmp_path / "w", **settings(spec))
    file = tmp_path / "negatives.tsv"
    file.write_text(f"{rows[0][0]}\t{rows[1][0]}\n", "utf-8")
    with_file = settings(spec, negatives=str(file))
    made = prepare(workdir=tmp_path / "w", **with_file)
    assert made.fingerprint != plain.fingerprint
    before = tree(tmp_path / "w/data/negatives")
    with monkeypatch.context() as patch:
        patch.setattr(row_negatives, "_read", lambda path: pytest.fail("read again"))
        assert prepare(workdir=tmp_path / "w", **with_file) == made
    file.write_text(f"{rows[0][0]}\t{rows[2][0]}\n", "utf-8")
    assert prepare(workdir=tmp_path / "w", **with_file).fingerprint != made.fingerprint
    assert tree(tmp_path / "w/data/negatives") != before
    assert (
        prepare(workdir=tmp_path / "w", **settings(spec)) == plain == load_prepared(tmp_path / "w")
    )
    assert not Path(tmp_path, "w/data/negatives").exists()


@pytest.mark.parametrize(
    "text, reason",
    [
        ("one\ttwo\nalone\n", "negatives.tsv:2: must have a text and at least one negative"),
        ("one\t \n", "negatives.tsv:1: must have a text and at least one negative"),
        ("nowhere\tat all\n", "negatives.tsv: no training row has one of its texts"),
    ],
)
def test_a_file_without_use_is_refused(corpus, tmp_path, text, reason):
    file = tmp_path / "negatives.tsv"
    file.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=reason):
        prepare(workdir=tmp_path / "w", **settings(corpus[0], negatives=str(file)))
    assert not (tmp_path / "w/data/negatives").exists()
