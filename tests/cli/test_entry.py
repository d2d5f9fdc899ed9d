"""The console script: computing commands start anew with large memory pages; how it ends."""

import os
import subprocess
import sys

import pytest

from tests.cli.corpora_for_cli import ROOT


def run_python(program: str, *words: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs a program after the imports that all of these need."""
    inherited = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    imports = "import os, platform, signal, sys, threading, time\nfrom xling_jax.cli import main\n"
    return subprocess.run(
        [sys.executable, "-c", imports + program, *words],
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=50,
    )


def entry(*words, **environment):
    """In place of starting anew: what would be started, and with which setting."""
    show = """
platform.libc_ver = lambda: ("glibc", "2.36")
os.execv = lambda program, words: sys.exit(f"{os.environ['GLIBC_TUNABLES']} {words[1:]}")
main.entry()
"""
    return run_python(show, *words, **environment).stderr


@pytest.mark.parametrize("command", ["train", "embed"])
def test_a_computing_command_is_started_anew_with_its_arguments(command):
    started = entry(command, "--help")
    assert started.startswith("glibc.malloc.hugetlb=1 ['-c'")
    assert started.rstrip().endswith(f"'{command}', '--help']")


def test_the_process_ends_with_its_output_under_threads_that_still_run():
    finished = run_python(
        "def run():\n"
        "    threading.Thread(target=time.sleep, args=(100,)).start()\n"
        "    print('rows')\n"
        "    return 3\n"
        "main.main = run\n"
        "main.entry()\n"
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (3, "rows\n", "")


def test_ctrl_c_while_modules_are_imported_is_one_line():
    finished = run_python(
        "main.main = lambda: signal.raise_signal(signal.SIGINT) or time.sleep(9)\nmain.entry()\n"
    )
    assert (finished.returncode, finished.stderr) == (130, "xling: interrupted\n")


def test_ctrl_c_where_python_ignores_exceptions_is_not_lost_and_leaves_no_trace():
    finished = run_python(
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


@pytest.mark.parametrize(
    ("streams", "expected"),
    [
        ("", (0, "ä \\udce9\n", "")),  # in any locale
        ("lost 2>&-", (0, "ä \\udce9\n", "")),
        (">&-", (1, "", "xling: error: stdout is closed; redirect it, say to /dev/null\n")),
    ],
)
def test_stdout_is_utf_8_and_either_stream_may_be_closed(tmp_path, streams, expected):
    (tmp_path / "show.py").write_text(
        "import sys\nfrom xling_jax.cli import main\n"
        "def run():\n"
        "    if sys.argv[1:]: print('lost', file=sys.stderr)\n"
        "    print('\\xe4 \\udce9')\n"
        "    return 0\n"
        "if sys.stdout is not None: main.main = run\n"
        "main.entry()\n"
    )
    finished = subprocess.run(
        f"exec {sys.executable} {tmp_path / 'show.py'} {streams}",
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        shell=True,
        capture_output=True,
    )
    found = finished.returncode, finished.stdout.decode(), finished.stderr.decode()
    assert found == expected
