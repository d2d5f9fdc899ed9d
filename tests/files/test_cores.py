"""Cores by affinity, quota and what runs."""

import os

import pytest

from xling_jax.files import cores
from xling_jax.files.cores import num_cores, num_free_cores


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with 8 cores, 6 of them for this process; the files are read from a directory."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    quotas = [[str(tmp_path / file.rsplit("/")[-1]) for file in files] for files in cores._QUOTAS]
    monkeypatch.setattr(cores, "_QUOTAS", quotas)
    monkeypatch.setattr(cores, "_LOAD", str(tmp_path / "loadavg"))
    cores._quota.cache_clear()
    yield tmp_path
    cores._quota.cache_clear()


@pytest.mark.parametrize(
    "files, expected",
    [
        ({}, 6),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "20000 100000\n"}, 1),
        ({"cpu.max": "9900000 100000\n"}, 6),
        ({"cpu.max": "max 100000\n"}, 6),
        ({"cpu.cfs_quota_us": "300000\n", "cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, 6),
        ({"cpu.cfs_quota_us": "300000\n"}, 6),
        ({"cpu.max": "what?\n"}, 6),
    ],
)
def test_the_quota_of_a_container_counts(files, expected, machine):
    for name, text in files.items():
        (machine / name).write_text(text)
    assert num_cores() == expected


@pytest.mark.parametrize(
    "running, own, expected",
    [(1, 0, 6), (3, 0, 6), (4, 0, 5), (8, 0, 1), (40, 0, 1), (4, 2, 6), (8, 3, 4)],
)
def test_cores_that_run_other_threads_are_not_free(running, own, expected, machine):
    (machine / "loadavg").write_text(f"2.42 0.33 0.10 {running}/512 4711\n")
    assert num_free_cores(own) == expected


def test_where_the_system_does_not_tell_all_cores_are_free(machine):
    assert num_free_cores() == 6
    for text in ("", "0.00 0.00 0.00\n", "0.00 0.00 0.00 0/0 0\n", "unknown\n"):
        (machine / "loadavg").write_text(text)
        assert num_free_cores() == 6
