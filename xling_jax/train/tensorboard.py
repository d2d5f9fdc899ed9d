"""Scalars for TensorBoard, written by the caller's own thread.

The thread of tensorboardX's `SummaryWriter` dies aloud on a full disk, after the run ended.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

from xling_jax.files.whole import naming_errors


class ScalarBoard:
    """A new event file in a directory.

    Args:
        directory: made if it is not there.
        purge_step: from here on TensorBoard forgets what earlier files of the directory say.

    Raises:
        OSError: naming the directory, here and in `write`.
    """

    def __init__(self, directory: Path, purge_step: int | None = None):
        self._directory = directory
        with naming_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(str(directory / "events"))
            if purge_step is not None:
                start = SessionLog(status=SessionLog.SessionStatus.Value("START"))
                self._writer.write_event(_event(purge_step, session_log=start))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Writes and flushes the scalars of a step."""
        with naming_errors(self._directory):
            for name, value in values.items():
                self._writer.write_event(_event(step, summary=scalar(name, float(value))))
            self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()


def _event(step: int, **what: Any) -> Event:
    return Event(wall_time=time.time(), step=step, **what)
