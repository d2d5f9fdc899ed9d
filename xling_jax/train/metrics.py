"""Metrics of a run: sums from the device, divided once on the host; JSON lines, TensorBoard."""

import contextlib
import json
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from xling_jax.files.untrusted import parse_json
from xling_jax.files.whole import naming_errors, write_whole
from xling_jax.train.loss_scale import MINIMUM_SCALE

_logger = logging.getLogger(__name__)

_COUNTS = ("rows", "sentences", "tokens", "skipped_updates")
NOT_AVERAGED = (*_COUNTS, "normalizer", "gradient_norm", "loss_scale")


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """Divides every sum by its own count, or by the normalizer if it has none.

    The sums are over an interval of updates, see `train.objective`; the means are without counts
    and totals.
    """
    averaged = {}
    for name, value in sums.items():
        if name.endswith("_count") or name in NOT_AVERAGED:
            continue
        count = sums.get(f"{name}_count", sums["normalizer"])
        averaged[name] = float(value) / float(count) if count else float("nan")
    return averaged


class Interval:
    """Sums of the updates since the last log line, read from the device one step late.

    `describe` maps a step to what it was trained on, for errors. With what `progress` returned, a
    run that was stopped within an interval has the same log line as without the stop.
    """

    def __init__(self, describe: Callable[[int], str], progress: Mapping[str, Any] | None = None):
        self._describe = describe
        self._waiting: tuple[int, Any] | None = None
        self.restart()
        if progress:
            self._sums.update(progress["sums"])
            self._updates, self._padded_tokens = progress["updates"], progress["padded_tokens"]
            # Speed is that of this process alone.
            self._before = self._totals()

    def restart(self) -> None:
        """Begins a new interval."""
        self._sums: Counter[str] = Counter()
        self._before: Counter[str] = Counter()
        self._updates, self._padded_tokens = 0, 0
        self._started, self._paused = time.perf_counter(), 0.0

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Excludes the time of a block from the speed."""
        started = time.perf_counter()
        yield
        self._paused += time.perf_counter() - started

    def _totals(self) -> Counter[str]:
        return Counter(
            steps=self._updates, tokens=self._sums["tokens"], sentences=self._sums["sentences"]
        )

    def progress(self) -> dict[str, Any]:
        """JSON-like state for the constructor. Call `drain` first."""
        sums = dict(self._sums)
        return {"sums": sums, "updates": self._updates, "padded_tokens": self._padded_tokens}

    def add(self, step: int, sums: Any, *, padded_tokens: int) -> None:
        """Takes the sums of update `step`, still on the device; reads those of the one before.

        FloatingPointError if the loss or gradient of the latter is not finite, and with a loss
        scale, if lowering it does not help.
        """
        self._padded_tokens += padded_tokens
        self.drain()
        self._waiting = (step, sums)

    def drain(self) -> None:
        """Reads the sums of the latest update; waits for it. Raises as `add`."""
        if self._waiting is None:
            return
        step, sums = self._waiting[0], jax.device_get(self._waiting[1])
        self._waiting = None
        sums = {name: float(value) for name, value in sums.items()}
        scale, skipped = sums.pop("loss_scale", None), sums.get("skipped_updates")
        finite = math.isfinite(sums["loss"]) and math.isfinite(sums["gradient_norm"])
        if not (finite or (skipped and scale >= MINIMUM_SCALE)):
            raise FloatingPointError(
                f"step {step}: loss {sums['loss']}, gradient norm {sums['gradient_norm']} "
                f"on {self._describe(step)}"
                + (f", with a loss scale of only {2 * scale:g}" if skipped else "")
            )
        if skipped:
            _logger.info("step %d: float16 overflow, skipped; loss scale now %g", step, scale)
            sums["gradient_norm"] = 0.0
            if not math.isfinite(sums["loss"]):  # the overflow was in the forward pass
                sums = {name: v if name in _COUNTS else 0.0 for name, v in sums.items()}
        self._sums.update(sums)
        if scale is not None:
            self._sums["loss_scale"] = scale
        self._updates += 1

    def metrics(self) -> dict[str, float]:
        """Means of the interval and speed, as `train/NAME`.

        In float16 there are also the latest loss scale and the number of skipped updates.
        """
        seconds = max(time.perf_counter() - self._started - self._paused, 1e-9)
        values = means(self._sums)
        good = self._updates - self._sums["skipped_updates"]
        if good:
            values["gradient_norm"] = self._sums["gradient_norm"] / good
        if "loss_scale" in self._sums:
            values |= {name: self._sums[name] for name in ("loss_scale", "skipped_updates")}
        for name, total in self._totals().items():
            values[f"{name}_per_second"] = (total - self._before[name]) / seconds
        values["padding_efficiency"] = self._sums["tokens"] / self._padded_tokens
        return {f"train/{name}": value for name, value in values.items()}


class MetricsWriter:
    """Appends to `W/metrics.jsonl` and `W/tensorboard`; OSError names the file.

    A resumed run drops the records of later steps than `resume_step`, so that the file reads as if
    the run had never stopped.

    Args:
        workdir: of the run.
        resume_step: last step whose records stay.
        enabled: False on all processes but the first.
        expected: number of records that there were when the checkpoint to resume was saved. If
            lines are missing, a warning says so.
        evaluations: step -> dev metrics that checkpoints hold, to restore missing ones from. Step
            `resume_step` is evaluated again if it is not among them.

    Attributes:
        num_records: number of records in the file.
    """

    def __init__(
        self,
        workdir: str | os.PathLike,
        resume_step: int,
        enabled: bool = True,
        expected: int = 0,
        evaluations: Mapping[int, Mapping[str, float]] = MappingProxyType({}),
    ):
        self._file, self.num_records = None, 0
        if not enabled:
            return
        # Imported here: takes a second, and other processes write nothing.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        def stays(record: Mapping[str, float]) -> bool:
            if record["step"] == resume_step:
                return "train/loss" in record or resume_step in evaluations
            return record["step"] < resume_step

        self._path = Path(workdir) / "metrics.jsonl"
        kept = [record for record in read_metrics(workdir) if stays(record)]
        if len(kept) < expected:
            measured = {record["step"] for record in kept if "train/loss" not in record}
            found = [_record(step, dev) for step, dev in evaluations.items()]
            found = [new for new in found if new["step"] not in measured and stays(new)]
            _logger.warning(
                "%s: %d of %d lines up to step %d are lost; restored %d evaluations from the "
                "checkpoints; the rest is only in a backup",
                *(self._path, expected - len(kept), expected, resume_step, len(found)),
            )
            kept = sorted(kept + found, key=lambda record: record["step"])
        self.num_records = len(kept)
        with naming_errors(self._path):
            write_whole(self._path, "".join(json.dumps(record) + "\n" for record in kept))
            self._file = self._path.open("a", encoding="utf-8")
        self._events_path = Path(workdir) / "tensorboard"
        with naming_errors(self._events_path):
            self._events_path.mkdir(parents=True, exist_ok=True)
            # `SummaryWriter` writes in a thread, which crashes on a full disk after the run ended.
            self._events = EventsWriter(str(self._events_path / "events"))
            if resume_step:  # TensorBoard forgets what earlier files hold from here on
                start = SessionLog(status=SessionLog.SessionStatus.Value("START"))
                self._write_event(resume_step + 1, session_log=start)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes the scalars of a step and flushes, so that a kill loses nothing."""
        if self._file is None:
            return
        with naming_errors(self._path):
            self._file.write(json.dumps(_record(step, values)) + "\n")
            self._file.flush()
        self.num_records += 1
        from tensorboardX.summary import scalar

        with naming_errors(self._events_path):
            for name, value in values.items():
                self._write_event(step, summary=scalar(name, float(value)))
            self._events.flush()

    def _write_event(self, step: int, **content: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._events.write_event(Event(wall_time=time.time(), step=step, **content))

    def close(self) -> None:
        """Closes the files."""
        if self._file is None:
            return
        for file in (self._file, self._events):
            with contextlib.suppress(OSError):  # of a failed write, already raised
                file.close()


def _record(step: int, values: Mapping[str, float]) -> dict[str, float]:
    rounded = lambda value: float(np.format_float_scientific(float(value), precision=8, trim="-"))
    return {"step": step} | {name: rounded(value) for name, value in values.items()}


def read_metrics(workdir: str | os.PathLike) -> list[dict[str, float]]:
    """The records of `W/metrics.jsonl`, in order, without a torn last line."""
    path = Path(workdir) / "metrics.jsonl"
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n") or not line.startswith(b"{"):
            continue
        record = parse_json(line, f"{path}:{number}", way_out="remove the line")
        if type(record.get("step")) is not int:
            raise ValueError(f"{path}:{number}: must have a step, an integer; remove the line")
        found.append(record)
    return found
