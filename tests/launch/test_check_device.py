"""`launch/check_device.sh` writes its page, and says so if a device computes something else."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def check(output, *arguments, **environment):
    command = [ROOT / "launch/check_device.sh", "--output", output, "--small", *arguments]
    environment = os.environ | {"PYTHON": sys.executable, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_the_page_has_every_part_that_was_asked_for(tmp_path):
    done = check(tmp_path / "page", "--parts", "Device", "Encoding", "Exact search")
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "page/README.md").read_text()
    assert f"launch/check_device.sh --output {tmp_path}" in page
    for words in ("## Device", "| T-LASER small | float32 |", "| static small | float32 |"):
        assert words in page
    assert page.splitlines()[-1].endswith("All parts passed.") and "| yes |" in page
    assert (tmp_path / "page/encoding.png").stat().st_size > 5000


@pytest.mark.exhaustive
def test_a_device_that_computes_something_else_fails(tmp_path):
    """Weights that lose bits on their way to the device stand in for one."""
    wrong = tmp_path / "sitecustomize.py"
    wrong.write_text(
        "import jax\n"
        "put = jax.device_put\n"
        "jax.device_put = lambda tree, *where: jax.tree.map(\n"
        "    lambda leaf: leaf.at[..., 0].multiply(1.5), put(tree, *where))\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = check(tmp_path / "page", "--parts", "Correctness", PYTHONPATH=path)
    assert done.returncode == 1 and "Correctness: FAILED" in done.stdout
    page = (tmp_path / "page/README.md").read_text()
    assert "| **no** |" in page and "Failed: Correctness." in page


@pytest.mark.exhaustive
def test_pytorch_trains_and_encodes_in_turns_with_ours(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    done = check(tmp_path / "page", "--parts", "Peer", "Encoder peer")
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "page/README.md").read_text()
    for row in ("small | eager, chunked loss", "tiny, 128 tokens | compiled"):
        assert re.search(rf"\| {re.escape(row)} \| [\d.]+ \| [\d.]+ \|", page), page
