"""Leaving after a signal: at once while there is nothing to save, otherwise when asked twice."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import signal, sys, time
from xling_jax.files.leaving import noting_signals
with noting_signals(pass_on=False, has_begun=lambda: {has_begun}) as received:
    print("ready", flush=True)
    while not received():
        time.sleep(0.01)
print("saved", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("has_begun", [True, False])
def test_the_first_signal_ends_a_process_that_has_nothing_to_save(number, has_begun):
    command = [sys.executable, "-c", PROGRAM.format(has_begun=has_begun)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    assert (output == "saved\n") == has_begun
    assert process.returncode == (0 if has_begun else 128 + number)
    assert ("run the same command to resume" in errors) != has_begun
