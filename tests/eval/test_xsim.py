"""xSIM and xSIM++: brute force, LASER's search with faiss, errors by type, the task."""

import json
import types

import numpy as np
import pytest

from xling_jax.align import knn
from xling_jax.cli import main
from xling_jax.eval.ranking import nearest_by_margin
from xling_jax.eval.retrieval_data import ParallelText, RetrievalData
from xling_jax.eval.xsim import Altered, Xsim, measure_direction
from xling_jax.report.page import make_page
from xling_jax.report.runs import Run

MARGINS = ("ratio", "distance", "absolute")


def embeddings(n=60, extra=0, dim=8, noise=0.8, seed=0):
    random = np.random.default_rng(seed)
    # A common direction, so that the mean cosine of a neighborhood is positive.
    meaning = 1 + random.standard_normal((n, dim))
    source = meaning + noise * random.standard_normal((n, dim))
    target = meaning + noise * random.standard_normal((n, dim))
    more = 1 + random.standard_normal((extra, dim))
    return knn.normalize(source), knn.normalize(np.concatenate([target, more]))


def brute_force(x, y, margin, k, pool=None):
    """Every pair in float64, one query after the other."""
    x, y, pool = (np.asarray(side, np.float64) for side in (x, y, x if pool is None else pool))
    around = np.sort(y @ pool.T, axis=1)[:, -k:].mean(axis=1)
    found = []
    for row in x @ y.T:
        nearest = np.argsort(-row, kind="stable")[:k]
        means = (row[nearest].mean() + around[nearest]) / 2
        scores = {"ratio": row[nearest] / means, "distance": row[nearest] - means}
        found.append(nearest[scores.get(margin, row[nearest]).argmax()])
    return np.array(found)


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize(("k", "extra"), [(1, 0), (4, 0), (4, 40), (10, 5)])
def test_the_search_equals_brute_force(margin, k, extra):
    x, y = embeddings(extra=extra)
    expected = brute_force(x, y, margin, k)
    np.testing.assert_array_equal(nearest_by_margin(x, y, margin=margin, k=k), expected)
    assert 0 < (expected != np.arange(60)).sum() < 60
    pool = np.concatenate([x, y[::-1][:20]])
    np.testing.assert_array_equal(
        nearest_by_margin(x, y, margin=margin, k=k, source_pool=pool),
        brute_force(x, y, margin, k, pool),
    )


@pytest.mark.parametrize("margin", MARGINS)
def test_the_search_finds_what_laser_finds(margin):
    faiss = pytest.importorskip("faiss")
    x, y = embeddings(n=300, extra=100)
    x, y = (np.concatenate([side, side[:50]]).astype(np.float32) for side in (x, y))
    by_source, by_target = faiss.IndexFlatIP(x.shape[1]), faiss.IndexFlatIP(x.shape[1])
    by_source.add(x)
    by_target.add(y)
    if margin == "absolute":
        expected = by_target.search(x, 1)[1][:, 0]
    else:
        cosine, nearest = by_target.search(x, 4)
        source_mean, target_mean = cosine.mean(axis=1), by_source.search(y, 4)[0].mean(axis=1)
        means = (source_mean[:, None] + target_mean[nearest]) / 2
        scores = cosine / means if margin == "ratio" else cosine - means
        expected = nearest[np.arange(len(x)), scores.argmax(axis=1)]
    found = nearest_by_margin(x, y, margin=margin)
    # Which of equal vectors is found is chance on both sides; texts are the same.
    first = np.concatenate([np.arange(400), np.arange(50)])
    np.testing.assert_array_equal(first[found], first[expected])


def test_copies_of_the_right_text_are_right_only_if_texts_are_compared():
    # Unit vectors whose products are exact, so that those of copies are equal everywhere.
    x = np.random.default_rng(0).choice([-1 / 16, 1 / 16], (30, 256))
    x[:, :64] = 1 / 16
    y = x.copy()
    y[:, 64:70] *= -1
    x, y = np.concatenate([x, x[:10]]), np.concatenate([y, y[:10]])
    ids = np.concatenate([np.arange(30), np.arange(10)])
    assert measure_direction(x, y, text_ids=ids)["xsim"] == 0
    assert measure_direction(x, y)["xsim"] == pytest.approx(10 / 40)


def test_errors_are_counted_by_what_was_found_instead():
    angles = np.radians([0, 40, 80, 120])
    circle = lambda radians: np.stack([np.cos(radians), np.sin(radians)], axis=1)
    altered = [
        Altered(0, "number", "nearer than the right one"),
        Altered(1, "entity", "the same for the second"),
        Altered(2, "causality", "nearest to the fourth"),
        Altered(2, "entity", "far away"),
    ]
    copies = circle(np.radians([0, 40, 120, 300]))
    target = circle(angles + np.radians(3))
    cell = measure_direction(
        circle(angles), target, altered=altered, altered_vectors=copies, margin="absolute"
    )
    assert cell["xsim"] == 0 and cell["num_queries"] == cell["num_candidates"] == 4
    # The fourth finds a copy of the third.
    shares = {name: cell[name] for name in ("misaligned", "causality", "entity", "number")}
    assert shares == {"misaligned": 0.25, "causality": 0, "entity": 0.25, "number": 0.25}
    assert cell["xsim_plus_plus"] == 0.75


def test_distractors_are_misaligned_and_shape_neighborhoods():
    x, y = embeddings(n=50, extra=30)
    own, others = embeddings(n=20, extra=5, seed=1)
    cell = measure_direction(x, y[:50], distractors=y[50:], source_distractors=own)
    expected = brute_force(x, y, "ratio", 4, np.concatenate([x, own]))
    assert cell["xsim"] == pytest.approx((expected != np.arange(50)).mean())
    assert cell["num_candidates"] == 80
    copies = [Altered(row, "number", "") for row in range(25)]
    cell = measure_direction(x, y[:50], altered=copies, altered_vectors=others, distractors=y[50:])
    expected = brute_force(x, np.concatenate([y, others]), "ratio", 4)
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


def measure(texts, name="toy", **options):
    data = RetrievalData(name, (ParallelText(name, texts),))
    return Xsim(**options).measure(types.SimpleNamespace(encode=encode), data)[name]


def test_copies_are_candidates_into_their_language_only(altered):
    matrix = measure(TEXTS, altered=(altered,))
    into, out_of = matrix.cells["de", "en"], matrix.cells["en", "de"]
    assert "xsim_plus_plus" in into and "xsim_plus_plus" not in out_of
    assert into["num_queries"] == out_of["num_queries"] == 3
    kinds = sum(into[kind] for kind in ("misaligned", "causality", "entity", "number"))
    assert into["xsim_plus_plus"] == pytest.approx(kinds) and into["xsim_plus_plus"] > 0
    only = measure(TEXTS)
    assert only.metrics == ["xsim"] and only.mean("xsim") == matrix.mean("xsim")
    # The name of the file may have any code of its language.
    named = measure({"eng": TEXTS["en"], "deu": TEXTS["de"]}, altered=(altered,))
    assert named.cells["deu", "eng"] == into


def test_rows_without_a_translation_change_nothing(altered):
    texts = {
        # The first has a copy, too, and the last has those of the third.
        "en": ["He came from Rome.", "", *TEXTS["en"][:3], TEXTS["en"][0]],
        "de": ["", "Nur hier", *TEXTS["de"][:3], TEXTS["de"][0]],
    }
    complete = {code: column[2:] for code, column in texts.items()}
    for match in ("text", "index"):
        options = {"match": match, "altered": (altered,)}
        found, expected = measure(texts, **options), measure(complete, **options)
        assert found.cells == expected.cells
        assert expected.cells["de", "en"]["xsim_plus_plus"] > 0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("toy.en.tsv", "kind\taltered\n", ":1: the header must name original; found kind"),
        ("toy.en.tsv", "", ":1: the first line must name the columns"),
        ("toy.en.tsv", ALTERED + "number\ttwo cells\n", ":8: a row must have 3 cells .*; found 2"),
        ("toy.en.tsv", ALTERED + "tense\ta\tb\n", ":8: kind"),
        ("toy.en.tsv", "kind\toriginal\taltered\nentity\ta\tb\n", "none of its originals"),
        ("toy.tsv", ALTERED, r"must be named NAME.LANG.tsv\[.gz\]"),
        ("toy.ru.tsv", ALTERED, "ru"),
    ],
)
def test_broken_files_of_copies_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        measure(TEXTS, altered=(tmp_path / name,))


def test_a_text_without_a_common_row_is_refused():
    with pytest.raises(ValueError, match="no row has text in two of en, de"):
        measure({"en": ["Hello", ""], "de": ["", "Hallo"]})


def test_copies_are_like_the_texts_of_their_rows():
    circle = lambda degrees: np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], 1)
    source, target = circle([0, 60, 120]), circle([10, 80, 150])
    altered = [Altered(2, "number", "nearest to the third, of whose text it is")]
    settings = {"altered": altered, "altered_vectors": circle([119]), "margin": "absolute"}
    cell = measure_direction(source, target, text_ids=np.array([7, 5, 9]), **settings)
    assert (cell["number"], cell["misaligned"]) == (pytest.approx(1 / 3), 0)


@pytest.fixture
def files(tmp_path, stand_in):
    stand_in(encode)
    lines = ["\t".join(TEXTS), *("\t".join(row) for row in zip(*TEXTS.values()))]
    (tmp_path / "toy.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / "toy.en.tsv").write_text(ALTERED)
    (tmp_path / "more.en.txt").write_text("In 1999 we saw 12 ships.\nSomething else 12 1999\n")
    return tmp_path


def evaluate(files, output, *options):
    argv = ["evaluate", "xsim", "--data", files / "toy.tsv", "--output", files / output, *options]
    return main.main([*map(str, argv)])


def test_the_task_writes_its_table(files, capsys):
    assert evaluate(files, "out", "--model", "m", "--altered", files / "toy.en.tsv") == 0
    table = capsys.readouterr().out
    assert "| de-en" in table and "| xSIM++ |" in table and "xSIM, from" in table
    written = json.loads((files / "out/results.json").read_text())
    metrics = written["metrics"]
    assert metrics["toy/xsim_plus_plus"] >= metrics["toy/xsim"]
    (file,) = written["settings"]["altered"]
    assert file["path"].endswith("toy.en.tsv") and written["settings"]["margin"] == "ratio"
    report = make_page([Run("m", None, results=[written])], title="t")
    assert report.count("xSIM++") >= 2 and "misaligned" in report
    assert (files / "out/toy.matrix.png").exists()


def test_distractors_add_candidates_without_those_that_are_texts(files):
    options = ("--model", "m", "--distractors", files / "more.en.txt")
    assert evaluate(files, "out", *options) == 0
    matrix = json.loads((files / "out/results.json").read_text())["matrices"]["toy"]
    assert matrix["num_candidates"] == {"en": {"de": 3}, "de": {"en": 4}}
    sides = [TEXTS["de"][:3], [*TEXTS["en"][:3], "Something else 12 1999"]]
    x, y = (knn.normalize(encode(texts)) for texts in sides)
    wrong = brute_force(x, y, "ratio", 4) != np.arange(3)
    assert matrix["xsim"]["de"]["en"] == pytest.approx(wrong.mean())


def test_distractors_that_are_altered_copies_are_no_candidates(files):
    (files / "more.en.txt").write_text("It is a good plan.\nSomething else 12 1999\n")
    options = ("--distractors", files / "more.en.txt", "--altered", files / "toy.en.tsv")
    assert evaluate(files, "out", "--model", "m", *options) == 0
    matrix = json.loads((files / "out/results.json").read_text())["matrices"]["toy"]
    assert matrix["num_candidates"]["de"]["en"] == 4


def test_ready_vectors_give_xsim_only(files, capsys):
    (files / "vectors").mkdir()
    for code, texts in TEXTS.items():
        np.save(files / f"vectors/toy.{code}.npy", encode(texts).astype(np.float32))
    vectors = ("--embeddings", files / "vectors")
    assert evaluate(files, "a", *vectors, "--altered", files / "toy.en.tsv") == 2
    assert "needs a model" in capsys.readouterr().err
    assert evaluate(files, "a", *vectors) == 0
    assert evaluate(files, "b", "--model", "m") == 0
    a, b = (json.loads((files / out / "results.json").read_text())["metrics"] for out in "ab")
    assert a == pytest.approx(b)


@pytest.mark.parametrize("option", [("--altered", "no.en.tsv"), ("--k", "0")])
def test_wrong_options_are_refused_in_one_line(files, capsys, option):
    assert evaluate(files, "out", "--model", "m", *option) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1 and not (files / "out").exists()
