"""`launch/reproduce.sh`: what it would run, what it prints from results that are there."""

import contextlib
import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.train.processes import wait_for

ROOT = Path(__file__).parents[2]


def reproduce(*words):
    """Runs the script in this process, which starts one for each command that is not printed."""
    sys.path.insert(0, str(ROOT / "launch"))
    try:
        module = importlib.import_module("reproduce")
    finally:
        sys.path.remove(str(ROOT / "launch"))
    status = 0
    with contextlib.ExitStack() as stack:
        # Files, which the processes that it starts can write to as well.
        out, err = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                module.main([*map(str, words)])
            except SystemExit as end:
                status = end.code
        printed = []
        for file in (out, err):
            file.seek(0)
            printed.append(file.read())
    return subprocess.CompletedProcess(words, status, *printed)


def reproduce_script(*words):
    return subprocess.run(
        [ROOT / "launch/reproduce.sh", *map(str, words)],
        env={**os.environ, "PYTHON": sys.executable, "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=100,
    )


@pytest.fixture
def data(tmp_path):
    for name in ("pud", "multi30k", "europarl"):
        path = tmp_path / f"data/retrieval/{name}.dev.tsv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "data"


def tables(scale="small"):
    """Names of the tables that a scale has."""
    lines = [line for line in reproduce("--list").stdout.splitlines() if line[0].islower()]
    return [
        line.split()[0] for line in lines if "(scales " not in line or f"{scale}," in line + ","
    ]


def commands(*words):
    """The commands of a dry run, each a list of words."""
    out = reproduce(*words, "--dry-run")
    assert out.returncode == 0, out.stderr
    return [shlex.split(line) for line in out.stdout.splitlines()]


def overrides(command):
    return [word for word in command if word.startswith("--config.")]


@pytest.mark.parametrize("scale", ["small", "claims", "paper"])
def test_every_table_says_what_it_would_run(data, tmp_path, scale):
    from xling_jax.config import load

    assert len(tables()) == 14
    for table in tables(scale):
        words = (table, "--data", data, "--workdir", tmp_path / "w", "--scale", scale)
        found = commands(*words)
        assert {command[1] for command in found} - {"prepare"} == {"train", "evaluate"}
        for command in found:
            if command[1] == "train":  # the configs exist and take every setting
                load(command[3], overrides(command))
    assert not (tmp_path / "w").exists()


def test_the_list_names_what_is_not_trained_here():
    out = reproduce("--list").stdout
    assert "LASER_2018: its model was not published" in out
    assert "Gong et al. (2021), Tables 1 to 8: no training" in out


def test_the_paper_scale_leaves_the_configs_alone(data, tmp_path):
    words = ("li-mak-4", "--data", data, "--workdir", tmp_path, "--scale", "paper")
    prepare, train, *_ = commands(*words, "--corpora", "moses:europarl.de-en")
    assert (prepare[1], train[1]) == ("prepare", "train")
    assert train[3].endswith("configs/laser.py:layers=1")
    settings = overrides(train)
    assert settings[0] == "--config.data.corpora=('moses:europarl.de-en',)"
    assert len(settings) == 2 and settings[1].startswith("--config.data.exclude=")


def test_the_paper_scale_needs_no_text_of_ours(tmp_path):
    out = reproduce("li-mak-4", "--workdir", tmp_path, "--scale", "paper", "--dry-run")
    assert "--config." not in out.stdout and "retrieval" not in out.stdout
    assert "NIST" in out.stderr and "facebookresearch/MLDoc" in out.stderr
    assert out.stderr.count("\n") == 1


def test_mldoc_is_measured_with_the_classifier_of_the_paper(tmp_path):
    mldoc = tmp_path / "mldoc"
    mldoc.mkdir()
    words = ("li-mak-4", "--workdir", tmp_path / "w", "--scale", "paper", "--mldoc", mldoc)
    out = reproduce(*words, "--dry-run")
    assert out.returncode == 2 and "no train.en.tsv; MLDoc is not measured" in out.stderr
    for code in ("en", "de", "fr", "es", "it"):
        for split in ("train", "dev", "test"):
            (mldoc / f"{split}.{code}.tsv").touch()
    found = [" ".join(command) for command in commands(*words) if command[1] == "evaluate"]
    assert len(found) == 10
    assert all(f"--data {mldoc} --classifiers mlp" in command for command in found)
    # T-LASER reads the first 750 tokens of a document, LASER all of it.
    assert ["--max-tokens 750" in command for command in found] == [False] * 6 + [True] * 4


def test_checkpoints_are_chosen_on_the_dev_set_and_tested_once(tmp_path):
    for code in ("en", "de", "fr", "es", "it"):
        for split in ("train", "dev", "test"):
            (tmp_path / f"{split}.{code}.tsv").touch()
    words = ("--workdir", tmp_path / "w", "--scale", "paper", "--mldoc", tmp_path)
    _, _, dev, export, test = commands("li-mak-4", *words, "--row", "T-LASER")
    assert dev[dev.index("--checkpoint") + 1] == "all" and dev[dev.index("--split") + 1] == "dev"
    # Without the name of the set, which may have characters that names of metrics do not.
    assert dev[dev.index("--metric") + 1] == "cross"
    assert export[1] == "export"
    assert test[test.index("--model") + 1] == export[export.index("--output") + 1]
    # Table 6 is that of the tenth epoch, the last.
    assert not [c for c in commands("li-mak-6", *words) if "--checkpoint" in c]


# The runs of lab/experiments, as they were started.
_SIDES = ("encoder", "decoder")
_TRANSFORMER = {f"{s}.{k}": v for s in _SIDES for k, v in
                {"width": 128, "ffn_width": 512, "heads": 2}.items()}  # fmt: skip
_LSTM = {"encoder.width": 128, "encoder.embedding_width": 64, "decoder.embedding_width": 64}
_LSTM |= {"decoder.width": 256, "schedule.value": 2e-3}
_RUNS = {
    ("li-mak-4", "T-LASER"): ("t_laser:small", 6800, 1360, _TRANSFORMER),
    ("li-mak-4", "cT-LASER"): ("ct_laser:small", 6800, 1360, _TRANSFORMER),
    ("li-mak-4", "LASER_1"): ("laser:layers=1,small", 1700, 850, _LSTM),
    ("li-mak-4", "LASER_6"): ("laser:layers=6,small", 1700, 850, _LSTM),
    ("li-mak-4", "cLASER_6"): ("claser:small", 1700, 850, _LSTM),
    ("li-mak-6", "T-LASER"): ("t_laser:small", 1700, 425, _TRANSFORMER),
    ("li-mak-6", "cT-LASER"): ("ct_laser:small", 1700, 425, _TRANSFORMER),
}


@pytest.mark.parametrize("table, row", _RUNS)
def test_the_scale_of_the_claims_is_that_of_the_recorded_runs(data, tmp_path, table, row):
    from xling_jax.config import load

    config, steps, every, model = _RUNS[table, row]
    pairs = ("de-en", "de-es", "en-es", "es-en", "fr-en", "fr-es", "it-en", "it-es")
    names = ("europarl.*", "multi30k.*", "news.*", "tatoeba.de-*", "tatoeba.en-[defi]*")
    names += ("tatoeba.es-*", "tatoeba.fr-*", "lohelp.en-de-fr-es-it*", "messages.en-de-fr-es-it")
    names += ("games.en-de-fr-es-it", "manuals.en-de-fr-es-it")
    expected = (
        model
        | {
            "data.corpora": tuple(f"tsv:{data}/parallel/{name}.tsv.gz" for name in names),
            "data.exclude": (f"{data}/retrieval/*.dev.tsv.gz",),
            "evaluation.retrieval": tuple(
                f"{data}/retrieval/{name}.dev.tsv.gz" for name in ("europarl", "pud")
            ),
            "data.pairs": ("en-es", "es-en") if table == "li-mak-6" else pairs,
            "data.bucket_lengths": (8, 12, 16, 22, 30, 40, 56, 80, 104),
            "data.max_tokens": 4096,
            "cleaning.length_ratio_slack": 3,
            "vocab.size": 4000,
            "train.total_steps": steps,
            "train.evaluate_every_steps": every,
            "train.checkpoint_every_steps": every,
            "train.keep_last": 12,
            "train.log_every_steps": 50,
            "seed": 1,
        }
        | ({"languages": ("en", "es")} if table == "li-mak-6" else {})
    )
    words = (table, "--row", row, "--data", data, "--workdir", tmp_path, "--scale", "claims")
    trained = [c for c in commands(*words, "--seeds", "2") if c[1] == "train"]
    assert [c[-1].endswith("-seed-1") for c in trained] == [False, True]
    found = load(trained[1][3], overrides(trained[1]))
    recorded = load(config, [f"--config.{key}={value!r}" for key, value in expected.items()])
    assert found.config == recorded.config


def test_text_without_two_of_the_languages_of_a_table_is_left_out(data, tmp_path):
    for name in ("europarl.en-es", "europarl.en-fr", "multi30k.en-de-fr"):
        path = data / f"parallel/{name}.tsv.gz"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    words = ("--data", data, "--workdir", tmp_path, "--scale", "claims")
    for table, taken in (("li-mak-6", {"europarl.*"}), ("mao-6", {"europarl.*", "multi30k.*"})):
        (train, *_) = (c for c in commands(table, *words) if c[1] == "train")
        (text,) = (word for word in overrides(train) if "data.corpora=" in word)
        names = {"europarl.*", "multi30k.*"}
        assert {name for name in names if f"/{name}.tsv.gz" in text} == taken


def write_results(workdir, *, retrieval, topics):
    """What a finished row leaves."""
    (workdir / "encoder").mkdir(parents=True)
    results = {
        "retrieval": {name: {"p_at_1": scores} for name, scores in retrieval.items()},
        "classification": {"sib200": {"accuracy": topics}},
    }
    for task, matrices in results.items():
        (workdir / "results" / task).mkdir(parents=True)
        path = workdir / "results" / task / "results.json"
        path.write_text(json.dumps({"matrices": matrices}))


def trained_workdirs(*words):
    return [Path(c[-1]) for c in commands(*words) if c[1] == "train"]


def both_ways(there, back):
    scores = {"en": {"fr": there, "en": 0.9}, "fr": {"en": back, "fr": 0.7}}
    return scores


def test_finished_rows_are_not_run_again_and_the_table_has_both_sides(data, tmp_path):
    words = ("mao-7", "--data", data, "--workdir", tmp_path)
    for place, workdir in enumerate(trained_workdirs(*words)):
        score = both_ways(0.1 * place + 0.2, 0.5)
        other = both_ways(0.1 * place, 0.25)
        write_results(workdir, retrieval={"pud_dev": score, "multi30k_dev": other}, topics=score)
    out = reproduce(*words)
    assert out.returncode == 0, out.stderr
    assert "| UGT + ALIGN | 20.0 | 37.5 | 30.0 | 50.0 | 89.9 | 90.4 | 84.1 | 81.9 |" in out.stdout
    assert (tmp_path / "mao-7.md").read_text("utf-8") == out.stdout
    one = reproduce(*words, "--row", "UGT")
    assert "| UGT |" in one.stdout and "UGT + ALIGN" not in one.stdout
    assert (tmp_path / "mao-7.md").read_text("utf-8") == out.stdout


@pytest.mark.exhaustive
def test_a_row_trained_at_another_scale_or_on_other_text_is_refused(data, tmp_path):
    words = ("mao-7", "--row", "UGT", "--data", data, "--workdir", tmp_path)
    (workdir,) = trained_workdirs(*words)
    score = both_ways(0.2, 0.5)
    write_results(workdir, retrieval={"pud_dev": score}, topics=score)
    (workdir / "encoder").rmdir()
    failed = reproduce(*words)  # there is no text
    assert failed.returncode and (workdir / "reproduce.json").is_file()
    assert "choose another" not in reproduce(*words, "--scale", "claims", "--dry-run").stderr
    (workdir / "encoder").mkdir()
    assert reproduce(*words).returncode == 0
    for more in (("--scale", "claims"), ("--corpora", "tsv:mine it.tsv")):
        for mode in ((), ("--dry-run",)):
            out = reproduce(*words, *more, *mode)
            assert (out.returncode, out.stdout) == (2, "")
            now = shlex.join(more if "--scale" in more else ("--scale", "small", *more))
            assert out.stderr.splitlines()[-1].endswith(
                f"{workdir}: was trained with --scale small, not {now}; choose another --workdir"
            )


@pytest.mark.exhaustive
def test_text_that_an_interrupted_run_had_copied_in_part_is_not_shared(data, tmp_path):
    words = ("mao-7", "--row", "UGT", "--data", data, "--workdir", tmp_path)
    (workdir,) = trained_workdirs(*words)
    partial = workdir.with_name(f".{workdir.name}.partial")
    (partial / "data").mkdir(parents=True)
    (partial / "data/manifest.json").write_text("{}")
    out = reproduce(*words)
    assert out.returncode and "Traceback" not in out.stderr


@pytest.mark.parametrize("measured", [0, 1])
def test_what_some_rows_lack_is_a_dash_in_the_table(measured, data, tmp_path):
    words = ("mao-7", "--data", data, "--workdir", tmp_path)
    score = both_ways(0.25, 0.5)
    for place, workdir in enumerate(trained_workdirs(*words)):
        write_results(workdir, retrieval={"pud_dev": score}, topics=score)
        if place == measured:
            path = workdir / "results/classification-mldoc/results.json"
            path.parent.mkdir()
            path.write_text(json.dumps({"matrices": {"mldoc": {"accuracy": score}}}))
    out = reproduce(*words)
    assert out.returncode == 0, out.stderr
    rows = [line for line in out.stdout.splitlines() if line.startswith("| UGT")]
    for place, row in enumerate(rows):
        mldoc = "25.0 | 50.0 | 80.0 | 37.5" if place == measured else "– | – | – | –"
        assert f" 25.0 | 50.0 | 25.0 | 50.0 | {mldoc} | " in row


# Saves when it is stopped, or else is done just then.
_SAVES = "trap 'sleep 0.5; touch saved; exit %d' INT TERM; touch begun; while :; do sleep 0.1; done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("is_done", [False, True])
def test_a_script_that_is_stopped_waits_for_its_command(number, is_done, tmp_path):
    """A terminal sends Ctrl-C to both; SIGTERM comes to the script alone."""
    command = ["bash", "-c", _SAVES % (0 if is_done else 77)]
    code = f"import run; run.run({command!r}); run.run(['touch', 'next'])"
    heeding_sigint = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    script = subprocess.Popen(
        [sys.executable, "-c", heeding_sigint + code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "launch")},
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert wait_for((tmp_path / "begun").exists, 60)
    (os.killpg if number == signal.SIGINT else os.kill)(script.pid, number)
    _, errors = script.communicate(timeout=60)
    assert (script.returncode, errors) == (128 + number if is_done else 77, "")
    assert (tmp_path / "saved").exists() and not (tmp_path / "next").exists()


def test_several_seeds_give_mean_and_deviation(data, tmp_path):
    words = ("mao-3-en-fr", "--row", "UGT (Table 3)", "--data", data, "--workdir", tmp_path)
    words += ("--seeds", "3")
    for seed, workdir in enumerate(trained_workdirs(*words)):
        score = both_ways(0.2 + 0.1 * seed, 0.5)
        write_results(workdir, retrieval={"pud_dev": score}, topics=score)
    out = reproduce(*words).stdout
    ours = "30.0 ± 10.0 | 50.0 ± 0.0 | 30.0 ± 10.0 | 50.0 ± 0.0"
    assert f"| UGT (Table 3) | {ours} | – | – | 85.1 | 82.4 |" in out


def test_wrong_use_is_one_line_and_status_2(data, tmp_path):
    for words, message in (
        (("mao-6", "--data", tmp_path / "none"), "must hold parallel/, retrieval/"),
        (("mao-6",), "--data is needed at --scale small"),
        (("mao-10", "--data", data), "only at --scale base or paper"),
        (("mao-6", "--data", data, "--row", "XTL"), "mao-6 has"),
    ):
        out = reproduce(*words, "--workdir", tmp_path)
        assert out.returncode == 2
        assert message in out.stderr.splitlines()[-1]


def test_a_missing_corpus_ends_in_one_line_that_says_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    out = reproduce_script("li-mak-6", "--workdir", tmp_path / "w", "--scale", "paper")
    assert out.returncode == 1
    notice, error = out.stderr.strip().splitlines()
    assert "MLDoc is not measured" in notice
    assert f"wget -P {tmp_path}/tfds/downloads/manual/europarl_v7 https://www.statmt.org" in error


def test_without_the_package_a_script_says_so_in_one_line(tmp_path):
    words = [ROOT / "launch/reproduce.sh", "--list"]
    env = {"PATH": os.environ["PATH"], "PYTHON": str(tmp_path / "python")}
    (tmp_path / "python").symlink_to("/bin/false")
    out = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert out.returncode == 1
    (line,) = out.stderr.splitlines()
    assert line.endswith("has no xling_jax; activate its environment or set PYTHON")
