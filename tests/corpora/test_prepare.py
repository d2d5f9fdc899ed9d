"""Preparation: counts, determinism, and doing only what is missing."""

import gzip
import json
import os
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from tests.corpora.small_corpus import (
    preparation,
    prepare,
    settings,
    tree,
    vocab_path,
    write_corpus,
)
from xling_jax.corpora import pair_tokens, vocabulary
from xling_jax.corpora import prepare as prepare_lib
from xling_jax.corpora.cleaning import REASONS
from xling_jax.corpora.options import VocabOptions
from xling_jax.corpora.readers.base import Reader
from xling_jax.corpora.shards import PairTokens
from xling_jax.corpora.stages import is_made_with, load_prepared
from xling_jax.files.whole import read_json, write_record
from xling_jax.text.vocab import Vocab, parse_sentencepiece, train_vocab

pytestmark = pytest.mark.usefixtures("small_chunks")


@pytest.fixture
def corpus(tmp_path) -> str:
    return write_corpus(tmp_path / "corpus.tsv", 300)


def test_rows_come_out_aligned_and_decodable(corpus, tmp_path):
    prepared = prepare(workdir=tmp_path / "w", **settings(corpus))
    assert prepared.pairs == ("de-en", "en-fr")
    assert prepared == load_prepared(tmp_path / "w")
    vocab = Vocab(vocab_path(prepared))
    assert vocab.size == 80
    tokens = PairTokens(prepared.directory / "de-en")
    lines = (tmp_path / "corpus.tsv").read_text("utf-8").lower().splitlines()[1:]
    sources = list(dict.fromkeys(tuple(line.split("\t")[:2]) for line in lines))
    assert len(tokens) == len(sources) == prepared.counts["pairs"]["de-en"]["rows"]
    assert len(list((prepared.directory / "de-en").glob("[0-9]*[0-9]"))) > 2
    for row in (0, 41, 170, len(tokens) - 1):
        for side, code in enumerate(("de", "en")):
            length = tokens.lengths[code][row]
            ids = tokens.gather(code, np.asarray([row]), length, vocab.pad_id)[0]
            assert vocab.decode(ids) == sources[row][side]
    # The text can be read by other tools.
    (path,) = (prepared.directory / "text").glob("*/de-en.tsv.gz")
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert len(lines) == 300 and all(line.count("\t") == 1 for line in lines)


def test_every_row_read_is_kept_or_counted_under_one_reason(tmp_path):
    rows = [
        "de\ten",
        "Guten Tag\tGood day",
        "Guten Tag\tgood  day",
        "\tempty side",
        "\u200b\tinvisible side",
        "Hallo\tHallo",
        "eins zwei drei vier\tone",
        "Das Haus ist\tЭто дом тут",
        "Das ist für den Test\tThis is for the test",
        "Gu\u00adter Rat\tGood advice",
        "NUL\x00\tbyte",
        "Wasser und Brot\tbread and water",
    ]
    path = tmp_path / "corpus.tsv"
    path.write_bytes("\n".join(rows).encode() + b"\nbroken\xff\tutf8\n" + b"x" * 1_200_000 + b"\n")
    (tmp_path / "dev.tsv").write_text("en\nThis is for the TEST!\n", "utf-8")
    prepared = prepare(
        workdir=tmp_path / "w",
        **settings(
            f"tsv:{path}",
            pairs=("de-en",),
            exclude=[str(tmp_path / "dev.tsv")],
            vocab={"size": 40},
            max_broken_share=0.25,
        ),
    )
    (count,) = [pairs["de-en"] for pairs in prepared.counts["corpora"].values()]
    expected = {
        "read": 13,
        "kept": 4,
        "empty": 2,
        "held_out": 1,
        "identical": 1,
        "length_ratio": 1,
        "wrong_script": 1,
        "nul_byte": 1,
        "broken_utf8": 1,
        "line_too_long": 1,
        "invisible_characters": 1,
        "duplicate": 1,
    }
    assert {name: count[name] for name in expected} == expected
    assert count["kept"] == count["rows"] + count["duplicate"] + count["no_tokens"]
    assert count["read"] == count["kept"] + sum(count[reason] for reason in REASONS)
    assert json.loads((tmp_path / "w/data/counts.json").read_text("utf-8")) == prepared.counts


def test_rows_of_the_sample_are_drawn_by_the_exponent_and_the_seed():
    totals = {"de-en": 100, "en-fr": 400}

    def draw(pair, **changes):
        given = settings("tsv:a.tsv", **changes) | {"vocab": {"sampling_exponent": 0.5}}
        given.pop("num_workers")
        return pair_tokens.draw_rows(preparation(**given), totals, 60, pair)

    first, second = draw("de-en"), draw("en-fr")
    assert (first.sum(), second.sum()) == (10, 20)  # 30 rows in proportion to the roots, 10 and 20
    np.testing.assert_array_equal(draw("de-en"), first)
    assert (draw("de-en", seed=4) != first).any()
    totals["en-fr"] = 100
    assert (draw("de-en") != draw("en-fr")).any()


def test_a_row_with_a_side_without_pieces_is_left_out():
    class Letters:
        """A vocabulary and the rows of a member; dots have no pieces."""

        size, read = 9, lambda self: [("a", "ba"), ("a", "."), (".", "b"), (".", ".")]

        def encode_flat(self, texts, num_threads):
            ids = [7 + "ab".index(c) for c in "".join(texts).replace(".", "")]
            return np.array(ids), np.array([len(text.replace(".", "")) for text in texts])

    rows, (first, second), lengths = pair_tokens.ShardWriter(Letters()).tokenize(Letters())
    assert rows == [("a", "ba")] and lengths.tolist() == [[1], [2]]
    assert (first.tolist(), second.tolist()) == ([7], [8, 7])


def test_rows_are_counted_for_the_pairs_their_file_has(tmp_path):
    (tmp_path / "c").mkdir()
    write_corpus(tmp_path / "c" / "a.tsv", 60, ("de", "en"))
    write_corpus(tmp_path / "c" / "b.tsv", 30, ("en", "fr"))
    with open(tmp_path / "c" / "b.tsv", "a") as file:
        file.write("only English here\t\n")
    spec = f"tsv:{tmp_path}/c/*.tsv"
    counts = prepare(workdir=tmp_path / "w", **settings(spec)).counts["corpora"][spec]
    assert {pair: (count["read"], count["empty"]) for pair, count in counts.items()} == {
        "de-en": (60, 0),
        "en-fr": (31, 1),
    }


def test_tokens_that_are_there_are_counted_under_the_names_of_now(tmp_path):
    """The same files in another folder, and one of which no row of a pair is left."""
    for folder in ("z", "a"):
        (tmp_path / folder).mkdir()
        for number, name in enumerate("ab"):
            path = tmp_path / folder / f"{name}.tsv"
            write_corpus(path, 40 + number, ("de", "en"), seed=number)
    french = write_corpus(tmp_path / "french.tsv", 40, ("en", "fr"))
    prepare(workdir=tmp_path / "v", **settings(write_corpus(tmp_path / "all.tsv", 300)))
    given = {"model": str(tmp_path / "v/vocab/sentencepiece.model"), "size": 80}
    of = lambda *specs: settings(*specs, french, pairs=("de-en", "en-fr"), vocab=given)
    counts_of = lambda *specs: prepare(workdir=tmp_path / "w", **of(*specs)).counts["corpora"]
    names = [f"tsv:{tmp_path}/a/a.tsv", f"tsv:{tmp_path}/a/b.tsv"]
    before = counts_of(*names)
    (tmp_path / "w/data/de-en/marker").touch()  # removed where the pair is made anew
    moved = [f"tsv:{tmp_path}/z/a.tsv", names[1]]
    after = counts_of(*moved)
    assert [after[name] for name in moved] == [before[name] for name in names]
    (tmp_path / "e.tsv").write_text("de\ten\tfr\n...\tthe street\tla rue\n", "utf-8")
    found = counts_of(*moved, f"tsv:{tmp_path}/e.tsv")[f"tsv:{tmp_path}/e.tsv"]
    assert {pair: count["rows"] for pair, count in found.items()} == {"de-en": 0, "en-fr": 1}
    assert (tmp_path / "w/data/de-en/marker").exists()


def test_broken_rows_are_logged_with_file_and_line_and_only_a_few(tmp_path, caplog):
    path = tmp_path / "corpus.tsv"
    good = "Das Haus\tthe house\n"
    path.write_bytes(b"de\ten\n" + (good.encode() + b"kaputt\xff\tbroken\n") * 6)
    options = {"pairs": ("de-en",), "vocab": {"size": 25}}
    with pytest.raises(ValueError) as error:
        prepare(workdir=tmp_path / "w", **settings(f"tsv:{path}", **options))
    assert str(error.value) == (
        f"tsv:{path}: 6 of 12 rows of de-en are broken (6 broken_utf8); if it is Latin-1, convert "
        "it with iconv -f ISO-8859-1 -t UTF-8, or allow more with "
        "--config.data.max_broken_share=0.5"
    )
    prepare(workdir=tmp_path / "w", **settings(f"tsv:{path}", **options, max_broken_share=0.5))
    warnings = [r.message for r in caplog.records if "broken utf8" in r.message]
    assert [w.split("corpus.tsv")[1] for w in warnings] == [
        f":{line}: broken utf8, row dropped" for line in (3, 5, 7)
    ]


def test_duplicates_are_dropped_over_all_corpora_and_the_first_stays(corpus, tmp_path):
    again = tmp_path / "again.tsv"
    header, *lines = (tmp_path / "corpus.tsv").read_text("utf-8").splitlines()
    again.write_text("\n".join([header, *(line.title() for line in lines)]) + "\n", "utf-8")
    one = prepare(workdir=tmp_path / "a", **settings(corpus))
    both = prepare(workdir=tmp_path / "b", **settings(corpus, f"tsv:{again}"))
    assert one.counts["pairs"]["de-en"]["rows"] == both.counts["pairs"]["de-en"]["rows"]
    count = both.counts["corpora"][f"tsv:{again}"]["de-en"]
    assert (count["kept"], count["duplicate"], count["rows"]) == (300, 300, 0)


def test_duplicates_stay_if_asked_for_and_nothing_else_changes(corpus, tmp_path):
    twice = write_corpus(tmp_path / "twice.tsv", 300)
    kept = prepare(
        workdir=tmp_path / "w", **settings(corpus, twice, cleaning={"drop_duplicates": False})
    )
    dropped = prepare(workdir=tmp_path / "w", **settings(corpus, twice))
    assert kept.counts["pairs"]["de-en"]["rows"] == 600
    assert dropped.counts["pairs"]["de-en"]["rows"] < 300 + 1
    for prepared in (kept, dropped):
        for counts in prepared.counts["corpora"].values():
            assert counts["de-en"]["kept"] == counts["de-en"]["rows"] + counts["de-en"]["duplicate"]
    assert kept.fingerprint != dropped.fingerprint


@pytest.mark.slow
def test_output_does_not_depend_on_the_number_of_processes(corpus, tmp_path):
    for num_workers in (1, 3):
        prepare(workdir=tmp_path / str(num_workers), **settings(corpus, num_workers=num_workers))
    one, three = tree(tmp_path / "1"), tree(tmp_path / "3")
    assert one == three
    assert len(one) > 20


def test_a_second_run_reads_and_writes_nothing(corpus, tmp_path, monkeypatch):
    first = prepare(workdir=tmp_path / "w", **settings(corpus))
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "w").rglob("*.npy")}

    def forbidden(*args, **kwargs):
        raise AssertionError("done already")

    monkeypatch.setattr(Reader, "rows", forbidden)
    monkeypatch.setattr(vocabulary, "train_vocab", forbidden)
    monkeypatch.setattr(pair_tokens, "write_shard", forbidden)
    assert prepare(workdir=tmp_path / "w", **settings(corpus)) == first
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "w").rglob("*.npy")}


def test_an_added_corpus_alone_is_cleaned(corpus, tmp_path, monkeypatch):
    prepare(workdir=tmp_path / "w", **settings(corpus))
    added = write_corpus(tmp_path / "added.tsv", 50, ("en", "fr"), seed=1)
    specs, read = [], Reader.rows
    monkeypatch.setattr(
        Reader, "rows", lambda self, codes: specs.append(self.name) or read(self, codes)
    )
    model = (tmp_path / "w/vocab/sentencepiece.model").read_bytes()
    prepared = prepare(workdir=tmp_path / "w", **settings(corpus, added))
    assert specs == [added]
    assert model != (tmp_path / "w/vocab/sentencepiece.model").read_bytes()
    fresh = prepare(workdir=tmp_path / "fresh", **settings(corpus, added))
    assert prepared.fingerprint == fresh.fingerprint
    changed = {"data/input_hashes.json"}
    old, new = tree(tmp_path / "w"), tree(tmp_path / "fresh")
    assert {k: v for k, v in old.items() if k not in changed} == {
        k: v for k, v in new.items() if k not in changed
    }


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_given_vocabulary_with_capitals_that_never_occur_is_named(tmp_path, lowercase, caplog):
    text = ["Haus und Hof", "Haus und Garten", "Hof und Garten"] * 5
    model = tmp_path / "cased.model"
    model.write_bytes(train_vocab(text, size=30, layout="dual", lowercase=False).model_bytes)
    options = VocabOptions(model=str(model), lowercase=lowercase)
    vocabulary.given_vocab(SimpleNamespace(vocab=options, layout="dual"))
    assert ("cased.model: " in caplog.text and "vocab.lowercase=False" in caplog.text) == lowercase
    proto = parse_sentencepiece(train_vocab(text, size=26, layout="dual").model_bytes)
    proto.trainer_spec.byte_fallback = True
    for number in range(256):
        proto.pieces.add(piece=f"<0x{number:02X}>", type=proto.SentencePiece.BYTE)
    model.write_bytes(proto.SerializeToString())
    caplog.clear()
    vocabulary.given_vocab(SimpleNamespace(vocab=options, layout="dual"))
    assert not caplog.text


def test_changed_content_of_an_input_is_noticed(corpus, tmp_path):
    first = prepare(workdir=tmp_path / "w", **settings(corpus))
    write_corpus(tmp_path / "corpus.tsv", 300, seed=5)
    second = prepare(workdir=tmp_path / "w", **settings(corpus))
    assert first.fingerprint != second.fingerprint
    fresh = prepare(workdir=tmp_path / "fresh", **settings(corpus))
    assert second.fingerprint == fresh.fingerprint
    assert tree(tmp_path / "w/data/de-en") == tree(tmp_path / "fresh/data/de-en")
    assert len(list((tmp_path / "w/data/text").iterdir())) == 1


def test_data_to_keep_are_those_of_the_same_corpora_in_the_same_order(tmp_path):
    specs = [write_corpus(tmp_path / f"{name}.tsv", 60, seed=i) for i, name in enumerate("zam")]
    first = prepare(workdir=tmp_path / "w", **settings(*specs))
    assert prepare(workdir=tmp_path / "w", keep=True, **settings(*specs)) == first
    for others in (specs[:2], sorted(specs)):
        with pytest.raises(ValueError, match="data.corpora was "):
            prepare(workdir=tmp_path / "w", keep=True, **settings(*others))
    write_corpus(tmp_path / "a.tsv", 60, seed=9)
    with pytest.raises(ValueError, match=f"other data: the text of {specs[1]} has changed; choose"):
        prepare(workdir=tmp_path / "w", keep=True, **settings(*specs))


@pytest.mark.parametrize(
    "record, was, becomes",
    [
        ("input_hashes.json", "[0-9a-f]{64}", "0" * 64),
        ("manifest.json", r'"seed": \d+', '"seed": 77'),
        ("de-en/pair.json", '"rows"', '"ross"'),
        ("de-en/00000.json", r'"rows": \d+', '"rows": 9'),
        ("de-en/00000.json", r'"hashes"', '"hasten"'),
        ("de-en/pair.json", r'"duplicate": \d+', '"duplicate": 99'),
        ("text/*/text.json", r'"kept": \d+', '"kept": 31'),
    ],
)
def test_a_flipped_bit_in_a_record_accuses_nobody_and_is_mended(tmp_path, record, was, becomes):
    corpus = write_corpus(tmp_path / "corpus.tsv", 30)
    first = prepare(workdir=tmp_path / "w", **settings(corpus))
    (path,) = (tmp_path / "w/data").glob(record)
    before = path.read_text("utf-8")
    path.write_text(re.sub(was, becomes, before, count=1), "utf-8")
    assert path.read_text("utf-8") != before
    if "0000" in record:  # training finds it, too
        with pytest.raises(ValueError, match="00000.json: damaged record; remove"):
            PairTokens(tmp_path / "w/data/de-en")
    assert prepare(workdir=tmp_path / "w", keep=True, **settings(corpus)) == first
    assert path.read_text("utf-8") == before


def test_options_that_a_version_lacks_were_as_by_default_and_those_that_are_gone_do_not_count(
    corpus, tmp_path
):
    given = {name: value for name, value in settings(corpus).items() if name != "num_workers"}
    prepare(workdir=tmp_path / "w", **given)
    manifest = json.loads((tmp_path / "w/data/manifest.json").read_text("utf-8"))
    del manifest["settings"]["teacher"], manifest["settings"]["cleaning"]["alphabet_only"]
    manifest["settings"] |= {"negatives": ""}
    manifest["settings"]["cleaning"] |= {"min_words": 1}
    assert is_made_with(manifest, preparation(**given))
    assert not is_made_with(manifest, preparation(**given | {"seed": 9}))


def test_shards_of_a_version_with_a_limit_of_tokens_are_counted(corpus, tmp_path):
    first = prepare(workdir=tmp_path / "w", **settings(corpus))
    for path in (first.directory / "de-en").glob("[0-9]*.json"):
        record = read_json(path)
        write_record(path, record | {"too_many_tokens": record.pop("no_tokens")})
    (first.directory / "de-en/pair.json").unlink()
    assert prepare(workdir=tmp_path / "w", **settings(corpus)).counts == first.counts


def test_the_number_of_first_rows_of_a_corpus_is_part_of_what_data_are(corpus, tmp_path):
    few, more = (prepare(workdir=tmp_path / "w", **settings(f"{corpus}[:{n}]")) for n in (50, 70))
    fresh = prepare(workdir=tmp_path / "fresh", **settings(f"{corpus}[:70]"))
    assert few.fingerprint != more.fingerprint == fresh.fingerprint
    assert more.counts["corpora"][f"{corpus}[:70]"]["de-en"]["read"] == 70


def test_pairs_that_are_not_wanted_any_more_are_removed(corpus, tmp_path):
    prepare(workdir=tmp_path / "w", **settings(corpus))
    (tmp_path / "w/data/.de-fr.0123.partial").mkdir()
    prepared = prepare(workdir=tmp_path / "w", **settings(corpus, pairs=("en-fr",)))
    names = sorted(p.name for p in prepared.directory.iterdir() if p.is_dir())
    assert names == ["en-fr", "text"]


@pytest.mark.parametrize("kind", ["tsv:", ""])
def test_a_moved_corpus_is_the_same_corpus(corpus, tmp_path, kind):
    first = prepare(workdir=tmp_path / "w", **settings(f"{kind}{tmp_path}/corpus.tsv"))
    (tmp_path / "elsewhere").mkdir()
    os.rename(tmp_path / "corpus.tsv", tmp_path / "elsewhere" / "corpus.tsv")
    moved = settings(f"{kind}{tmp_path}/elsewhere/corpus.tsv")
    for keep in (False, True):
        assert first.fingerprint == prepare(workdir=tmp_path / "w", keep=keep, **moved).fingerprint


def test_a_damaged_vocabulary_is_made_again(corpus, tmp_path):
    first = prepare(workdir=tmp_path / "w", **settings(corpus))
    content = vocab_path(first).read_bytes()
    vocab_path(first).write_bytes(content[: len(content) // 2])
    assert prepare(workdir=tmp_path / "w", **settings(corpus)) == first
    assert vocab_path(first).read_bytes() == content


@pytest.mark.parametrize("name", ["de.tokens.npy", "en.offsets.npy"])
def test_a_flipped_bit_in_a_shard_is_found_and_the_way_out_leads_out(corpus, tmp_path, name):
    pair = prepare(workdir=tmp_path / "w", **settings(corpus)).directory / "de-en"
    path, record = pair / "00001" / name, pair / "00001.json"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match=f"{name}: damaged token shard: .*; remove {pair} and run"):
        PairTokens(pair)
    shutil.rmtree(pair)
    prepare(workdir=tmp_path / "w", **settings(corpus))
    assert path.read_bytes() == content
    # Earlier versions recorded no hashes.
    counts = json.loads(record.read_text())
    del counts["hashes"], counts["seal"]
    record.write_text(json.dumps(counts))
    PairTokens(pair)


def test_interrupted_tokenizing_goes_on_after_the_last_whole_shard(corpus, tmp_path, monkeypatch):
    def stop_after_two(items, what, *_, **__):
        for number, item in enumerate(items, 1):
            if what == "tokenize" and number == 2:
                raise KeyboardInterrupt
            yield item

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(prepare_lib, "track", stop_after_two)
        prepare(workdir=tmp_path / "w", **settings(corpus))
    assert not (tmp_path / "w/data/de-en").exists()
    written = []
    write = pair_tokens.write_shard
    monkeypatch.setattr(
        pair_tokens, "write_shard", lambda path, c: written.append(path.name) or write(path, c)
    )
    prepare(workdir=tmp_path / "w", **settings(corpus))
    assert written == ["00002", "00003", "00000", "00001", "00002", "00003"]
    prepare(workdir=tmp_path / "fresh", **settings(corpus))
    assert tree(tmp_path / "w") == tree(tmp_path / "fresh")


@pytest.mark.parametrize("max_rows", [1, 7, 1000])
def test_first_occurrences_equal_brute_force_for_any_memory(max_rows):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**64, 40, dtype=np.uint64)
    columns = [rng.choice(values, n) for n in (50, 0, 30)]
    seen, expected = set(), []
    for value in np.concatenate(columns).tolist():
        expected.append(value not in seen)
        seen.add(value)
    keep = pair_tokens.first_occurrences(columns, max_rows=max_rows)
    assert [len(k) for k in keep] == [50, 0, 30]
    np.testing.assert_array_equal(np.concatenate(keep), expected)
