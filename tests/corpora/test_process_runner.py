"""What a process that helps the first one does; whole runs are in tests/cli."""

import dataclasses
from pathlib import Path

import pytest

from xling_jax.corpora import jobs
from xling_jax.corpora.process_runner import ProcessRunner
from xling_jax.files.processes import Processes


@dataclasses.dataclass(frozen=True)
class WriteNumbers:
    """A job: each piece is written into a file of its name."""

    scratch: Path
    name: str = "writing"
    inputs: tuple = ()
    outputs: tuple = ()
    reads_corpora: bool = True

    def share(self, processes):
        return self._write, range(processes.index, 10, processes.count)

    def _write(self, number):
        jobs.save(self.scratch / str(number), number)


def helper(directory, announced, settings="settings", **how):
    """Process 1 of 2, for which the first has announced everything already."""
    for number, job in enumerate(announced):
        where, job = job
        jobs.save(directory / f".jobs.partial/{number:08d}", (where, "settings", job))
    met = []
    processes = Processes(1, 2, met.append, **how)
    progress = lambda items, desc, total=None: items
    how = {"settings": settings, "num_workers": 1, "progress": progress}
    return ProcessRunner(directory, processes, **how), met


def test_a_helper_does_its_share_of_each_job(tmp_path):
    work = [(str(tmp_path), WriteNumbers(tmp_path / f"work{n}")) for n in range(2)]
    events = []
    how = {"send": lambda path: events.append(f"send {path.name}")}
    how["receive"] = lambda path: events.append(f"receive {path.name}")
    runner, met = helper(tmp_path, [*work, (str(tmp_path), None)], **how)
    runner.help_first(lambda: events.append("get ready"))
    for job in ("work0", "work1"):
        assert sorted(path.name for path in (tmp_path / job).iterdir()) == list("13579")
    jobs_of = lambda n: ["receive .jobs.partial", "get ready", f"receive work{n}", f"send work{n}"]
    assert events == [*jobs_of(0), *jobs_of(1), "receive .jobs.partial"]
    assert len(set(met)) == len(met) == 6


def test_errors_of_earlier_runs_are_forgotten_before_the_first_job(tmp_path):
    jobs.save(tmp_path / ".clean.partial/old/rows.error", "left")
    runner, _ = helper(tmp_path, [("elsewhere", None)])
    runner.help_first()
    assert not list(tmp_path.rglob("*.error"))


def test_a_workdir_under_another_path_is_refused_if_there_is_work(tmp_path):
    runner, _ = helper(tmp_path, [("/elsewhere/data", WriteNumbers(tmp_path))])
    with pytest.raises(
        ValueError, match="process 0 prepares data in /elsewhere/data, process 1 in"
    ):
        runner.help_first()


def test_another_config_is_refused_even_without_work(tmp_path):
    runner, _ = helper(tmp_path, [(str(tmp_path), None)], settings="other")
    with pytest.raises(ValueError, match="process 1 was started with another config of the data"):
        runner.help_first()
