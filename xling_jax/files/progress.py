"""Progress with rate and time left: a bar on a terminal, log lines elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from xling_jax.files.untrusted import printable

_logger = logging.getLogger(__name__)

_BAR_INTERVAL_S = 0.1
# Of log lines: often while somebody watches, seldom in a log of days.
_LOG_INTERVAL_S = 10.0
_LATER_LOG_INTERVAL_S = 60.0
_LATER_S = 1800.0

_are_hidden = False


def hide_bars(hidden: bool) -> None:
    """Draws no bars from now on where none is asked for by `show=True`."""
    global _are_hidden
    _are_hidden = hidden


class LogHandler(logging.StreamHandler):
    """Writes log lines to a stream, above a bar if one is shown."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats a line; see `logging.Handler`."""
        return printable(super().format(record))

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line; see `logging.Handler`."""
        tqdm = sys.modules.get("tqdm")
        if tqdm is None or not getattr(tqdm.tqdm, "_instances", None):
            super().emit(record)
        else:
            tqdm.tqdm.write(self.format(record), file=self.stream)


class Progress:
    """Shows how far a piece of work is. Call it with the number of units done.

    Rates start with the first call: until then programs compile and files are opened. `unit` is
    what is counted, in the singular. With `show` there is a bar; by default where stderr is a
    terminal, and elsewhere a log line every 10 s, after half an hour every minute.
    """

    def __init__(
        self, what: str, total: int | None = None, unit: str = "step", show: bool | None = None
    ):
        self._what, self._total, self._unit = what, total, unit
        has_bar = sys.stderr.isatty() and not _are_hidden if show is None else show
        self._bar = _make_bar(what, total, unit) if has_bar else None
        self._logs = show is None and not has_bar
        self._begun_s = time.monotonic()
        self._next_s = self._begun_s + (_LOG_INTERVAL_S if self._logs else 0)
        self._first: tuple[float, int] | None = None
        self._idle_s = 0.0
        self.done = 0

    def __call__(self, done: int, total: int | None = None, idle_s: float = 0.0) -> None:
        """Shows that `done` units are done, from the start; `total` if it is known now.

        `idle_s` seconds since the last call say nothing about the rate, such as those of compiling.
        """
        self.done, now = done, time.monotonic()
        if self._first is None:
            self._first, idle_s = (now, done), 0.0
            if self._bar is not None:
                self._bar.n = self._bar.initial = self._bar.last_print_n = done
                self._bar.start_t = self._bar.last_print_t = time.time()
        self._idle_s += idle_s
        if self._bar is not None:
            self._bar.start_t += idle_s
            self._bar.last_print_t += idle_s
        if now < self._next_s:
            return
        later = now - self._begun_s >= _LATER_S
        log_interval_s = _LATER_LOG_INTERVAL_S if later else _LOG_INTERVAL_S
        self._next_s = now + (log_interval_s if self._logs else _BAR_INTERVAL_S)
        self._total = total or self._total
        if self._logs:
            self._log(now)
        elif self._bar is not None:
            self._bar.total = self._total
            self._bar.update(done - self._bar.n)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def _log(self, now: float) -> None:
        started, done_before = self._first
        seconds = now - started - self._idle_s
        of_total = f" of {self._total}" if self._total else ""
        text = f"{self._what}: {self.done}{of_total} {self._unit}s"
        if self.done > done_before and seconds >= 1:  # in less, work has only been dispatched
            rate = (self.done - done_before) / seconds
            text += f", {rate:,.{0 if rate >= 100 else 2}f}/s"
            if self._total:
                text += f", {(self._total - self.done) / rate:.0f} s left"
        _logger.info("%s", text)


def counted(number: int, unit: str) -> str:
    """`1 document`, `1,234 documents`."""
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def _make_bar(what: str, total: int | None, unit: str) -> Any:
    # Imported here: the library loads without it, and few need a bar.
    from tqdm import tqdm

    # Every update is shown: they are throttled by `Progress`.
    settings = {"mininterval": 0, "miniters": 1, "dynamic_ncols": True}
    return tqdm(total=total, desc=printable(what), unit=unit, leave=False, **settings)


def track(
    items: Iterable[Any],
    what: str,
    total: int | None = None,
    unit: str = "step",
    size: Callable[[Any], int] = lambda item: 1,
) -> Iterator[Any]:
    """Yields items and shows how many have been used, as `Progress`.

    The size of an item in units is 1 unless given, such as `len` for chunks.
    """
    with Progress(what, total, unit) as progress:
        for item in items:
            yield item
            progress(progress.done + size(item))
