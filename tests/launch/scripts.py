"""The scripts of launch/, run with stand-ins for the programs they call."""

import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Writes down how it was called, a word a line, and what it was given to read.
_STAND_IN = r"""#!/usr/bin/env bash
{
    printf '%s\n' "$(basename "$0")" "$@"
    env | grep -E '^(JAX_|CUDA_VISIBLE)' | sort
    case " $* " in *" --filename=- "*) cat ;; esac
} > "$RECORDS/$(date +%s%N).$$"
case "$(basename "$0") $*" in
*queued-resources*describe*) echo ACTIVE ;;
*tpu-vm*describe*) echo "$STATE" ;;
srun*)
    for status in ${TASKS:-}; do # the statuses of commands
        "$(printf '%s\n' "$@" | grep task.sh)" "$LOGS/failed" bash -c "exit $status"
    done
    exit "${SRUN_STATUS:-0}"
    ;;
esac
"""


def write_program(path: Path, text: str) -> None:
    """Writes an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class Launcher:
    """Runs scripts, or what they print, and tells which programs were called.

    Args:
        directory: for the stand-ins and their records.
    """

    def __init__(self, directory: Path):
        self._records, self._programs = directory / "records", directory / "programs"
        self._records.mkdir()
        for name in ("gcloud", "git", "docker", "kubectl", "sbatch", "srun", "scontrol", "xling"):
            write_program(self._programs / name, _STAND_IN)

    def run(
        self, words: Sequence[str], variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess:
        """Runs `launch/SCRIPT ...` with these variables and no others of the scripts'."""
        return self._run([str(ROOT / "launch" / words[0]), *words[1:]], variables or {})

    def paste(self, text: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess:
        """Runs what a script printed, as a user's shell would."""
        return self._run(["bash", "-euc", text], variables)

    def _run(self, command: list[str], variables: Mapping[str, str]):
        kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        kept["PATH"] = f"{self._programs}:{os.environ['PATH']}"
        kept["RECORDS"] = str(self._records)
        return subprocess.run(
            command,
            env=kept | {"STATE": "PREEMPTED"} | dict(variables),
            cwd=ROOT,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )

    def calls(self) -> list[list[str]]:
        """The calls since the last time this was asked, in order, each as its words."""
        files = sorted(self._records.iterdir())
        texts = [file.read_text().splitlines() for file in files]
        for file in files:
            file.unlink()
        return texts
