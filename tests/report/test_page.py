"""The report: what it reads, what it computes, what stands on the page."""

import base64
import html
import json
import re
import shutil
import types
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import xling_jax
from xling_jax.cli import main
from xling_jax.eval.retrieval_data import ParallelText, RetrievalData
from xling_jax.report import charts, tables
from xling_jax.report import runs as report_data
from xling_jax.report.errors import worst_errors
from xling_jax.report.page import make_page
from xling_jax.report.runs import Run

DIM = 8
HOSTILE = "</script><script>alert('x')</script> & \"quoted\" <b>"


def encode(texts):
    """A vector by the number in the text, whatever its language; odd German ones are astray."""
    vectors = np.zeros((len(texts), DIM))
    for row, text in enumerate(texts):
        number = int(re.search(r"\d+", text)[0]) if re.search(r"\d+", text) else 0
        astray = text.startswith("de") and number % 2
        vectors[row] = np.random.default_rng(number + 1000 * astray).normal(size=DIM)
    return vectors


def parallel(rows=8, english="en {}"):
    texts = {"en": [english.format(i) for i in range(rows)], "de": [f"de {i}" for i in range(rows)]}
    return RetrievalData("toy", (ParallelText("toy", texts),))


def retrieval_results(path="m", p_at_1=0.5):
    cells = {"en": {"de": p_at_1}, "de": {"en": 0.25}}
    matrix = {"languages": ["en", "de"], "p_at_1": cells, "error": {"en": {"de": 0.5}}}
    mean = {"p_at_1": (p_at_1 + 0.25) / 2, "error": 0.5}
    matrix |= {"mean": mean, "num_queries": {}}
    return {
        "task": "retrieval",
        "model": {"path": str(path)},
        "settings": {"similarity": "cosine"},
        "metrics": {f"toy/{metric}": value for metric, value in mean.items()},
        "matrices": {"toy": matrix},
    }


def classification_results(path="m"):
    cells = {"en": {"en": 0.9, "de": 0.7}, "de": {"en": 0.6, "de": 0.8}}
    matrix = {"accuracy": cells, "accuracy_sd": cells, "protocol": "zero-shot"}
    matrix |= {"oracle": {"en": {"en": None, "de": 0.75}, "de": {"en": None, "de": None}}}
    changed = {"task": "classification", "settings": {"protocol": "zero-shot, targeted"}}
    changed["metrics"] = {"news/same": 0.85, "news/cross": 0.65, "news/all": 0.75}
    return retrieval_results(path) | changed | {"matrices": {"news": matrix}}


@pytest.fixture
def workdir(tmp_path):
    """A run with curves, config, an encoder and results."""
    place = tmp_path / "runs" / "first"
    (place / "encoder").mkdir(parents=True)
    records = [
        {"step": 10, "train/loss": 5.0, "train/sentences_per_second": 100.0},
        {"step": 20, "train/loss": 2.0, "toy/p_at_1": 0.25},
        {"step": 20, "train/loss": 3.0, "toy/p_at_1": 0.5},
    ]
    (place / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    config = {"languages": ["de", "en"], "encoder": {"family": "dual", "layers": 0, "width": 512}}
    config["objective"] = {"reduction": "sum", "alignment": {"weight": 2.0}, "x": {"weight": 0.0}}
    (place / "config.json").write_text(json.dumps(config))
    (place / "results").mkdir()
    (place / "results" / "results.json").write_text(json.dumps(classification_results(place)))
    (place / "results" / "news.matrix.png").write_bytes(b"PNG")
    return place


@pytest.fixture
def parallel_file(tmp_path):
    part = parallel().parts[0].texts
    lines = ["en\tde", *("\t".join(row) for row in zip(*part.values()))]
    (tmp_path / "toy.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path / "toy.tsv"


def report(*words):
    return main.main(["report", *map(str, words)])


class Checker(HTMLParser):
    """Notes whether elements close in order, ids, and addresses that would be fetched."""

    VOID = {"meta", "link", "img", "path", "circle", "br", "wbr"}

    def __init__(self, page):
        super().__init__()
        self.open, self.ids, self.links, self.fetched = [], [], [], []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "action", "data", "poster"):
                (self.links if value.startswith("#") else self.fetched).append(value)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_command_writes_one_page_that_fetches_nothing(
    workdir, parallel_file, tmp_path, monkeypatch
):
    model = types.SimpleNamespace(encode=encode)
    monkeypatch.setattr(xling_jax, "load", lambda path, dtype=None: model)
    output = tmp_path / "page" / "report.html"
    assert report("--run", workdir, "--data", parallel_file, "--output", output) == 0
    page = output.read_text()
    checker = Checker(page)
    assert all(address.startswith("data:") for address in checker.fetched)
    assert "data:image/png;base64,UE5H" in checker.fetched
    assert len(set(checker.ids)) == len(checker.ids)
    assert {link[1:] for link in checker.links} <= set(checker.ids)
    assert {"runs", "compare", "curves", "classification", "errors"} <= set(checker.ids)
    assert "<figcaption>first: news.matrix</figcaption>" in page
    assert "default-src 'none'" in page and "http" not in page.replace("http-equiv", "")
    text = html.unescape(re.sub("<[^>]+>", " ", page))
    assert "dual, 0 layers, width 512" in text and "2 alignment" in text
    assert f"xling report --run {workdir} --data {parallel_file}" in text
    assert [entry.name for entry in output.parent.iterdir()] == ["report.html"]


def test_without_data_or_encoder_there_are_no_errors(workdir, parallel_file, tmp_path):
    for data in ((), ("--data", parallel_file)):
        words = ("--run", workdir, *data, "--output", tmp_path / "a.html", "--overwrite")
        assert report(*words) == 0
        assert "errors" not in set(Checker((tmp_path / "a.html").read_text()).ids)
        if not data:
            (workdir / "encoder").rmdir()


def test_wrong_use_is_one_line(workdir, tmp_path, capsys):
    output = tmp_path / "report.html"
    cases = [
        ((), "--run or --results"),
        (("--run", tmp_path / "none"), "--run"),
        (("--run", workdir, "--data", tmp_path / "none.tsv"), "--data"),
        (("--run", workdir, "--results", tmp_path / "none"), "--results"),
    ]
    for words, message in cases:
        assert report(*words, "--output", output) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]
    assert report("--run", workdir, "--output", tmp_path) == 2
    output.write_text("mine")
    assert report("--run", workdir, "--output", output) == 2
    assert output.read_text() == "mine"
    assert report("--run", workdir, "--output", output, "--overwrite") == 0


def test_the_page_goes_to_stdout(workdir, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert report("--run", workdir, "--output", "-") == 0
    Checker(capsys.readouterr().out)
    assert not Path("-").exists()


def test_broken_files_are_named(workdir, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for run, name, content, message in (
        (workdir, "metrics.jsonl", "{broken\n{}\n", "metrics.jsonl:1: must be a JSON object"),
        (workdir, "results/results.json", "{}", "results.json: must be results of xling evaluate"),
        (tmp_path / "empty", "x", "", "empty: must be a workdir"),
    ):
        (run / name).write_text(content)
        assert report("--run", run, "--output", tmp_path / "r.html") == 1
        assert message in capsys.readouterr().err
        (run / name).unlink()
    assert not (tmp_path / "r.html").exists()


def test_curves_keep_the_last_of_a_step_and_skip_a_line_in_the_making(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2, "a": 1}\n{"step": 1, "a": 5, "b": NaN}\n{"step": 2, "a": 3}\n{"st')
    assert report_data.read_curves(path) == {"a": ([1, 2], [5.0, 3.0])}


def test_results_follow_the_fingerprint_and_not_a_path_that_now_holds_another_model(
    workdir, tmp_path
):
    (workdir / "encoder/config.json").write_text('{"fingerprint": "ab1e"}')
    checkpoint = workdir / "checkpoints/00000010"
    for name, path, fingerprint, dtype in (
        ("replaced", workdir, "c0de", True),
        ("elsewhere", "elsewhere", "c0de-bfloat16", True),
        ("moved", tmp_path / "before/it/moved", "ab1e-64d", True),
        ("checkpoint", checkpoint, "d00d", True),
        ("vectors", workdir / "vectors", "5ea1", False),
    ):
        results = retrieval_results(path)
        results["model"] = {"path": str(path), "fingerprint": fingerprint}
        results["model"] |= {"dtype": "float32"} if dtype else {}
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "results.json").write_text(json.dumps(results))
    owner = {}
    for run in report_data.load_runs([workdir], [tmp_path / "out"]):
        owner |= {Path(results["model"]["path"]).name: run for results in run.results}
    run, other = owner["moved"], owner["elsewhere"]
    assert run.path == workdir and owner["00000010"] is run and owner["vectors"] is run
    assert other.path is None and len(other.results) == 2  # with the one that was replaced


def test_runs_with_equal_encoders_keep_the_results_that_lie_in_them(workdir, tmp_path):
    (workdir / "encoder/config.json").write_text('{"fingerprint": "ab1e"}')
    path = workdir / "results/results.json"
    results = json.loads(path.read_text())
    results["model"] |= {"fingerprint": "ab1e", "dtype": "float32"}
    path.write_text(json.dumps(results))
    twin = shutil.copytree(workdir, tmp_path / "twin")
    assert [len(r.results) for r in report_data.load_runs([workdir, twin], [])] == [1, 1]


def test_runs_of_one_name_are_told_apart(workdir, tmp_path):
    twin = tmp_path / "more" / "first"
    twin.mkdir(parents=True)
    (twin / "metrics.jsonl").write_text('{"step": 1, "train/loss": 1}\n')
    names = [run.name for run in report_data.load_runs([workdir, twin, workdir], [])]
    assert names[:2] == ["runs/first", "more/first"] and len(set(names)) == 3


def test_the_best_is_chosen_among_scores_of_the_same_languages():
    few, many = retrieval_results(), retrieval_results()
    many["matrices"] = {
        name: {**m, "languages": [*m["languages"], "nl"]} for name, m in many["matrices"].items()
    }
    few["metrics"] = dict.fromkeys(few["metrics"], 0.7)
    many["metrics"] = dict.fromkeys(many["metrics"], 0.2)
    runs = [Run("few", None, results=[few, few]), Run("many", None, results=[many])]
    (table,) = tables.comparison(runs)
    titles = [title for title, _ in table["groups"]]
    assert titles == ["toy (de en)", "toy (de en nl)"]
    assert not any(row.best for title, rows in table["groups"][:2] for row in rows)


def test_text_is_shown_and_never_run():
    data = parallel(english=HOSTILE + " {}")
    found = worst_errors(HOSTILE, encode, data)
    assert found.errors
    run = Run(HOSTILE, None, {}, {HOSTILE: ([1, 2], [0.5, 0.25])}, [retrieval_results()])
    page = make_page([run], [found], title=HOSTILE)
    Checker(page)
    assert "<script>alert" not in page and "<b>" not in page


def test_the_worst_errors_by_hand():
    table = {"q0": [1, 0], "q1": [0, 1], "q2": [1, 0.1], "a0": [1, 0], "a1": [1, 0.5], "a2": [1, 1]}
    texts = {"x": ["q0", "q1", "q2", ""], "y": ["a0", "a1", "a2", "a0"]}
    data = RetrievalData("toy", (ParallelText("toy", texts),))
    encode = lambda texts: np.array([table.get(text, [0, 0]) for text in texts])
    found = worst_errors("run", encode, data)
    assert found.num_queries == 6  # The row with a gap is nobody's translation.
    # q0 finds a0; of q1 a2 is nearer than a1; of q2 a0 and a1 are nearer than a2. Back, a0 finds
    # q0; of a1 q2 and q0 are nearer than q1, of a2 q2 is nearest.
    assert found.num_errors == 3
    assert [(e.direction, e.query, e.right.text, e.right.rank) for e in found.errors] == [
        ("x → y", "q2", "a2", 3),
        ("y → x", "a1", "q1", 3),
    ]
    assert [e.num_wrong for e in found.errors] == [1, 2]  # each row once
    shown = found.errors[0].retrieved
    assert [candidate.text for candidate in shown] == ["a0", "a1", "a2"]
    assert shown[0].cosine == pytest.approx(1 / np.hypot(1, 0.1), abs=1e-6)


def cells(page):
    """Rows of all tables, the cells as texts."""
    rows = re.findall(r"<tr.*?</tr>", page, re.DOTALL)
    return [
        [
            " ".join(html.unescape(re.sub("<[^>]+>", "", cell)).split())
            for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)
        ]
        for row in rows
    ]


def page_of(*runs):
    return make_page(runs, title="t")


def test_the_comparison_has_our_scores_and_the_best():
    page = page_of(
        Run("weak", None, results=[retrieval_results(p_at_1=0.25)]),
        Run("strong", None, results=[retrieval_results(p_at_1=0.75), classification_results()]),
    )
    rows = cells(page)
    assert ["System", "P@1", "error lower is better"] in rows
    assert ["weak cosine, 2 languages", "25.0", "50.0"] in rows
    assert ["strong cosine, 2 languages", "50.0", "50.0"] in rows
    assert '<td class="number best">50.0</td>' in page and 'best">25.0' not in page
    assert ["strong zero-shot", "85.0", "65.0", "75.0"] in rows


def test_the_page_says_where_its_numbers_come_from():
    results = retrieval_results() | {"command": "xling evaluate retrieval --model 'a b'"}
    results["model"] = {"path": "a b", "fingerprint": "c0ffee"}
    results["data"] = [{"name": "toy", "path": "toy.tsv", "sha256": "5ea1"}]
    drawn = classification_results() | {"settings": {"seeds": [0, 1, 2]}}
    rows = cells(page_of(Run("b", None, results=[results, drawn])))
    assert ["b: retrieval", "c0ffee", "toy 5ea1", "–", results["command"]] in rows
    assert ["b: classification", "–", "–", "0, 1, 2", "–"] in rows  # of an earlier version


def run_of(directory, models):
    """The only run of results of these models, read from their files."""
    for number, model in enumerate(models):
        (directory / str(number)).mkdir()
        results = retrieval_results(p_at_1=number / 10) | {"model": model}
        (directory / str(number) / "results.json").write_text(json.dumps(results))
    (run,) = report_data.load_runs([], [directory])
    return run


def test_results_of_checkpoints_and_of_fewer_dimensions_are_told_apart(tmp_path):
    models = [
        {"path": "runs/a", "fingerprint": "f"},
        {"path": "runs/a", "fingerprint": "f-bfloat16-64d"},
        {"path": "runs/a", "fingerprint": "f-prompt-1234567d"},
        {"path": "runs/a/checkpoints/00001000", "fingerprint": "f1"},
        {"path": "runs/a/checkpoints/00002000", "fingerprint": "f2-64d"},
    ]
    run = run_of(tmp_path, models)
    (table,) = tables.comparison([run])
    names = [row.name for row in table["groups"][0][1]]
    steps = ["a, step 1,000", "a, step 2,000, 64 dimensions"]
    assert names == ["a", "a, 64 dimensions", "a", *steps]
    assert all(f"{name}: retrieval" in page_of(run) for name in names)


def test_curves_have_titles_in_words():
    curves = {
        "train/mfu": ([1, 2], [0.25, 0.5]),
        "validation/en-de/loss": ([1], [0.5]),
        "tatoeba/error": ([1], [0.125]),
        "toy/pearson": ([1, 2], [-0.5, 0.5]),
    }
    page = page_of(Run("a", None, curves=curves))
    titles = [html.unescape(t) for t in re.findall(r'alt="(.*?)"', page)]
    assert {
        "mfu by step; last a: 0.5",
        "validation en-de loss by step; last a: 0.5",
        "tatoeba error, % (lower is better) by step; last a: 12.5",
        "toy pearson by step; last a: 0.5",
    } <= set(titles)


def test_results_of_every_other_task_are_listed():
    results = retrieval_results() | {"task": "mining", "matrices": {}}
    results["settings"] = {"margin": "distance", "k": 4}
    results["metrics"] = {"fr-en/f1": 0.9, "fr-en/threshold": 1.06}
    unknown = results | {"task": "parsing", "metrics": {"<b>/las_2": 0.5}}
    rows = cells(page_of(Run("a", None, results=[results, unknown])))
    assert ["fr-en/threshold", "1.06"] in rows and ["<b>/las_2", "0.5"] in rows
    assert ["a distance", "90.0"] in rows


def test_numbers_are_rounded_up_to_the_next_unit():
    shown = [*map(charts.short, (999.4, 999.5, 999_999, -999_999_999, 1234))]
    assert shown == ["999", "1k", "1M", "-1G", "1.23k"]


def test_a_chart_survives_odd_values():
    for values in ([0.0], [-1.0, -1.0], [1e-9, 1e9], [0.98849, 0.98851]):
        chart = charts.line_chart("x", [(8, "a", list(range(len(values))), values)])
        svg = base64.b64decode(chart["data"].partition(",")[2])
        assert svg.endswith(b"</svg>\n") and b"nan" not in svg
