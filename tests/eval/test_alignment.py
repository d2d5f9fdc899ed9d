"""Recall of document alignment: rules by hand, cells against the LAWDR estimator, bad data."""

import gzip
import json

import numpy as np
import pytest

from benchmarks.sentence_alignment import score_sentence_alignment
from xling_jax.align.matching import align_documents
from xling_jax.documents import records as document_data
from xling_jax.documents.alignment import AlignmentOptions, match_urls
from xling_jax.documents.lawdr import Lawdr
from xling_jax.eval import alignment
from xling_jax.eval.alignment import CELLS, Alignment, PairCounts

DIM = 24
NUM_DOCUMENTS = 40
LANGUAGES = ("en", "de", "fr")


def test_micro_recall_counts_pairs_and_macro_recall_languages():
    counts = {("en", "de"): PairCounts(90, 90, 95), ("en", "fr"): PairCounts(10, 0, 8)}
    result = alignment.AlignmentResult({"biased-mean-cosine": counts}, {}, {})
    assert result.micro_recall("biased-mean-cosine") == 0.9
    assert result.macro_recall("biased-mean-cosine") == 0.5
    metrics = result.scores()
    assert metrics == {
        "recall": 0.9,
        "recall_biased_mean_cosine": 0.9,
        "macro_recall_biased_mean_cosine": 0.5,
    }


def test_cells_without_a_component_removed_are_shown_as_biased():
    counts = {"debiased-mean-cosine": {("en", "de"): PairCounts(10, 4, 8)}}
    result = alignment.AlignmentResult(counts, {"en": 0, "de": 0}, {})
    table = alignment._table("news", result)
    assert "debiased" not in table and "Language components removed: none." in table
    assert table.count("| biased-mean-cosine |") == 2


def records(seed=0):
    """Documents of the same sentences in three languages, "LANG NUMBER" each."""
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(NUM_DOCUMENTS):
        numbers = rng.integers(1000, size=rng.integers(2, 9)).tolist()
        for code in LANGUAGES:
            rows.append(
                {"id": f"d{index}", "lang": code, "sentences": [f"{code} {n}" for n in numbers]}
            )
    return rows


def encode(texts):
    """A direction of the text's number under three times as much of its language."""
    vectors = np.empty((len(texts), DIM), np.float32)
    for row, text in enumerate(texts):
        code, number = text.split()[:2]
        language = np.random.default_rng(5000 + LANGUAGES.index(code)).standard_normal((3, DIM))
        rng = np.random.default_rng(int(number))
        meaning = rng.standard_normal(DIM)
        local = np.random.default_rng(int(number) + 77 * LANGUAGES.index(code))
        vectors[row] = meaning + local.uniform(1, 4, 3) @ language
    return vectors


def measure(encode, data, cells=CELLS, baselines=(), **options):
    options = AlignmentOptions(**options)
    return alignment.measure_alignment(encode, data, options, cells, dict(baselines))


@pytest.fixture
def write(tmp_path):
    def write(rows, name="toy.dev.jsonl"):
        path = tmp_path / name
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return path

    return write


def test_the_report_says_which_cell_and_with_what_a_recall_is():
    metrics = {"news/recall": 0.5, "news/recall_biased_mean_margin": 0.25}
    for rank, urls, how in (
        (0, False, "biased-weighted-margin"),
        (4, False, "debiased-weighted-margin, 4 components"),
        (4, True, "debiased-weighted-margin, 4 components, URLs first"),
    ):
        matrices = {"news": {"ranks": {"de": rank, "en": rank}}}
        results = {"metrics": metrics, "settings": {"cells": [*CELLS], "url_matching": urls}}
        rows = Alignment.summary(results | {"matrices": matrices})
        assert rows == [("news", {"recall": 50.0}, how)]


def test_equal_ids_are_the_gold_pairs_of_all_languages(write):
    rows = [row for row in records() if (row["id"], row["lang"]) != ("d3", "de")]
    data = document_data.load_alignment_data(write(rows, "toy.dev.jsonl.gz"))
    assert data.name == "toy_dev" and list(data.documents) == [*LANGUAGES]
    assert {pair: len(gold) for pair, gold in data.gold.items()} == {
        ("en", "de"): 39,
        ("en", "fr"): 40,
        ("de", "fr"): 39,
    }
    for (first, second), gold in data.gold.items():
        sides = data.documents[first].ids, data.documents[second].ids
        assert all(sides[0][i] == sides[1][j] for i, j in gold)


def test_languages_are_chosen_and_unknown_ones_told(write):
    path = write(records())
    data = document_data.load_alignment_data(path, ["fr", "en"])
    assert list(data.gold) == [("fr", "en")]
    with pytest.raises(ValueError, match="no document has the same id in two of the languages en"):
        document_data.load_alignment_data(path, ["en"])


def test_fingerprints_tell_text_and_gold_but_not_compression(write):
    rows = records()
    plain = document_data.load_alignment_data(write(rows)).description["sha256"]
    packed = document_data.load_alignment_data(write(rows, "b.jsonl.gz"))
    assert packed.description["sha256"] == plain
    rows[5]["sentences"][0] += " more"
    assert document_data.load_alignment_data(write(rows)).description["sha256"] != plain


def representations(data, rank, code):
    """Document vectors by the estimator with the settings of each name."""
    side = data.documents[code]
    vectors = encode(side.sentences)
    return {
        f"{bias}-{pooling}": Lawdr(
            rank=rank if bias == "debiased" else None,
            weighting="kde" if pooling == "weighted" else "none",
        )
        .fit(vectors)
        .transform(vectors, side.offsets)
        for bias in ("biased", "debiased")
        for pooling in ("mean", "weighted")
    }


def test_cells_are_those_of_the_estimator_and_of_align_documents(write):
    data = document_data.load_alignment_data(write(records()), ["en", "de"])
    result = measure(encode, data, debias=3)
    assert list(result.counts) == list(CELLS) and result.ranks == {"en": 3, "de": 3}
    sides = [representations(data, 3, code) for code in ("en", "de")]
    gold = data.gold["en", "de"]
    for cell in CELLS:
        name, _, similarity = cell.rpartition("-")
        pairs = align_documents(*(side[name] for side in sides), similarity=similarity)
        num_correct = sum((i, j) in gold for _, i, j in pairs)
        assert result.counts[cell]["en", "de"] == PairCounts(40, num_correct, len(pairs))
    assert result.micro_recall("debiased-mean-margin") > 0.9
    assert result.micro_recall("biased-mean-cosine") < 0.6


def test_each_sentence_is_encoded_once_whatever_is_measured(write):
    texts = []

    def counting(batch):
        texts.extend(batch)
        return encode(batch)

    rows = records()
    data = document_data.load_alignment_data(write(rows))
    measure(counting, data, debias=2)
    expected = [
        s for code in LANGUAGES for row in rows if row["lang"] == code for s in row["sentences"]
    ]
    assert texts == expected


def test_baselines_see_whole_documents(write):
    data = document_data.load_alignment_data(write(records()), ["en", "fr"])
    seen = []

    def encode_whole(texts):
        seen.extend(texts)
        return encode(texts)

    result = measure(
        encode, data, cells=["biased-mean-cosine"], baselines={"document": encode_whole}
    )
    assert list(result.counts) == ["biased-mean-cosine", "document-cosine", "document-margin"]
    assert seen[0] == " ".join(records()[0]["sentences"]) and len(seen) == 2 * NUM_DOCUMENTS
    assert result.primary == "biased-mean-cosine"


def test_empty_documents_are_counted_and_never_matched(write):
    rows = records()
    for row in rows:
        if row["id"] in ("d0", "d7") and row["lang"] == "en":
            row["sentences"] = ["", "  "]
    data = document_data.load_alignment_data(write(rows), ["en", "de"])
    result = measure(
        encode, data, debias=2, baselines={"document": lambda texts: np.ones((len(texts), 3))}
    )
    assert result.num_empty == {"en": 2, "de": 0}
    for counts in result.counts.values():
        assert counts["en", "de"].num_gold == 40 and counts["en", "de"].num_aligned == 38


def test_two_files_and_gold_pairs(write):
    rows = records()
    source = write([row for row in rows if row["lang"] == "fr"], "fr.jsonl")
    target = write([row for row in rows if row["lang"] != "fr"], "others.jsonl")
    # The columns may come in either order.
    for line in ("d1\td2\n", "d2\td2\nd1\td3\n"):
        gold = target.with_name("test.pairs")
        gold.write_text(line)
        data = document_data.load_document_pairs(source, target, gold, ["fr", "en"])
        pairs = {tuple(row.split("\t")) for row in line.splitlines()}
        sides = data.documents["fr"].ids, data.documents["en"].ids
        assert {(sides[0][i], sides[1][j]) for i, j in data.gold["fr", "en"]} == pairs
    with pytest.raises(ValueError, match="others.jsonl: holds documents in en, de; set languages"):
        document_data.load_document_pairs(source, target, gold)


def test_gold_columns_of_ids_that_both_sides_have_are_read_as_the_others(write):
    names = {"fr": range(4), "en": range(2)}
    source, target = (
        write([{"id": str(i), "lang": code, "text": "a"} for i in ids], f"{code}.jsonl")
        for code, ids in names.items()
    )
    gold = source.with_name("pairs.tsv")
    gold.write_text("0\t1\n1\t3\n0\t2\n")  # target first: only the first could be either
    found = document_data.load_document_pairs(source, target, gold).gold
    assert found == {("fr", "en"): {(1, 0), (3, 1), (2, 0)}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("f1\tx\n", "pairs.tsv:2: no target document has the id 'x'"),
        ("x\te1\n", "pairs.tsv:2: no source document has the id 'x'"),
        ("f1\n", "pairs.tsv:2: must be source id<TAB>target id; found 'f1'"),
    ],
)
def test_broken_gold_pairs_are_named(write, line, message):
    source = write([{"id": "f1", "lang": "fr", "text": "a"}], "fr.jsonl")
    target = write([{"id": "e1", "lang": "en", "text": "b"}], "en.jsonl")
    gold = source.with_name("pairs.tsv")
    gold.write_text("f1\te1\n" + line)
    with pytest.raises(ValueError, match=message):
        document_data.load_document_pairs(source, target, gold)


GOOD = {"id": "a", "lang": "en", "text": "Text."}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (GOOD, "bad.jsonl:2: duplicate id 'a' in en, first in line 1"),
        ({"lang": "en", "text": "T"}, "bad.jsonl:2: a document must have 'id'.*; it has none"),
        ({"id": "b", "text": "T"}, "bad.jsonl:2: a document must have 'lang'.*; it has none"),
        ({"id": "b", "lang": "en"}, "bad.jsonl:2: a document must have 'text'"),
        ({"id": "b", "lang": "en", "sentences": [1]}, "bad.jsonl:2: a document must have 'text'"),
        (["b"], "bad.jsonl:2: a document must be a JSON object"),
        # A table of pairs would have a space there, and so another id.
        *(
            (GOOD | {"id": f"b{end}c"}, "bad.jsonl:2: a document must have 'id', a string without")
            for end in "\t\n\v\f\r\x1c\x85\u2028\u2029"
        ),
    ],
)
def test_broken_documents_are_named(write, row, message):
    with pytest.raises(ValueError, match=message):
        document_data.collect_documents(write([GOOD, row], "bad.jsonl"))


def test_a_document_without_its_domain_is_named(write):
    path = write([GOOD | {"domain": "x.org"}, GOOD | {"id": "b"}], "bad.jsonl")
    assert len(document_data.collect_documents(path)["en"]) == 2
    with pytest.raises(ValueError, match="bad.jsonl:2: a document must have 'domain'"):
        document_data.collect_documents(path, domain="domain")


def test_texts_are_split_and_sentences_kept(write):
    rows = [
        {"id": 7, "lang": "en", "text": "One. Two!\nThree"},
        {"id": "b", "lang": "en", "sentences": ["One. Two!", " ", "Three"]},
        {"id": "c", "lang": "en", "text": " "},
    ]
    side = document_data.collect_documents(write(rows))["en"]
    assert side.ids == ["7", "b", "c"] and side.lengths == [3, 2, 0]
    assert [sentence.strip() for sentence in side.sentences] == [
        *("One.", "Two!", "Three"),
        *("One. Two!", "Three"),
    ]
    assert side.offsets.tolist() == [0, 3, 5, 5] and side.num_empty == 1


def test_domains_and_urls_restrict_and_decide(write):
    rows = [row for row in records() if row["lang"] != "fr"]
    for place, row in enumerate(rows):
        number = int(row["id"][1:])
        row["domain"] = f"s{number % 4}.org"
        # Two pages that only their URLs pair.
        if number in (5, 9):
            row["url"] = f"http://{row['domain']}/{row['lang']}/{number}"
            row["sentences"] = [f"{row['lang']} {900 + place}"]
    data = document_data.load_alignment_data(write(rows), domain="domain")
    side = data.documents["en"], data.documents["de"]
    found = match_urls(*side, use_domains=True)
    assert [column.tolist() for column in found] == [[5, 9], [5, 9]]
    settings = {"debias": 2, "cells": ["debiased-mean-margin"], "domain": "domain"}
    plain = measure(encode, data, **settings)
    helped = measure(encode, data, **settings, url_matching=True)
    cell = settings["cells"][0]
    assert helped.micro_recall(cell) > plain.micro_recall(cell)
    # Documents of different domains are no pair even if their URLs say so.
    side[1].domains[5] = "other.org"
    found = match_urls(*side, use_domains=True)
    assert found[0].tolist() == [9]
    assert match_urls(*side)[0].tolist() == [5, 9]


def test_urls_pair_no_empty_documents(write):
    rows = [
        {
            "id": f"{number}{code}",
            "lang": code,
            "text": text,
            "url": f"http://a.org/{code}/{number}",
        }
        for code, texts in {"en": ("One.", "", "Three."), "de": ("Eins.", "Zwei.", "")}.items()
        for number, text in enumerate(texts)
    ]
    sides = document_data.collect_documents(write(rows))
    found = match_urls(sides["en"], sides["de"])
    assert [column.tolist() for column in found] == [[0], [0]]


def test_languages_without_sentences_are_told(write):
    rows = [{"id": "a", "lang": code, "text": "" if code == "de" else "T"} for code in LANGUAGES]
    data = document_data.load_alignment_data(write(rows))
    with pytest.raises(ValueError, match="documents in de must have sentences; found none"):
        measure(lambda texts: np.ones((len(texts), 2)), data, debias=1)


def test_scores_of_aligned_sentences_by_hand():
    gold = [(range(0, 1), range(0, 1)), (range(1, 3), range(1, 2)), (range(3, 4), range(0))]
    found = [(range(0, 1), range(0, 1)), (range(1, 2), range(1, 2)), (range(2, 4), range(0))]
    # By vecalign's score.py; [2, 3]:[] is wrong among the found ones, [3]:[] not missed.
    scores = score_sentence_alignment([found], [gold])
    assert scores["strict_precision"] == pytest.approx(1 / 3)
    assert scores["strict_recall"] == 0.5
    assert scores["lax_precision"] == pytest.approx(2 / 3) and scores["lax_recall"] == 1
    assert scores["lax_f1"] == pytest.approx(0.8)
    assert score_sentence_alignment([[]], [gold])["lax_f1"] == 0
    # Documents are counted together, and positions are of their document.
    scores = score_sentence_alignment([found[:1], gold], [gold, gold])
    assert (scores["strict_precision"], scores["strict_recall"]) == (1, 0.75)
    assert scores["strict_f1"] == pytest.approx(6 / 7)
