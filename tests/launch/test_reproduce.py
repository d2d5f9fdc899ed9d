"""`launch/reproduce.sh`: what it would run, what it prints from results that are there."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def reproduce(*words):
    return subprocess.run(
        [ROOT / "launch/reproduce.sh", *map(str, words)],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture
def data(tmp_path):
    for name in ("pud", "multi30k", "europarl"):
        path = tmp_path / f"data/retrieval/{name}.dev.tsv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "data"


def tables():
    listed = reproduce("--list").stdout.splitlines()
    return [line.split()[0] for line in listed]


def test_every_table_says_what_it_would_run(data, tmp_path):
    from xling_jax.cli.arguments import load_config

    assert len(tables()) == 6
    for table in tables():
        out = reproduce(table, "--data", data, "--workdir", tmp_path / "w", "--dry-run")
        assert out.returncode == 0, out.stderr
        commands = [shlex.split(line) for line in out.stdout.splitlines()]
        assert {command[1] for command in commands} == {"train", "evaluate"}
        for command in commands[::3]:
            # The configs exist and take every setting.
            load_config(command[3], [word for word in command if word.startswith("--config.")])
    assert not (tmp_path / "w").exists()


def test_the_paper_scale_leaves_the_configs_alone(data, tmp_path):
    words = ("li-mak-4", "--data", data, "--workdir", tmp_path, "--dry-run")
    out = reproduce(*words, "--scale", "paper", "--corpora", "moses:europarl.de-en")
    train = shlex.split(out.stdout.splitlines()[0])
    assert train[3].endswith("configs/laser.py:layers=1")
    settings = [word for word in train if word.startswith("--config.")]
    assert settings[0] == "--config.data.corpora=('moses:europarl.de-en',)"
    assert len(settings) == 2 and settings[1].startswith("--config.data.exclude=")


def test_finished_rows_are_not_run_again_and_the_table_has_both_sides(data, tmp_path):
    dry = reproduce("mao-7", "--data", data, "--workdir", tmp_path, "--dry-run")
    workdirs = [shlex.split(line)[-1] for line in dry.stdout.splitlines()[::3]]
    for place, workdir in enumerate(map(Path, workdirs)):
        (workdir / "encoder").mkdir(parents=True)
        score = {"en": {"fr": 0.1 * place + 0.2}, "fr": {"en": 0.5}}
        other = {"en": {"fr": 0.1 * place}, "fr": {"en": 0.25}}
        results = {
            "retrieval": {"pud_dev": {"p_at_1": score}, "multi30k_dev": {"p_at_1": other}},
            "classification": {"sib200": {"accuracy": score}},
        }
        for task, matrices in results.items():
            (workdir / "results" / task).mkdir(parents=True)
            path = workdir / "results" / task / "results.json"
            path.write_text(json.dumps({"matrices": matrices}))
    out = reproduce("mao-7", "--data", data, "--workdir", tmp_path)
    assert out.returncode == 0, out.stderr
    assert "| UGT + ALIGN | 20.0 | 37.5 | 30.0 | 50.0 | 89.9 | 90.4 | 84.1 | 81.9 |" in out.stdout
    assert (tmp_path / "mao-7.md").read_text() == out.stdout


def test_wrong_use_is_one_line_and_status_2(tmp_path):
    out = reproduce("mao-6", "--data", tmp_path / "none", "--workdir", tmp_path)
    assert out.returncode == 2
    assert "must hold parallel/, retrieval/ and classification/" in out.stderr
