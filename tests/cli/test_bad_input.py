"""Bad input, config and workdirs through the command line: one line each, or a counted drop."""

import json
import re
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

import xling_jax
from tests.cli.corpora_for_cli import ROOT, arguments, write_tsv
from xling_jax.cli.main import COMMANDS, main
from xling_jax.config import load
from xling_jax.train.training import check

GOOD = "Das ist ein Haus\tthis is a house"


@pytest.fixture
def fails(fails):
    """Runs a command that must fail in one line; returns the line."""
    return lambda argv, status: fails(main(argv), status)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return f"tsv:{write_tsv(tmp_path_factory.mktemp('corpus') / 'corpus.tsv')}"


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "text.tsv.*empty"),
        (b"de\ten\n\t\n\t\n", "text.tsv"),
        (b"de\tfr\nHaus\tmaison\n", "text.tsv.*(en|language)"),
    ],
    ids=["empty", "only blank rows", "language missing"],
)
def test_a_corpus_that_cannot_be_used_is_named(content, message, fails, tmp_path):
    (tmp_path / "text.tsv").write_bytes(content)
    argv = arguments("prepare", f"tsv:{tmp_path / 'text.tsv'}", tmp_path / "w")
    assert re.search(message, fails(argv, 1))
    assert not (tmp_path / "w/data/manifest.json").exists()


def test_broken_rows_are_dropped_and_counted(tmp_path, capsys):
    path = write_tsv(tmp_path / "text.tsv")
    with path.open("ab") as file:
        file.write(b"kaputt \xff\xfe\tbroken bytes here\n")
        file.write(b"mit \x00 Null\twith a nul\n")
        file.write(b"lang " * 300_000 + b"\tlong\n")
        file.write(b"\tno german side\n")
    assert main(arguments("prepare", f"tsv:{path}", tmp_path / "w")) == 0
    out = capsys.readouterr().out
    assert "1 broken_utf8" in out and "1 nul_byte" in out and "1 line_too_long" in out
    counts = json.loads((tmp_path / "w/data/counts.json").read_text())
    (counted,) = counts["corpora"].values()
    assert counted["de-en"]["kept"] == 300


@pytest.mark.parametrize(
    "override, message",
    [
        (
            "--config.encoder.widht=8",
            r": encoder.widht is not an option of \w+; did you mean width\?",
        ),
        (
            "--config.languages[0]=de",
            r": config section='languages\[0\]' must be .*; did you mean languages",
        ),
        ("--config.seed.x=8", ": config.seed is a value and has no keys; set config.seed itself$"),
        (
            "--config.train.total_steps=many",
            "error: --config.train.total_steps=many: must be a whole number$",
        ),
        (
            "--config.data.hold_out_evaluation=2",
            "error: --config.data.hold_out_evaluation=2: must be True or False$",
        ),
        ("--config.train.total_steps=0", ": train.total_steps=0 must be positive"),
        ("--config.train.export=best", "train.best_metric"),
        ("--config.languages=('de','fr')", "unknown language 'en'; known: de, fr"),
        ("--config.data.pairs=('en-en',)", r"data.pairs=\('en-en',\) name one language only"),
        ("--config.optimizer.bta=1", "optimizer.bta is not an option of adamw; it takes"),
        ("--config.data.shuffle=1", "data.shuffle is not an option of DataOptions; .{80,130} …$"),
        ("--config.evaluation.retrieval=('none.tsv',)", "none.tsv: no such file"),
    ],
)
def test_a_wrong_setting_is_wrong_use_before_anything_is_read(
    override, message, corpus, fails, tmp_path
):
    line = fails(arguments("train", corpus, tmp_path / "w", override), 2)
    assert re.search(message, line), line
    assert not (tmp_path / "w").exists()


def test_a_dry_run_refuses_what_training_refuses_with_the_same_line(corpus, fails, tmp_path):
    for override in ("objective.distance.num_negatives=0", "data.batch_multiple=1000000000"):
        argv = arguments("train", corpus, tmp_path / "w", f"--config.{override}")
        assert fails(argv, 2) == fails([*argv, "--dry-run"], 2)
        assert override.rpartition(".")[2].partition("=")[0] in fails(argv, 2)
    assert not (tmp_path / "w").exists()


# Of every kind of setting values that cannot be.
IMPOSSIBLE = {
    "ct_laser": """
        seed=-1 compute_dtype=int8 dropout_generator=3 data.pairs=(1,2)
        data.bucket_lengths=('long',) data.accumulation_steps=1000000000 data.batch_multiple=-8
        data.max_tokens=1000000000 data.sampling_exponent=nan cleaning.max_length_ratio=inf
        vocab.model_type=bytes vocab.size=1000000000 encoder.width=-32 encoder.layers=1000000
        encoder.dropout=nan objective.encode_chunks=7 objective.translation.max_logits=-1
        objective.distance.num_negatives=0 optimizer.b1=1.0
        schedule.peak_value=nan schedule.warmup_steps=0 train.total_epochs=1e999
        train.total_epochs=True train.keep_best=-1
    """,
    "lightweight": """
        data.batch_size=-16 objective.alignment.scale=0.0
        objective.token_distribution.duplicates=drop
        objective.token_distribution.tasks.mlm=-1.0 optimizer.l2_penalty=(True,)
    """,
}


@pytest.mark.parametrize(
    "config, word", [(config, word) for config, ws in IMPOSSIBLE.items() for word in ws.split()]
)
def test_values_that_cannot_be_are_refused_in_one_line_that_names_them(config, word):
    name = word.partition("=")[0].rpartition(".")[2]
    with pytest.raises(ValueError, match=name) as caught:
        check(load(f"{config}:smoke", [f"--config.{word}"]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, message",
    [
        ("config.encoder.widht = 8", "widht"),
        ("config.encoder.width = 'wide'", "wide|str"),
        ("config.encoder.width = ", "line 5: invalid syntax"),
        ("import a_module_that_is_not_there", "a_module_that_is_not_there"),
    ],
)
def test_a_broken_config_file_is_wrong_use(text, message, fails, tmp_path):
    path = tmp_path / "config.py"
    path.write_text(
        "from xling_jax.configs import ct_laser\n\ndef get_config(arg=''):\n"
        f"    config = ct_laser.get_config('smoke')\n    {text}\n    return config\n"
    )
    line = fails(["train", "--config", str(path), "--workdir", str(tmp_path / "w")], 2)
    assert str(path) in line and re.search(message, line), line


def test_a_missing_config_and_an_unknown_size_are_wrong_use(fails, tmp_path):
    workdir = ["--workdir", str(tmp_path / "w")]
    assert "none.py: no such file" in fails(["train", "--config", "none.py", *workdir], 2)
    config = f"{ROOT}/configs/ct_laser.py:tiny"
    assert "'tiny' must be one of paper" in fails(["train", "--config", config, *workdir], 2)


def test_a_workdir_that_cannot_be_written_is_named(corpus, fails, tmp_path):
    (tmp_path / "file").write_text("")
    for workdir, status in ((Path("/proc/xling"), 1), (tmp_path / "file", 2)):
        assert str(workdir) in fails(arguments("prepare", corpus, workdir), status)


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory) -> Path:
    """A run whose last update was hopeless: its learning rate grows beyond all bounds."""
    workdir = tmp_path_factory.mktemp("trained") / "w"
    assert main([*arguments("train", corpus, workdir, *_DIVERGING)]) == 0
    return workdir


@pytest.fixture
def copied(trained, tmp_path) -> Path:
    """A copy of that run."""
    return Path(shutil.copytree(trained, tmp_path / "w"))


_DIVERGING = (
    "--config.schedule.init_value=1e-3",
    "--config.schedule.peak_value=1e38",
    "--config.schedule.warmup_steps=2",
    "--config.train.checkpoint_every_steps=1",
    "--config.train.total_steps=1",
)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_with_step_pair_and_last_good_checkpoint(
    corpus, copied, fails
):
    more = "--config.train.total_steps=9"
    line = fails(arguments("train", corpus, copied, *_DIVERGING, more), 1)
    found = re.search(r"step (\d+): .*last good checkpoint: (\d+) in ", line)
    assert found, line
    assert int(found[2]) < int(found[1])
    assert re.search("on pair (de->en|en->de)", line)
    kept = [p for p in (copied / "checkpoints").iterdir() if p.name.isdigit()]
    assert max(int(path.name) for path in kept) == int(found[2])
    for path in kept:
        with ocp.StandardCheckpointer() as checkpointer:
            state = checkpointer.restore(path / "state")
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state["params"]))


@pytest.mark.slow
def test_checkpoints_of_another_config_are_refused_and_nothing_is_lost(corpus, trained, fails):
    before = {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()}
    for override, message in (
        ("encoder.layers=2", "config.encoder.layers is 1 in the checkpoint, 2 now"),
        ("vocab.size=130", "vocab.size was 120, now 130"),
    ):
        words = (*_DIVERGING, f"--config.{override}")
        line = fails(arguments("train", corpus, trained, *words), 1)
        assert message in line and "choose another --workdir" in line
    assert {p: p.read_bytes() for p in trained.rglob("*") if p.is_file()} == before


@pytest.mark.slow
def test_truncated_checkpoints_end_in_one_line_however_often_one_tries(corpus, copied, fails):
    for path in (copied / "checkpoints").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for _ in range(2):
        line = fails(arguments("train", corpus, copied, *_DIVERGING), 1)
        assert "none of the checkpoints [1] is intact" in line
    assert (copied / "checkpoints/00000001").is_dir()


@pytest.mark.slow
def test_a_dry_run_tells_the_cost_and_touches_nothing(corpus, tmp_path, capsys):
    argv = arguments("train", "tsv:/nowhere/*.tsv", tmp_path / "w")
    assert main([*argv, "--dry-run"]) == 0
    out = capsys.readouterr().out
    for word in ('"total_steps": 8', "parameters", "as papers", "bucket length", "GFLOP", "GiB"):
        assert word in out, word
    assert not (tmp_path / "w").exists()


def test_a_run_without_workdir_is_refused(fails):
    line = fails(["train", "--config", "static:smoke"], 2)
    assert "--workdir is required, except with --dry-run" in line


def test_every_command_has_help_with_an_example(capsys):
    for words in ([], *([command] for command in COMMANDS)):
        with pytest.raises(SystemExit) as exit:
            main([*words, "--help"])
        out = capsys.readouterr().out
        assert exit.value.code == 0 and "example" in out and "xling " in out.split("example")[1]


def test_closed_stdout_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["embed", "--model", "mini", "--input", "a", "--output", "-"]) == 1
    assert "xling: error: stdout is closed; redirect it" in capsys.readouterr().err


def test_the_encoder_in_the_package_is_not_calibrated_anew(fails, tmp_path):
    (tmp_path / "dev.tsv").write_text("de\ten\nHaus\thouse\n")
    line = fails(["calibrate", "--model", "mini", "--data", str(tmp_path / "dev.tsv")], 2)
    assert "--model mini: is read-only; calibrate a copy made with" in line
    assert "xling_jax.load('mini').save('DIR')" in line
    xling_jax.load("mini").save(tmp_path / "copy")
    copy = ["calibrate", "--model", str(tmp_path / "copy"), "--data", str(tmp_path / "dev.tsv")]
    assert "copy: is calibrated already; add --overwrite" in fails(copy, 2)


def test_escape_sequences_are_shown_and_not_obeyed(fails, tmp_path, capsys):
    write_tsv(tmp_path / "\x1bcgood.tsv")
    assert main(arguments("prepare", f"tsv:{tmp_path}/\x1bcgood.tsv", tmp_path / "good")) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\\x1bcgood" in shown
    missing = ["embed", "--model", "mini", "--output", "o.npy", "--input", "a\x1b[2J\u202e.txt"]
    assert "a\\x1b[2J\\u202e.txt" in fails(missing, 2)
    (tmp_path / "a.tsv").write_text("d\x1b[31m\x07e\tx\na\tb\n")
    argv = ["prepare", "--config", "static:smoke", "--workdir", str(tmp_path / "w")]
    line = fails([*argv, f"--config.data.corpora=('tsv:{tmp_path}/a.tsv',)"], 1)
    assert "a.tsv:1" in line and line.isprintable() and "x1b" in line


def test_a_copy_that_fails_names_what_is_written(monkeypatch, fails, tmp_path):
    def copy(source, target):
        raise OSError(28, "No space left on device", source, None, "web/encoder.safetensors")

    monkeypatch.setattr(shutil, "copyfile", copy)
    export = ["export", "--model", "mini", "--to", "web", "--output", str(tmp_path / "web")]
    assert "error: web/encoder.safetensors: No space left" in fails(export, 1)
