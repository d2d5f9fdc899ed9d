"""How the console script ends."""

import subprocess
import sys


def end_of(program: str) -> subprocess.CompletedProcess:
    """A program after the imports that all of these need."""
    imports = "import os, signal, sys, threading, time\nfrom xling_jax.cli import main\n"
    return subprocess.run(
        [sys.executable, "-c", imports + program], capture_output=True, text=True, timeout=50
    )


def test_the_process_ends_with_its_output_under_threads_that_still_run():
    finished = end_of(
        "def run():\n"
        "    threading.Thread(target=time.sleep, args=(100,)).start()\n"
        "    print('rows')\n"
        "    return 3\n"
        "main.main = run\n"
        "main.entry()\n"
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (3, "rows\n", "")


def test_ctrl_c_while_modules_are_imported_is_one_line():
    finished = end_of(
        "main.main = lambda: signal.raise_signal(signal.SIGINT) or time.sleep(9)\nmain.entry()\n"
    )
    assert (finished.returncode, finished.stderr) == (130, "xling: interrupted\n")


def test_ctrl_c_where_python_ignores_exceptions_is_not_lost_and_leaves_no_trace():
    finished = end_of(
        "class Collected:\n"
        "    def __del__(self):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "def run():\n"
        "    Collected()\n"
        "    print('ignored')\n"
        "    time.sleep(30)\n"
        "main.main = run\n"
        "main.entry()\n"
    )
    assert finished.stdout == "ignored\n"
    assert (finished.returncode, finished.stderr) == (130, "xling: interrupted\n")
