"""`xling reproduce`, on made-up text."""

import json
import logging
import shutil

import pytest

from xling_jax.cli import reproduce_runs, reproduce_tasks
from xling_jax.cli.main import main
from xling_jax.cli.reproduce import PAPERS, TABLES
from xling_jax.cli.reproduce_runs import Reproduction
from xling_jax.cli.reproduce_tasks import DATA, TASKS, check, measure, needed
from xling_jax.files.whole import write_json
from xling_jax.papers import made_up

_EXHAUSTIVE = pytest.mark.exhaustive
ROW = ("mao-9", "--row", "batch size 64")


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return tmp_path_factory.mktemp("it's [1:3] papers")


def cell(path, **where):
    (table,) = json.loads(path.read_text("utf-8"))
    (found,) = [c for c in table["cells"] if where.items() <= c.items()]
    return found


@pytest.mark.slow
def test_a_table_is_trained_measured_and_shown_beside_the_published_cells(workdir, capsys):
    assert main(["reproduce", *ROW, "--workdir", str(workdir)]) == 0
    shown = capsys.readouterr().out
    assert shown == (workdir / "mao-9-batch-size-64-smoke.md").read_text("utf-8") + "\n"
    found = cell(
        workdir / "mao-9-batch-size-64-smoke.json", line="batch size 64", column="XSR en→fr"
    )
    assert found["published"] == 89.6 and 0 <= found["ours"] <= 100
    assert f"| {found['ours']:.1f} / 89.6 |" in shown
    assert "XSR, en-fr: among 150 sentences." in shown  # of the made-up Europarl
    html = (workdir / "mao-9-batch-size-64-smoke.html").read_text("utf-8")
    assert "<small>89.6</small>" in html and "http" not in html
    # Once more: nothing is trained again.
    made = {path: path.stat().st_mtime_ns for path in workdir.rglob("results.json")}
    assert len(made) == 2
    assert main(["reproduce", *ROW, "--workdir", str(workdir), "--output", str(workdir / "o")]) == 0
    assert {path: path.stat().st_mtime_ns for path in workdir.rglob("results.json")} == made
    name = "mao-9-batch-size-64-smoke.md"
    assert (workdir / "o" / name).read_bytes() == (workdir / name).read_bytes()
    # What is damaged is measured again.
    for damaged in made:
        damaged.write_text("{")
    assert main(["reproduce", *ROW, "--workdir", str(workdir), "--output", str(workdir / "p")]) == 0
    assert (workdir / "p" / name).read_bytes() == (workdir / name).read_bytes()


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_every_table_runs_at_smoke(workdir):
    """Every cell that the papers measure has ours beside it, but for encoders that are not here."""
    assert main(["reproduce", "all", "--workdir", str(workdir)]) == 0
    tables = {t["table"]: t for t in json.loads((workdir / "all-smoke.json").read_text("utf-8"))}
    assert tables.keys() == TABLES.keys()
    for name, table in tables.items():
        pictures = "figure" in name and "mao" not in name
        assert pictures or any(c["ours"] is not None for c in table["cells"]), name
    assert (workdir / "all-smoke.html").read_text("utf-8").count("data:image/png") >= 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "scale", ["smoke", "paper", *(pytest.param(s, marks=_EXHAUSTIVE) for s in ("small", "base"))]
)
def test_every_part_of_every_table_says_what_it_would_run(scale, tmp_path, capsys):
    """So the configs exist and take the settings, and the tasks exist."""
    made_up.write(tmp_path / "text")
    words = ["reproduce", "all", "--scale", scale, "--workdir", str(tmp_path / "w")]
    assert main([*words, "--data", str(tmp_path / "text"), "--dry-run"]) == 0
    commands = capsys.readouterr().out.splitlines()
    trained = [line for line in commands if line.startswith("xling train")]
    assert len({line.split("--workdir ")[1] for line in trained}) > 60
    assert {line.split()[1] for line in commands} == {"train", "evaluate"}
    assert all(("tfds" in line) == (scale == "paper") for line in commands if "--xsr" in line)
    assert not (tmp_path / "w").exists()


def test_a_dry_run_writes_only_the_made_up_text(tmp_path, capsys):
    assert main(["reproduce", *ROW, "--dry-run", "--workdir", str(tmp_path)]) == 0
    commands = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in commands] == ["train", "evaluate", "train", "evaluate"]
    assert all(f"{tmp_path}/made-up/" in line for line in commands)
    assert [path.name for path in tmp_path.iterdir()] == ["made-up"]


@pytest.mark.parametrize(
    "table, row, word",
    [
        ("li-mak-4", "LASER_1, first 750 tokens, dev", "--max-tokens 750"),
        ("li-mak-beta", "β = 0.5", "--max-tokens 750"),
        ("li-mak-beta", "β = 0.5", "--config.objective.distance.negative_weight=0.5"),  # λ = β / 2
        ("li-mak-2", "LASER_5_2019", "--documents sentences-mean"),  # LASER's code splits them
        # SIM as published, where that is another weight than at 128 pairs.
        ("mao-9", "batch size 256", "--config.objective.similarity_distribution.reduction=sum"),
    ],
)
def test_what_a_row_is_called_is_what_is_run(table, row, word, tmp_path, capsys):
    made_up.write(tmp_path / "text")
    (tmp_path / "encoders/laser").mkdir(parents=True)
    words = ["reproduce", table, "--row", row, "--scale", "small", "--dry-run", "--workdir", "w"]
    words += ["--data", str(tmp_path / "text"), "--encoders", str(tmp_path / "encoders")]
    assert main(words) == 0
    assert f" {word} " in capsys.readouterr().out


def test_the_tenth_of_twenty_epochs_is_half_way(tmp_path, monkeypatch):
    """However many updates an epoch has, which a config in epochs does not know."""
    for name in ("classification/mldoc", "36000"):
        (tmp_path / name).mkdir(parents=True)
    scores = {"scores": {str(3600 * epoch): 0.0 for epoch in range(10, 21)}, "best": 72_000}
    monkeypatch.setattr(Reproduction, "evaluate", lambda *_: (scores, tmp_path))
    write_json(tmp_path / "36000/results.json", {"step": 36_000})
    (part,) = TABLES["li-mak-beta"].rows[0].parts
    runs = Reproduction(tmp_path, tmp_path, "paper")
    assert reproduce_tasks._chosen(runs, part, []) == ({"step": 36_000}, 10.0)


def test_parts_name_tasks_and_data_that_exist():
    encoders = {f"{name} in --encoders" for name in ("mbert", "xlm", "xlmr", "laser", "reimers")}
    for table in TABLES.values():
        assert {part.task for row in table.rows for part in row.parts} <= TASKS.keys()
        assert {*needed(table)[1]} <= {*DATA, *encoders, "Europarl v7"}
    assert needed(TABLES["mao-1"]) == (0, [])  # sizes
    assert needed(TABLES["li-mak-4"]) == (5, ["mldoc"])
    assert needed(TABLES["mao-8"])[1] == ["mldoc", "Europarl v7", "reimers in --encoders"]


def test_settings_of_a_run_depend_on_the_scale(tmp_path):
    text = tmp_path / "text"
    made_up.write(text)
    run = PAPERS["mao"].TABLES["mao-10"].rows[0].parts[0].encoder
    words = lambda scale: Reproduction(tmp_path, text, scale).experiment(run)[0]
    assert "en-fr.bicleaner07.txt.gz?columns=en,fr[:6412500]" in words("paper")[2]
    (text / "parallel/tatoeba.de-en.tsv").write_text("de\ten\nJa\tYes\n")  # not of this pair
    small = [word for word in words("small") if "corpora" in word]
    assert "tatoeba.all.tsv.gz[:37]" in small[0]  # an eighth of 300
    assert "europarl" not in small[0] and "de-en" not in small[0]


def test_what_is_missing_is_one_line(tmp_path, capsys, caplog):
    caplog.set_level(logging.INFO)
    for words, message in (
        ([], "TABLE is required; xling reproduce --list lists the tables"),
        (["yu-2"], "--workdir is required"),
        (["yu-22", "--workdir", tmp_path], "did you mean yu-2"),
        (["mao-figure-1", "--workdir", tmp_path], "not run: a drawing"),
        (["yu-2", "--row", "NMT", "--workdir", tmp_path], "has no such system"),
        (["yu-2", "--scale", "small", "--workdir", tmp_path], "needs --data"),
        (["mao-2", "--data", tmp_path, "--workdir", tmp_path], "has no parallel/*.tsv.gz of en-fr"),
        (["yu-4", "--scale", "paper", "--data", tmp_path, "--workdir", tmp_path], "NIST licenses"),
        (["europarl-5k"], "needs --output"),
        (["mao-1", "--workdir", tmp_path, "--output", __file__], "is a file; name a directory"),
    ):
        assert main(["reproduce", *map(str, words)]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
        assert message in line
    start = "yu-4: encoders to train: 2 (1.5 days each on 4 GPUs, in the paper); needs mldoc"
    assert start in caplog.text  # before it stops


def test_text_that_is_missing_at_paper_is_told_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs, table = Reproduction(tmp_path / "w", None, "paper"), PAPERS["mao"].TABLES["mao-2"]
    with pytest.raises(FileNotFoundError, match="data/paracrawl-v5/en-fr.bicleaner07.txt.gz"):
        check(runs, table)
    for row in table.rows:  # what has been trained needs none
        (runs.place(row.parts[0].encoder) / "encoder").mkdir(parents=True, exist_ok=True)
    check(runs, table)


def test_what_cannot_be_measured_is_said_and_not_trained(tmp_path, capsys, caplog):
    """XSR draws from Europarl, and XLM is published."""
    (tmp_path / "text/parallel").mkdir(parents=True)
    (tmp_path / "text/parallel/news.tsv").write_text("en\tfr\nyes\toui\n")
    words = ["--data", str(tmp_path / "text"), "--workdir", str(tmp_path / "w")]
    assert main(["reproduce", "mao-4", *words]) == 0
    shown = capsys.readouterr().out
    for pair in ("en-fr", "de-en"):
        file = f"parallel/europarl*.tsv* of {pair} in --data"
        assert f"Not measured without {file}: LASER; ours; ours, by margin." in shown
        assert f"ours, by margin: not measured without {file}" in caplog.text
    assert main(["reproduce", "gong-1", "--row", "XLM", *words]) == 0
    assert "Not measured without xlm in --encoders: XLM." in capsys.readouterr().out
    assert {path.suffix for path in (tmp_path / "w").iterdir()} == {".md", ".json", ".html"}


def test_data_is_measured_in_the_languages_and_tasks_that_it_has(tmp_path):
    files = {"retrieval/dev.tsv": "en\tde\na\tb\n", "classification/x/dev.en.tsv": "a\tb\n"}
    files |= {"probing/MR.txt": "tr\t1\ta\n", "docs/wmt16.en.jsonl.gz": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    runs, asked = Reproduction(tmp_path / "w", tmp_path, "small"), []
    runs.evaluate = lambda part, *words: (asked.append((part.languages, words)), ({}, None))[1]
    first = lambda table: measure(runs, TABLES[table].rows[0].parts[0]).missing
    assert not first("yu-2") and asked.pop()[0] == ("de", "en")
    assert not first("yu-1") and asked.pop()[1][-1] == "MR"
    assert first("yu-4") == ["text in de and en in x"]
    assert first("yu-figure-1") == ["text in de in x"]
    assert first("gong-2") == ["docs/wmt16.fr.jsonl.gz in --data"]  # and English is not WMT-19
    assert first("gong-4")[0] == "docs/wmt19.jsonl.gz in --data" and not asked


def test_a_run_that_another_process_has_begun_is_left_alone(tmp_path, monkeypatch):
    made_up.write(tmp_path / "text")
    runs = Reproduction(tmp_path / "w", tmp_path / "text", "smoke")
    run = TABLES["yu-2"].rows[0].parts[0].encoder
    workdir, (_, experiment) = runs.place(run), runs.experiment(run)
    for name in ("data", "vocab"):
        (tmp_path / "w/other" / name).mkdir(parents=True)
    write_json(tmp_path / "w/other/data/manifest.json", {})
    monkeypatch.setattr(reproduce_runs, "is_made_with", lambda *_: True)
    copied = shutil.copytree

    def copy(*paths):
        (workdir / "checkpoints").mkdir(parents=True, exist_ok=True)
        return copied(*paths)

    monkeypatch.setattr(shutil, "copytree", copy)
    runs._share_text(experiment, workdir)
    assert [path.name for path in workdir.iterdir()] == ["checkpoints"]
    assert {path.name for path in (tmp_path / "w").iterdir()} == {"other", workdir.name}


def test_selection_on_the_tested_language_needs_dev_text_that_is_not_tested_on(tmp_path):
    (tmp_path / "classification/sib200").mkdir(parents=True)
    for code in ("de", "en"):
        (tmp_path / f"classification/sib200/dev.{code}.tsv").write_text("label\ttext\na\tb\n")
    targeted = TABLES["yu-6"].rows[1].parts[0]
    matrix = {"accuracy": {"de": {"en": 0.5}}, "num_test": {"en": 1}, "test_split": "dev"}

    def found(matrix):
        runs = Reproduction(tmp_path / "w", tmp_path, "small")
        runs.evaluate = lambda *_, **__: ({"matrices": {"sib200": matrix}}, tmp_path)
        return TASKS[targeted.task][0](runs, targeted)

    assert found(matrix).missing == ["test.*.tsv beside dev.*.tsv in sib200"]
    both = found(matrix | {"oracle": {"de": {"en": 0.75}}})
    assert [*both.cells.values()] == [75.0] and not both.missing


def test_a_run_that_fails_ends_the_command_with_its_status(tmp_path, capsys):
    (tmp_path / "parallel").mkdir()
    (tmp_path / "parallel/news.tsv").write_text("en\tfr\none cell\n")
    words = ["--workdir", str(tmp_path / "w"), "--data", str(tmp_path)]
    with pytest.raises(SystemExit, match="1"):
        main(["reproduce", "mao-2", *words])
    assert "xling train: error: " in capsys.readouterr().err
    assert not (tmp_path / "w/mao-2-smoke.md").exists()


def test_the_europarl_set_joins_through_english_and_keeps_copies(tmp_path):
    rows = {"de-en": "(Beifall)\t(Applause)\nEins\tOne\nZwei\tTwo\nJa\t(Applause)\n",
            "en-fr": "Two\tDeux\n(Applause)\tApplaudissements\n"}  # fmt: skip
    for pair, text in rows.items():
        header = "\t".join(pair.split("-"))
        (tmp_path / f"{pair}.tsv").write_text(f"{header}\n{text}")
    from xling_jax.eval.retrieval_data import join_through

    specs = [f"tsv:{tmp_path}/{pair}.tsv" for pair in rows]
    clap = ["(Beifall)", "(Applause)", "Applaudissements"]
    assert join_through("en", specs, ["de", "en", "fr"], 9) == [clap, ["Zwei", "Two", "Deux"], clap]
