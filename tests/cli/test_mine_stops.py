"""`xling mine` killed again and again at random moments ends with the bytes of an unbroken run."""

import random
import signal
import subprocess
import sys

import pytest

# Records and spans are made small, so that a short run has many moments to die at: before files are
# synchronised, before a record is written and before it replaces the last. It dies at the N-th of
# them, and otherwise prints how many there were.
RUN = """
import os, signal, sys
from xling_jax.align import stages
stages._RECORD_EVERY_S = -1
stages.SPAN_ROWS, stages._SPAN_PRODUCTS = 64, {"numpy": 1}
moments, last = 0, int(sys.argv[1])

def mortal(function):
    def call(*args):
        global moments
        moments += 1
        if moments == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args)
    return call

stages.write_json, os.fsync = mortal(stages.write_json), mortal(os.fsync)
os.replace = mortal(os.replace)
from xling_jax.cli.main import main
status = main(sys.argv[2:])
print(moments)
sys.exit(status)
"""


@pytest.mark.slow
@pytest.mark.parametrize("shares", [(), ("1/2", "2/2")], ids=["one process", "two shares"])
def test_a_run_killed_at_random_moments_writes_the_same_bytes(tmp_path, shares):
    rng = random.Random(4)
    words = ["sun", "rises", "small", "town", "near", "old", "rivers", "nobody", "speaks", "again"]
    for side in ("de", "en"):
        lines = (" ".join(rng.choices(words, k=rng.randint(3, 12))) for _ in range(9000))
        (tmp_path / f"a.{side}").write_text("".join(f"{line}\n" for line in lines))

    def run(output, last, *options):
        sides = ("--source", tmp_path / "a.de", "--target", tmp_path / "a.en", "--backend", "numpy")
        argv = (last, "mine", "--model", "mini", *sides, "--output", tmp_path / output, *options)
        return subprocess.run(
            [sys.executable, "-c", RUN, *map(str, argv)], capture_output=True, text=True
        )

    whole = run("whole.tsv", 0)
    assert whole.returncode == 0, whole.stderr
    moments = int(whole.stdout)
    logged = ""
    for share in shares or (None,):
        command = ("killed.npz", "--shard", share) if share else ("killed.tsv",)
        for _ in range(8 // max(1, len(shares))):
            last = rng.randint(1, moments // (10 * max(1, len(shares))))
            killed = run(command[0], last, *command[1:])
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            logged += killed.stderr
        ended = run(command[0], 0, *command[1:])
        assert ended.returncode == 0, ended.stderr
        logged += ended.stderr
    assert "continues with" in logged
    if shares:
        joined = run("killed.tsv", 0, "--join", tmp_path / "killed-*-of-00002.npz")
        assert joined.returncode == 0, joined.stderr
    assert (tmp_path / "killed.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    left = {path.name for path in tmp_path.iterdir() if path.suffix != ".npz"}
    assert left == {"a.de", "a.en", "killed.tsv", "whole.tsv"}
