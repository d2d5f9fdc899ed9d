"""A cluster on this machine: an object store, a job server, and workers that share no directory."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
BUCKET = "bucket"

# Beam's own server takes the number of workers from nowhere.
_SERVER = """
import sys
from apache_beam.runners.portability import local_job_service_main
from apache_beam.runners.portability.fn_api_runner import fn_runner
made = fn_runner.FnApiRunner.__init__
def with_workers(self, *words, **named):
    made(self, *words, **named)
    self._num_workers = 3
fn_runner.FnApiRunner.__init__ = with_workers
local_job_service_main.run(sys.argv[1:])
"""
# The pool starts each worker by this name; it is the first in its PATH.
_WORKER = """#!/bin/sh
home=$(mktemp -d "{directory}/worker.XXXXXX")
cd "$home" && HOME=$home TMPDIR=$home exec {python} "$@"
"""


class Cluster:
    """What is needed to use it.

    Attributes:
        directory: each worker has one of its own in it, `worker.*`.
        environment: for clients of the object store.
        options: of Beam's `PortableRunner`.
    """

    def __init__(self, directory: Path, ports: list[int]):
        self.directory, (store, server, pool) = directory, ports
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{store}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        self.options = (
            f"--job_endpoint=localhost:{server}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{pool}",
        )

    @property
    def store(self):
        """The object store."""
        import s3fs

        return s3fs.S3FileSystem(
            key=self.environment["AWS_ACCESS_KEY_ID"],
            secret=self.environment["AWS_SECRET_ACCESS_KEY"],
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            use_listings_cache=False,
        )

    def files(self, directory: str) -> dict[str, bytes]:
        """The objects below a directory of the bucket."""
        top = f"{BUCKET}/{directory}/"
        return {name.removeprefix(top): self.store.cat_file(name) for name in self.store.find(top)}


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    """Starts a cluster, and stops it at the end."""
    ports = [_free_port() for _ in range(3)]
    made = Cluster(directory, ports)
    (directory / "bin").mkdir(parents=True)
    python = directory / "bin" / "python"
    python.write_text(_WORKER.format(directory=directory, python=sys.executable))
    python.chmod(0o755)
    pool = {"PATH": f"{directory / 'bin'}:{os.environ['PATH']}"}
    module = "apache_beam.runners.worker.worker_pool_main"
    processes = [
        _start(made, ["-m", "moto.server", "-H", "127.0.0.1", "-p", str(ports[0])]),
        _start(made, ["-c", _SERVER, "--port", str(ports[1])]),
        _start(made, ["-m", module, f"--service_port={ports[2]}"], **pool),
    ]
    try:
        for port in ports:
            _wait_for(port, processes)
        made.store.mkdir(BUCKET)
        yield made
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _start(made: Cluster, words: list[str], **environment: str) -> subprocess.Popen:
    with open(made.directory / "log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=made.directory,
            env={**made.environment, **environment},
            stdout=log,
            stderr=log,
        )


def _wait_for(port: int, processes: list[subprocess.Popen]) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and all(process.poll() is None for process in processes):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise AssertionError(f"nothing listens on port {port}")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
