"""Rows for the validation loss, or that repeat text of an evaluation, are never trained on."""

import json

import numpy as np
import pytest

from tests.corpora.small_corpus import WORDS, prepare, settings, tree, vocab_path, write_corpus
from xling_jax.corpora.held_out import file_hashes
from xling_jax.corpora.shards import VALIDATION, PairTokens
from xling_jax.corpora.stages import load_prepared
from xling_jax.files.hashes import content_hash
from xling_jax.text.vocab import Vocab

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.fixture
def corpus(tmp_path) -> str:
    return write_corpus(tmp_path / "corpus.tsv", 300)


def rows_of(directory, pair: str, vocab: Vocab) -> list[tuple[str, str]]:
    tokens = PairTokens(directory / pair)
    sides = []
    for code in tokens.languages:
        rows, width = np.arange(len(tokens)), int(tokens.lengths[code].max())
        ids = tokens.gather(code, rows, width, vocab.pad_id)
        lengths = tokens.lengths[code]
        sides.append([vocab.decode(row[:n]) for row, n in zip(ids, lengths)])
    return list(zip(*sides, strict=True))


def test_pairs_for_validation_are_taken_out_with_all_their_copies(corpus, tmp_path):
    header, *lines = (tmp_path / "corpus.tsv").read_text("utf-8").splitlines()
    (tmp_path / "again.tsv").write_text(
        "\n".join([header, *map(str.title, lines[::-1])]) + "\n", "utf-8"
    )
    copy = f"tsv:{tmp_path}/again.tsv"
    found = {}
    for name, specs in (("a", (corpus, copy)), ("b", (copy, corpus))):
        made = prepare(workdir=tmp_path / name, **settings(*specs, validation_pairs=20))
        vocab = Vocab(vocab_path(made))
        for pair in made.pairs:
            held = rows_of(made.directory / VALIDATION, pair, vocab)
            trained = rows_of(made.directory, pair, vocab)
            assert len(held) == len({*held}) == 20 and not {*held} & {*trained}
            assert len(trained) == len({*lines}) - 20
            assert found.setdefault(pair, {*held}) == {*held}, "depends on the order of corpora"
        counts = made.counts["corpora"][corpus]["de-en"]
        reasons = ("rows", "duplicate", "no_tokens", "validation")
        assert counts["kept"] == sum(counts[reason] for reason in reasons)
        assert made.counts["validation"]["de-en"]["rows"] == 20
    again = prepare(workdir=tmp_path / "b", **settings(copy, corpus, validation_pairs=20))
    assert again == made == load_prepared(tmp_path / "b")
    # Without it, everything is as if it had never been.
    prepare(workdir=tmp_path / "b", **settings(corpus))
    prepare(workdir=tmp_path / "c", **settings(corpus))
    names = ("data/de-en", "data/validation", "vocab")
    assert all(tree(tmp_path / "b" / name) == tree(tmp_path / "c" / name) for name in names)


def test_more_pairs_for_validation_than_there_are_is_an_error(corpus, tmp_path):
    with pytest.raises(ValueError, match="validation_pairs=300 would leave none of the .* de-en"):
        prepare(workdir=tmp_path / "w", **settings(corpus, validation_pairs=300))


def test_corpora_of_an_evaluation_are_held_out_of_training_by_either_side(corpus, tmp_path):
    lines = (tmp_path / "corpus.tsv").read_text("utf-8").splitlines()
    german = lines[1].split("\t")[0]
    dev = tmp_path / "dev.tsv"
    english = " ".join(["bread"] * len(german.split()))
    dev.write_text(f"de\ten\n{german.title()}!\t{english}\n", "utf-8")
    expected = sum(line.split("\t")[0] == german for line in lines)
    for number, spec in enumerate((f"tsv:{dev}", f"{dev}?columns=de,en")):
        made = prepare(workdir=tmp_path / f"w{number}", **settings(corpus, evaluation=(spec,)))
        assert made.counts["held_out"] == {spec: {"de-en": expected, "en-fr": expected}}
    assert made.counts["corpora"][corpus]["de-en"]["held_out"] == expected > 0
    kept = prepare(workdir=tmp_path / "w0", **settings(corpus))
    assert kept.counts["corpora"][corpus]["de-en"]["held_out"] == 0
    assert "held_out" not in kept.counts


def test_an_evaluation_may_have_languages_that_no_pair_has(corpus, tmp_path):
    english = (tmp_path / "corpus.tsv").read_text("utf-8").splitlines()[1].split("\t")[1]
    (tmp_path / "dev.en").write_text(f"{english}\n", "utf-8")
    (tmp_path / "dev.it").write_text("casa\n", "utf-8")
    specs = settings(
        corpus, languages=("de", "en", "fr", "it"), evaluation=(f"moses:{tmp_path}/dev",)
    )
    counts = prepare(workdir=tmp_path / "w", **specs).counts["held_out"]
    assert counts[f"moses:{tmp_path}/dev"] == {"de-en": 1, "en-fr": 1}


def test_evaluation_files_are_held_out_and_counted_file_by_file(corpus, tmp_path):
    lines = (tmp_path / "corpus.tsv").read_text("utf-8").splitlines()[1:]
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "test.fr.txt").write_text(lines[0].split("\t")[2] + "\n", "utf-8")
    (tmp_path / "dev" / "picture.png").write_bytes(b"\x89PNG\xff\xfe\x00\n\n")
    english = lines[1].split("\t")[1]
    (tmp_path / "dev.tsv").write_text(f"1\t{english}\n", "utf-8")
    evaluation = (f"{tmp_path}/dev", f"{tmp_path}/dev.tsv")
    made = prepare(workdir=tmp_path / "w", **settings(corpus, evaluation=evaluation))
    counts = {name.rpartition("/")[2]: pairs for name, pairs in made.counts["held_out"].items()}
    assert counts == {
        "test.fr.txt": {"de-en": 1, "en-fr": 1},
        "picture.png": {"de-en": 0, "en-fr": 0},
        "dev.tsv": {"de-en": 1, "en-fr": 1},
    }
    assert json.loads((tmp_path / "w/data/counts.json").read_text("utf-8")) == made.counts
    texts = {
        text for row in rows_of(made.directory, "de-en", Vocab(vocab_path(made))) for text in row
    }
    assert english.lower() not in texts
    # What data.exclude names already makes no difference: such a run of 0.2 goes on.
    both = settings(corpus, exclude=evaluation[1:])
    before = prepare(workdir=tmp_path / "x", **both)
    after = prepare(workdir=tmp_path / "x", **both | {"evaluation": evaluation[1:]})
    assert before.fingerprint == after.fingerprint


@pytest.mark.parametrize(
    ("name", "content", "labels"),
    [
        ("dev.tsv", 'de\ten\n"Ja,\ndoch"\t"Yes\tso"\nNein\tNo\n', ("de", "en")),
        ("test.de.tsv", "Sport\tJa, doch\nSport\tYes so\nKunst\tNein\nSport\tNo\n", ("Sport",)),
        ("dev.csv", 'Nein,"Yes, so"\n"Ja,\ndoch",No\n', ()),
        ("dev.txt", "\ufeffJa,\tdoch\r\nYes so\r\nNein\r\nNo\r\n", ()),
        (
            "a.jsonl",
            '{"id": "a", "b": "Ja,\\ndoch"}\n\n{"b": {"c": ["Yes so", "Nein.", "No"]}}',
            "a",
        ),
    ],
)
def test_texts_are_held_out_whatever_separates_their_words(tmp_path, name, content, labels):
    (tmp_path / name).write_text(content, encoding="utf-8")
    found = file_hashes(tmp_path / name, ("de", "en"))
    assert {*map(content_hash, ("ja doch", "yes so", "nein", "no"))} <= found
    assert found.isdisjoint(map(content_hash, labels))


def test_other_text_held_out_than_a_run_began_with_is_explained(corpus, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.tsv").write_text(f"en\n{name} word of {WORDS['en'][0]}\n", "utf-8")
    first, second = (f"{tmp_path}/{name}.tsv" for name in ("a", "b"))
    kept = lambda **changes: prepare(
        workdir=tmp_path / "w", keep=True, **settings(corpus, **changes)
    )
    made = kept(evaluation=(first,))
    assert kept(evaluation=(first,)) == made
    assert kept(exclude=(first,)).fingerprint == made.fingerprint
    with pytest.raises(
        ValueError, match=f"trained on other data: the held-out text is now .*{second}"
    ) as error:
        kept(evaluation=(second,))
    assert f"hold_out_evaluation=False --config.data.exclude=\"('{first}',)\"" in str(error.value)
