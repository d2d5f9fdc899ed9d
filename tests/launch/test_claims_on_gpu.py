import os
import subprocess
import sys

from tests.launch.scripts import ROOT


def claims(*words, **variables):
    env = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT), **variables}
    script = [ROOT / "launch/claims_on_gpu.sh", *words]
    return subprocess.run(script, env=env, capture_output=True, text=True, timeout=900)


def test_wrong_use_is_one_line(tmp_path):
    for words in ((), ("run", tmp_path), ("prepare", tmp_path, tmp_path / "w")):
        out = claims(*words)
        assert (out.returncode, out.stderr.count("\n")) == (2, 1)
