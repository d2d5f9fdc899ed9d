"""Commands that compute start anew with large memory pages, once, unless the user has chosen."""

import os
import subprocess
import sys

import pytest

from tests.cli.corpora_for_cli import ROOT

# In place of starting anew: what would be started, and with which setting.
SHOW = """
import os, platform, sys
from xling_jax.cli import main
platform.libc_ver = lambda: ("glibc", "2.36")
os.execv = lambda program, words: sys.exit(f"{os.environ['GLIBC_TUNABLES']} {words[1:]}")
main.entry()
"""


def entry(*words, **environment):
    inherited = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    return subprocess.run(
        [sys.executable, "-c", SHOW, *words],
        env={**inherited, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    ).stderr


@pytest.mark.parametrize("command", ["train", "embed", "quickstart"])
def test_a_computing_command_is_started_anew_with_its_arguments(command):
    started = entry(command, "--help")
    assert started.startswith("glibc.malloc.hugetlb=1 ['-c'")
    assert started.rstrip().endswith(f"'{command}', '--help']")


def test_other_commands_and_own_settings_are_left_alone():
    assert not entry("convert", "--help")
    assert not entry("train", "--help", GLIBC_TUNABLES="glibc.malloc.hugetlb=0")
