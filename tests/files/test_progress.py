"""Progress on a terminal and in logs."""

import io
import logging
import re
import sys

import pytest

from xling_jax.files import progress as progress_lib
from xling_jax.files.progress import Progress, counted, track


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [0.0]
    monkeypatch.setattr(progress_lib.time, "monotonic", lambda: now[0])
    return now


def put_terminal(monkeypatch):
    """Puts a terminal in place of stderr."""
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_logs_give_rate_and_time_left_without_the_first_step(clock, caplog):
    caplog.set_level("INFO")
    with Progress("train", 100) as progress:
        clock[0] = 500.0  # compiling
        progress(1)
        for done in range(2, 42):
            clock[0] += 1.0
            progress(done)
    assert caplog.messages == [
        "train: 1 of 100 steps",
        "train: 11 of 100 steps, 1.00/s, 89 s left",
        "train: 21 of 100 steps, 1.00/s, 79 s left",
        "train: 31 of 100 steps, 1.00/s, 69 s left",
        "train: 41 of 100 steps, 1.00/s, 59 s left",
    ]


def test_time_left_leaves_out_what_was_idle(clock, caplog):
    caplog.set_level("INFO")
    with Progress("train", 100) as progress:
        progress(1)
        for done, compiling_s, seconds in ((2, 40.0, 0.5), (3, 0.0, 3.5), (4, 50.0, 2.0)):
            clock[0] += compiling_s + seconds
            progress(done, idle_s=compiling_s)
    assert caplog.messages == [
        "train: 2 of 100 steps",
        "train: 4 of 100 steps, 0.50/s, 192 s left",
    ]


def test_a_long_job_logs_every_minute(clock, caplog):
    caplog.set_level("INFO")
    with Progress("train", unit="step") as progress:
        for done in range(1, 2101):
            clock[0] += 1.0
            progress(done)
    assert len(caplog.messages) == 180 + 5  # of half an hour, and of five minutes


def test_a_terminal_gets_a_bar_and_no_log_lines(clock, monkeypatch, caplog):
    caplog.set_level("INFO")
    terminal = put_terminal(monkeypatch)
    with Progress("embed", 10, "sentence") as progress:
        for clock[0], done in ((100, 4), (200, 6), (300, 8)):
            progress(done)
    shown = re.findall(r"\d+/10", terminal.getvalue())
    assert shown[0] == "0/10" and "8/10" in shown and not caplog.messages


def test_items_are_passed_on_and_counted_by_size(clock, caplog):
    caplog.set_level("INFO")
    chunks = [[1, 2], [3], [4, 5, 6]]

    def slow():
        for chunk in chunks:
            clock[0] += 31.0
            yield chunk

    assert list(track(slow(), "embed", 6, "sentence", len)) == chunks
    assert [re.search(r"\d+ of 6", m)[0] for m in caplog.messages] == ["2 of 6", "3 of 6", "6 of 6"]


def test_log_lines_stand_above_a_bar(monkeypatch):
    terminal = put_terminal(monkeypatch)
    handler = progress_lib.LogHandler(terminal)
    record = logging.LogRecord("x", logging.INFO, "", 0, "a line", (), None)
    handler.emit(record)
    assert terminal.getvalue() == "a line\n"
    with Progress("embed", 10, "sentence") as progress:
        progress(4)
        handler.emit(record)
        drawn = terminal.getvalue()
    # The bar is wiped before the line and drawn again below it.
    assert re.search(r"embed[^\n]*\r *\ra line\n\r?embed", drawn)


def test_bars_can_be_hidden(monkeypatch):
    terminal = put_terminal(monkeypatch)
    progress_lib.hide_bars(True)
    try:
        with Progress("embed", 10, "sentence") as progress:
            progress(4)
    finally:
        progress_lib.hide_bars(False)
    with Progress("embed", 10, show=False) as progress:
        progress(5)
    assert not terminal.getvalue()


def test_a_number_agrees_with_its_unit():
    found = [counted(number, "row") for number in (0, 1, 2, 12345)]
    assert found == ["0 rows", "1 row", "2 rows", "12,345 rows"]


def test_escape_sequences_of_names_are_shown_and_not_obeyed():
    stream = io.StringIO()
    handler = progress_lib.LogHandler(stream)
    name = "\x1b[2Jä\x9b1m\u202e\udcff\r.tsv"
    handler.emit(logging.LogRecord("x", logging.INFO, "", 0, "%s\nread", (name,), None))
    assert stream.getvalue() == "\\x1b[2Jä\\x9b1m\\u202e\\udcff\\r.tsv\nread\n"
