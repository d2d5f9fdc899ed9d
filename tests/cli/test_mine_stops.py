"""`xling mine` killed again and again at random moments ends with the bytes of an unbroken run."""

import random
import subprocess
import sys
import time

import pytest

# Records and spans are made small, so that a short run has many moments to die at.
RUN = """
import sys
from xling_jax.align import stages
stages._RECORD_EVERY_S = -1
stages._SPAN_ROWS, stages._SPAN_PRODUCTS = 64, {"numpy": 1}
from xling_jax.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_run_killed_at_random_moments_writes_the_same_bytes(tmp_path):
    rng = random.Random(4)
    words = ["sun", "rises", "small", "town", "near", "old", "rivers", "nobody", "speaks", "again"]
    for side in ("de", "en"):
        lines = (" ".join(rng.choices(words, k=rng.randint(3, 12))) for _ in range(9000))
        (tmp_path / f"a.{side}").write_text("".join(f"{line}\n" for line in lines))

    def command(output):
        sides = ("--source", tmp_path / "a.de", "--target", tmp_path / "a.en", "--backend", "numpy")
        argv = ("mine", "--model", "mini", *sides, "--output", tmp_path / output)
        return subprocess.Popen(
            [sys.executable, "-c", RUN, *map(str, argv)], stderr=subprocess.PIPE, text=True
        )

    start = time.monotonic()
    whole = command("whole.tsv")
    errors = whole.communicate()[1]
    assert whole.returncode == 0, errors
    seconds = time.monotonic() - start
    lock, kills, logged = tmp_path / ".killed.tsv.mining" / "run.lock", 0, ""
    while True:
        process = command("killed.tsv")
        if kills < 8:
            while process.poll() is None and not lock.exists():
                time.sleep(0.01)
            time.sleep(seconds * rng.uniform(0.1, 0.6))
            if process.poll() is None:
                process.kill()
                logged += process.communicate()[1]
                kills += 1
                if (tmp_path / "killed.tsv").exists():  # it was done, and about to leave
                    whole_bytes = (tmp_path / "whole.tsv").read_bytes()
                    assert (tmp_path / "killed.tsv").read_bytes() == whole_bytes
                    (tmp_path / "killed.tsv").unlink()
                continue
        errors = process.communicate()[1]
        assert process.returncode == 0, errors
        break
    assert kills > 0 and "continues with" in logged + errors
    assert (tmp_path / "killed.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.de",
        "a.en",
        "killed.tsv",
        "whole.tsv",
    ]
