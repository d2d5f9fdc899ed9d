"""Preparation in real processes that are killed, or run into the end of the disk."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.corpora.small_corpus import tree
from xling_jax.corpora.shards import PairTokens

pytestmark = pytest.mark.slow

# Small chunks, so that a small corpus has many moments to be killed at.
_SCRIPT = """
import resource, sys
from xling_jax.corpora import pair_text, pair_tokens
from xling_jax.corpora.options import Preparation, VocabOptions
from xling_jax.corpora.prepare import prepare

if __name__ == "__main__":
    corpus, workdir, num_workers, limit = sys.argv[1:]
    pair_text.CHUNK_ROWS, pair_tokens.SHARD_ROWS = 200, 500
    if int(limit):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    preparation = Preparation(
        languages=["de", "en"],
        corpora=[f"tsv:{corpus}"],
        pairs=["de-en"],
        vocab=VocabOptions(size=200),
    )
    prepare(preparation, workdir=workdir, num_workers=int(num_workers))
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    letters = np.asarray(list("abcdefghijklmnopqrst"))
    words = ["".join(rng.choice(letters, 5)) for _ in range(300)]
    path = tmp_path_factory.mktemp("corpus") / "corpus.tsv"
    sides = [[" ".join(rng.choice(words, 9)) for _ in range(6000)] for _ in range(2)]
    path.write_text("de\ten\n" + "".join(f"{a}\t{b}\n" for a, b in zip(*sides, strict=True)))
    return path


def start(corpus: Path, workdir: Path, num_workers: int = 1, limit: int = 0) -> subprocess.Popen:
    script = corpus.with_name("run.py")
    script.write_text(_SCRIPT)
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, str(script), str(corpus), str(workdir), str(num_workers), str(limit)],
        env={**os.environ, "PYTHONPATH": str(root)},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory) -> tuple[dict[str, bytes], float]:
    """What a run that nothing disturbs leaves, and the seconds it takes."""
    workdir = tmp_path_factory.mktemp("uninterrupted")
    started = time.monotonic()
    assert start(corpus, workdir).wait() == 0
    return tree(workdir), time.monotonic() - started


def check_nothing_is_half_written(workdir: Path, expected: dict[str, bytes]) -> None:
    """What stands under a final name has its final bytes."""
    for name, content in tree(workdir).items():
        if not any(part.startswith(".") for part in Path(name).parts):
            assert content == expected[name], name


def test_killed_at_any_moment_the_next_run_ends_with_the_same_bytes(
    corpus, uninterrupted, tmp_path
):
    expected, duration_s = uninterrupted
    num_workers = 2
    moments = random.Random(num_workers)
    for _ in range(6):
        process = start(corpus, tmp_path, num_workers)
        # Importing takes the first part of a run, and there is nothing to disturb in it.
        time.sleep(duration_s * moments.uniform(0.3, 1.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        check_nothing_is_half_written(tmp_path, expected)
    assert start(corpus, tmp_path, num_workers).wait() == 0
    assert tree(tmp_path) == expected


@pytest.mark.exhaustive
def test_worker_processes_do_not_outlive_a_killed_parent(corpus, tmp_path):
    process = start(corpus, tmp_path, num_workers=2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        process.kill()
        pytest.skip("needs /proc/PID/task/PID/children")
    workers: list[str] = []
    deadline = time.monotonic() + 30
    # The resource tracker and two workers.
    while len(workers) < 3 and process.poll() is None and time.monotonic() < deadline:
        workers = children.read_text().split()
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert len(workers) == 3
    while any(_is_alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(_is_alive(pid) for pid in workers)


def _is_alive(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_write_that_fails_names_its_path_and_the_next_run_goes_on(
    corpus, uninterrupted, tmp_path
):
    expected, _ = uninterrupted
    process = start(corpus, tmp_path, limit=20_000)
    _, errors = process.communicate()
    assert process.returncode == 1
    last = errors.strip().splitlines()[-1]
    assert last.startswith("OSError: [Errno 27] File too large") and str(tmp_path) in last
    check_nothing_is_half_written(tmp_path, expected)
    assert start(corpus, tmp_path).wait() == 0
    assert tree(tmp_path) == expected


@pytest.mark.exhaustive
def test_two_processes_at_once_share_the_work(corpus, uninterrupted, tmp_path):
    expected, _ = uninterrupted
    processes = [start(corpus, tmp_path) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert tree(tmp_path) == expected
    assert len(PairTokens(tmp_path / "data/de-en")) == 6000
