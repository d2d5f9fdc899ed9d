"""Runners of Apache Beam: jobs elsewhere, wrong use in one line, Beam as an extra."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.corpora_for_cli import arguments
from xling_jax.cli.main import main
from xling_jax.corpora.beam import BeamRunner

needs_beam = pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is None, reason="needs apache-beam"
)
_ROOT = Path(__file__).parents[3]


class _Job:
    """Stands for a pipeline and for the result of its run."""

    def __init__(self, ending):
        self.ending, self.is_cancelled = ending, False

    def run(self):
        return self

    def wait_until_finish(self):
        if isinstance(self.ending, BaseException):
            raise self.ending
        return self.ending

    def cancel(self):
        self.is_cancelled = True


@pytest.mark.parametrize(
    "ending, kind, message, is_cancelled",
    [
        (KeyboardInterrupt(), KeyboardInterrupt, None, True),
        (
            "CANCELLED",
            OSError,
            "--runner flink: the pipeline failed: it ended as CANCELLED;",
            False,
        ),
        (
            RuntimeError("Trace\n  at x\nlost 3 workers\n"),
            OSError,
            "failed: lost 3 workers;",
            False,
        ),
    ],
)
def test_a_job_elsewhere_is_waited_for(monkeypatch, ending, kind, message, is_cancelled):
    """Interrupted here, it is cancelled there; other endings are errors of one line."""
    job = _Job(ending)
    monkeypatch.setattr(BeamRunner, "_make_pipeline", lambda self: job)
    with pytest.raises(kind, match=message) as error:
        BeamRunner("flink").run(lambda pipeline: None)
    assert "\n" not in str(error.value)
    assert job.is_cancelled is is_cancelled


@needs_beam
@pytest.mark.parametrize(
    "words, message",
    [
        (["--runner=drect"], "--runner drect: Unexpected pipeline runner: drect"),
        (
            ["--runner=direct", "--beam-options=--direct_num_workers=x"],
            "--runner direct: argument --direct_num_workers: invalid int value: 'x'",
        ),
        (
            ["--runner=direct", "--beam-options=--help"],
            "--runner direct: its options are in Beam's pages",
        ),
        (["--runner=direct", "--num-workers=2"], "--num-workers is for processes of this machine"),
    ],
)
def test_wrong_use_is_told_before_data_is_touched(tmp_path, capsys, words, message):
    assert main([*arguments("prepare", "tsv:corpus.tsv", tmp_path / "w"), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"xling prepare: error: {message}")
    assert not (tmp_path / "w").exists()


def test_without_beam_the_way_to_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ImportError, match=r"--runner flink: .*pip install 'xling_jax\[beam\]'"):
        BeamRunner("flink")


def test_beam_is_imported_for_a_runner_only():
    code = "import sys, xling_jax.cli.prepare_data; print('apache_beam' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=_ROOT)
    assert out.stdout.strip() == "False", out.stderr


@needs_beam
@pytest.mark.parametrize(
    "words", [["--config.data.corpora=('tsv:gs://b/a.tsv',)"], ["--workdir=gs://b/w"]]
)
def test_urls_are_refused_before_anything_runs(tmp_path, capsys, words):
    command = [*arguments("prepare", "tsv:corpus.tsv", tmp_path / "w"), "--runner=direct"]
    assert main([*command, *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "gs://b/" in line and "workers of --runner read no URLs; mount its store" in line
    assert not (tmp_path / "w/data/text").exists()
