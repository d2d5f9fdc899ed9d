import gzip
import os
import shutil
import subprocess
import sys

import pytest

from tests.launch.scripts import ROOT
from xling_jax.papers import made_up


def claims(*words, **variables):
    env = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT), **variables}
    script = [ROOT / "launch/claims_on_gpu.sh", *words]
    return subprocess.run(script, env=env, capture_output=True, text=True, timeout=900)


def test_wrong_use_is_one_line(tmp_path):
    for words in ((), ("run", tmp_path), ("prepare", tmp_path, tmp_path / "w")):
        out = claims(*words)
        assert (out.returncode, out.stderr.count("\n")) == (2, 1)


@pytest.mark.exhaustive
def test_it_prepares_once_and_runs_without_the_text(tmp_path):
    text, workdir = tmp_path / "text", tmp_path / "w"
    made_up.write(text)
    (text / "classification/mldoc").rename(text / "classification/sib200")
    shutil.copy(text / "retrieval/europarl.dev.tsv.gz", text / "retrieval/pud.dev.tsv.gz")
    with gzip.open(text / "parallel/games.en-pt.tsv.gz", "wt") as other:
        other.write("en\tpt\nhouse\tcasa\n")
    small = {"SIZE": "smoke", "STEPS": "4", "SYSTEMS": "t_laser laser:layers=1"}
    out = claims("prepare", text, workdir, **small)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines()[-1].endswith(f"MB in {workdir}")
    shutil.rmtree(text)
    assert "not done" in claims("run", workdir, **small, MINUTES="0").stdout
    out = claims("run", workdir, **small)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines()[-1] == "done"
    assert "europarl_dev/p_at_1" in out.stdout and "sib200/" in out.stdout
    assert (workdir / "laser-layers-1/encoder").is_dir()
