"""xSIM and xSIM++: brute force, LASER's search with faiss, errors by type, the command."""

import json
import types

import numpy as np
import pytest

from xling_jax.align import knn
from xling_jax.cli import main
from xling_jax.eval.retrieval import Retrieval, nearest_by_margin, retrieval_matrix
from xling_jax.eval.retrieval_data import Altered, ParallelText, RetrievalData
from xling_jax.report.page import make_page
from xling_jax.report.runs import Run


def embeddings(n=60, extra=0, dim=8, noise=0.8, seed=0):
    random = np.random.default_rng(seed)
    # A common direction, so that the mean cosine of a neighborhood is positive.
    meaning = 1 + random.standard_normal((n, dim))
    source = meaning + noise * random.standard_normal((n, dim))
    target = meaning + noise * random.standard_normal((n, dim))
    more = 1 + random.standard_normal((extra, dim))
    return knn.normalize(source), knn.normalize(np.concatenate([target, more]))


def brute_force(x, y, pool=None, k=4):
    """Every pair in float64, one query after the other."""
    x, y, pool = (np.asarray(side, np.float64) for side in (x, y, x if pool is None else pool))
    around = np.sort(y @ pool.T, axis=1)[:, -k:].mean(axis=1)
    found = []
    for row in x @ y.T:
        nearest = np.argsort(-row, kind="stable")[:k]
        scores = row[nearest] / ((row[nearest].mean() + around[nearest]) / 2)
        found.append(nearest[scores.argmax()])
    return np.array(found)


@pytest.mark.parametrize("extra", [0, 40])
def test_the_search_equals_brute_force(extra):
    x, y = embeddings(extra=extra)
    expected = brute_force(x, y)
    np.testing.assert_array_equal(nearest_by_margin(x, y), expected)
    assert 0 < (expected != np.arange(60)).sum() < 60
    pool = np.concatenate([x, y[::-1][:20]])
    np.testing.assert_array_equal(
        nearest_by_margin(x, y, source_pool=pool), brute_force(x, y, pool)
    )


def test_the_search_finds_what_laser_finds():
    faiss = pytest.importorskip("faiss")
    x, y = embeddings(n=300, extra=100)
    x, y = (np.concatenate([side, side[:50]]).astype(np.float32) for side in (x, y))
    by_source, by_target = faiss.IndexFlatIP(x.shape[1]), faiss.IndexFlatIP(x.shape[1])
    by_source.add(x)
    by_target.add(y)
    cosine, nearest = by_target.search(x, 4)
    source_mean, target_mean = cosine.mean(axis=1), by_source.search(y, 4)[0].mean(axis=1)
    scores = cosine / ((source_mean[:, None] + target_mean[nearest]) / 2)
    expected = nearest[np.arange(len(x)), scores.argmax(axis=1)]
    found = nearest_by_margin(x, y)
    # Which of equal vectors is found is chance on both sides; texts are the same.
    first = np.concatenate([np.arange(400), np.arange(50)])
    np.testing.assert_array_equal(first[found], first[expected])


def direction(source, target, **settings):
    """The cell from source to target."""
    return retrieval_matrix({"de": source, "en": target}, **settings).cells["de", "en"]


def test_errors_are_counted_by_what_was_found_instead():
    angles = np.radians([0, 40, 80, 120, 200, 240, 280])
    circle = lambda radians: np.stack([np.cos(radians), np.sin(radians)], axis=1)
    altered = [
        Altered(0, "number", "nearer than the right one"),
        Altered(1, "entity", "the same for the second"),
        Altered(2, "causality", "far away"),
    ]
    copies = circle(np.radians([0, 40, 330]))
    cell = direction(
        circle(angles), circle(angles + np.radians(3)), altered={"en": (altered, copies)}
    )
    assert cell["xsim"] == 0 and cell["num_queries"] == cell["num_candidates"] == 7
    shares = {name: 7 * cell[name] for name in ("misaligned", "causality", "entity", "number")}
    assert shares == pytest.approx({"misaligned": 0, "causality": 0, "entity": 1, "number": 1})
    assert cell["xsim_plus_plus"] == pytest.approx(2 / 7)


def test_distractors_are_misaligned_and_shape_neighborhoods():
    x, y = embeddings(n=50, extra=30)
    own, others = embeddings(n=20, extra=5, seed=1)
    distractors = {"de": own, "en": y[50:]}
    cell = direction(x, y[:50], distractors=distractors)
    pool = np.concatenate([x, own])
    expected = brute_force(x, y, pool)
    assert cell["xsim"] == pytest.approx((expected != np.arange(50)).mean())
    copies = [Altered(row, "number", "") for row in range(25)]
    cell = direction(x, y[:50], altered={"en": (copies, others)}, distractors=distractors)
    expected = brute_force(x, np.concatenate([y, others]), pool)
    found_copy = expected - 80 == np.arange(50)
    assert cell["number"] == pytest.approx(found_copy.mean())
    wrong = (expected != np.arange(50)).mean()
    assert cell["xsim_plus_plus"] == pytest.approx(wrong)
    assert cell["misaligned"] == pytest.approx(wrong - found_copy.mean())


TEXTS = {
    "en": ["In 1999 we saw 12 ships.", "It is not a good plan.", "He came from Rome.", ""],
    "de": ["1999 sahen wir 12 Schiffe.", "Das ist kein guter Plan.", "Er kam aus Rom.", "Nur hier"],
}
ALTERED = """kind\toriginal\taltered
number\tIn 1999 we saw 12 ships.\tIn 1998 we saw 12 ships.
number\tIn 1999 we saw 12 ships.\tIn 1999 we saw 13 ships.
causality\tIt is not a good plan.\tIt is a good plan.
entity\tHe came from Rome.\tHe came from Bonn.
causality\tIt is not a good plan.\tDas ist ein guter Plan.
entity\tNot in the data.\tNor in the.
"""


@pytest.fixture
def altered(tmp_path):
    (tmp_path / "toy.en.tsv").write_text(ALTERED)
    return tmp_path / "toy.en.tsv"


def encode(texts):
    """Bags of letters and digits, so that a small change is a near copy."""
    rows = np.array(
        [[text.count(c) for c in "abcdefghijklmnopqrstuvwxyz0123456789"] for text in texts]
    )
    return rows + 0.01


def measure(texts, **options):
    data = RetrievalData("toy", (ParallelText("toy", texts),))
    return Retrieval(**options).measure(types.SimpleNamespace(encode=encode), data)["toy"]


def test_copies_are_candidates_into_their_language_only(altered):
    matrix = measure(TEXTS, altered=(altered,))
    into, out_of = matrix.cells["de", "en"], matrix.cells["en", "de"]
    assert "xsim_plus_plus" in into and "xsim_plus_plus" not in out_of
    kinds = sum(into[kind] for kind in ("misaligned", "causality", "entity", "number"))
    assert into["xsim_plus_plus"] == pytest.approx(kinds) and into["xsim_plus_plus"] > 0
    assert measure(TEXTS).mean("xsim") == matrix.mean("xsim")
    # The name of the file may have any code of its language.
    named = measure({"eng": TEXTS["en"], "deu": TEXTS["de"]}, altered=(altered,))
    assert named.cells["deu", "eng"] == into


def test_any_white_space_in_an_original_is_a_space_of_the_file(altered):
    """A cell of a TSV holds neither the tab nor the line break of a text in TMX."""
    broken = TEXTS | {"en": [text.replace(" ", "\n\t") for text in TEXTS["en"]]}
    cells = [measure(texts, altered=(altered,)).cells["de", "en"] for texts in (TEXTS, broken)]
    assert cells[0] == cells[1]


def test_rows_without_a_translation_change_nothing(altered):
    texts = {
        # The first has a copy, too, and the last has those of the third.
        "en": ["He came from Rome.", "", *TEXTS["en"][:3], TEXTS["en"][0]],
        "de": ["", "Nur hier", *TEXTS["de"][:3], TEXTS["de"][0]],
    }
    complete = {code: column[2:] for code, column in texts.items()}
    found, expected = (
        measure(columns, altered=(altered,), diagonal=False) for columns in (texts, complete)
    )
    assert found.cells == expected.cells
    assert expected.cells["de", "en"]["xsim_plus_plus"] > 0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("toy.en.tsv", "kind\taltered\n", ":1: the header must name original; found kind"),
        ("toy.en.tsv", ALTERED + "tense\ta\tb\n", ":8: kind"),
        ("toy.en.tsv", "kind\toriginal\taltered\nentity\ta\tb\n", "none of its originals"),
        ("toy.tsv", ALTERED, r"must be named NAME.LANG.tsv\[.gz\]"),
    ],
)
def test_broken_files_of_copies_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        measure(TEXTS, altered=(tmp_path / name,))


def test_the_command_writes_xsim_plus_plus(tmp_path, altered, stand_in, capsys):
    stand_in(encode)
    lines = ["\t".join(TEXTS), *("\t".join(row) for row in zip(*TEXTS.values()))]
    (tmp_path / "toy.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "more.en.txt").write_text("It is a good plan.\nSomething else 12 1999\n")
    words = ["evaluate", "retrieval", "--model", "m", "--data", tmp_path / "toy.tsv"]
    words += ["--altered", altered, "--distractors", tmp_path / "more.en.txt"]
    assert main.main([*map(str, [*words, "--output", tmp_path / "out"])]) == 0
    table = capsys.readouterr().out
    assert "| xSIM++ " in table and "| misaligned " in table
    written = json.loads((tmp_path / "out/results.json").read_text())
    assert written["metrics"]["toy/xsim_plus_plus"] >= written["metrics"]["toy/xsim"]
    assert written["settings"]["altered"][0]["path"].endswith("toy.en.tsv")
    # A distractor that is an altered copy is none.
    assert written["matrices"]["toy"]["num_candidates"]["de"]["en"] == 4
    report = make_page([Run("m", None, results=[written])], title="t")
    assert "xSIM++" in report
