"""Metrics: sums from the device, divided once on the host; JSON lines and TensorBoard."""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xling_jax.files.whole import naming_errors, write_whole

_NOT_AVERAGED = ("normalizer", "rows", "sentences", "tokens", "gradient_norm")


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """Divides every sum by its own count, or by the normalizer where it has none.

    Args:
        sums: sums over an interval of updates, see `train.objective`.

    Returns:
        name -> mean; counts and totals are left out.
    """
    averaged = {}
    for name, value in sums.items():
        if name.endswith("_count") or name in _NOT_AVERAGED:
            continue
        count = sums.get(f"{name}_count", sums["normalizer"])
        averaged[name] = float(value) / float(count) if count else float("nan")
    return averaged


class MetricsWriter:
    """Appends to `W/metrics.jsonl` and to TensorBoard event files.

    A run that is resumed at step n drops what was written for later steps, so that the file reads
    as if the run had never stopped.

    Args:
        workdir: the run's directory.
        resume_step: last step that stays.
        enabled: False on all processes but the first.
        evaluation_due: step n is evaluated after it was saved, so what was measured then is
            dropped as well.
    """

    def __init__(
        self,
        workdir: str | os.PathLike,
        resume_step: int,
        enabled: bool = True,
        evaluation_due: bool = False,
    ):
        self._file = self._board = None
        if not enabled:
            return
        from xling_jax.train.tensorboard import ScalarBoard

        self._path = Path(workdir) / "metrics.jsonl"

        def stays(record: Mapping[str, float]) -> bool:
            if evaluation_due and record["step"] == resume_step:
                return "train/loss" in record
            return record["step"] <= resume_step

        kept = [line for line in _whole_lines(self._path) if stays(json.loads(line))]
        with naming_errors(self._path):
            write_whole(self._path, "".join(kept))
            self._file = self._path.open("a", encoding="utf-8")
        self._board = ScalarBoard(
            Path(workdir) / "tensorboard", purge_step=resume_step + 1 if resume_step else None
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes one line of scalars for a step; flushed, so that a kill loses nothing.

        Raises:
            OSError: naming the file, e.g. on a full disk.
        """
        if self._file is None:
            return
        record = {"step": step} | {name: _rounded(value) for name, value in values.items()}
        with naming_errors(self._path):
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
        self._board.write(step, values)

    def close(self) -> None:
        """Closes both files; all was flushed before."""
        for file in (self._file, self._board):
            if file is not None:
                with contextlib.suppress(OSError):  # of a write that was refused and raised
                    file.close()


def _rounded(value: float) -> float:
    return float(np.format_float_scientific(float(value), precision=8, trim="-"))


def _whole_lines(path: Path) -> list[str]:
    """Lines that were written to their end."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [line for line in lines if line.endswith("\n") and line.startswith("{")]


def read_metrics(workdir: str | os.PathLike) -> list[dict[str, float]]:
    """The records of `W/metrics.jsonl`, in order."""
    return [json.loads(line) for line in _whole_lines(Path(workdir) / "metrics.jsonl")]
