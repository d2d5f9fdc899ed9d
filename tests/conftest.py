"""CPU only, seeded, no network: what every test of this suite runs under."""

import importlib.metadata
import os
import signal
import subprocess
import sys
from collections.abc import Callable

os.environ["JAX_PLATFORMS"] = "cpu"
# Compiling is what these tests wait for: what one process has compiled, the others and the next
# run of the suite read. JAX's key of a program knows jaxlib, its flags and the processor.
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ.get(
    "JAX_COMPILATION_CACHE_DIR", os.path.realpath(f"{__file__}/../../.xla-tests")
)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"
# A process killed while it writes leaves half a program, which JAX reports and compiles again.
os.environ["PYTHONWARNINGS"] = "ignore:Error reading persistent compilation cache entry"
# Their arrays are too small to gain from optimised code.
# XLA aborts on flags it does not know, so the second goes to versions that are known to have it.
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_backend_optimization_level=0",
        "--xla_cpu_use_fusion_emitters=false"
        if importlib.metadata.version("jaxlib").startswith("0.10.")
        else "",
    ]
)

# Background jobs ignore Ctrl-C, and those of nohup a closed terminal; so would the programs that
# they start, which do not inherit a handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

import jax
import pytest

from tests import browser


@pytest.fixture
def key() -> jax.Array:
    """A fixed PRNG key."""
    return jax.random.key(0)


@pytest.fixture(scope="session")
def output_of(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Runs Python with arguments in a process of its own; returns what it printed."""

    def output_of(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        out = subprocess.run(command, cwd=request.config.rootpath, capture_output=True, text=True)
        assert out.returncode == 0, out.stderr
        return out.stdout

    return output_of


@pytest.fixture(scope="module")
def chromium():
    """A driver of Chromium; its page complains in `get_log("browser")`."""
    with browser.started() as driver:
        yield driver


def pytest_itemcollected(item: pytest.Item) -> None:
    """Makes every exhaustive test a slow one."""
    if item.get_closest_marker("exhaustive"):
        item.add_marker("slow")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the tests that took long and are not marked so."""
    for report in terminalreporter.getreports("passed"):
        if report.duration > 3.0 and "slow" not in report.keywords:
            terminalreporter.write_line(
                f"{report.duration:.1f} s: {report.nodeid}: share what it makes, or mark it slow"
            )
