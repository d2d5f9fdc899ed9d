"""An object store on this machine that speaks Google's protocol, and commands that use it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.corpora_for_cli import ROOT

BUCKET = "bucket"


class ObjectStore:
    """The objects of one bucket, as the server has them."""

    def __init__(self, port: int):
        self.address = f"http://127.0.0.1:{port}"
        self.environment = {
            "STORAGE_EMULATOR_HOST": self.address,  # gcsfs, google-cloud-storage
            "TENSORSTORE_GCS_HTTP_URL": self.address,
            "NO_GCE_CHECK": "true",  # this is no machine of Google's
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }

    @property
    def files(self):
        """The file system of the store; of this process."""
        from gcsfs.core import GCSFileSystem

        return GCSFileSystem(endpoint_url=self.address, token="anon", use_listings_cache=False)

    def names(self, directory: str) -> list[str]:
        """Sorted names of the objects below a directory of the bucket."""
        top = f"{BUCKET}/{directory}/"
        return sorted(path.removeprefix(top) for path in self.files.find(top))

    def read(self, name: str) -> bytes:
        return self.files.cat_file(f"{BUCKET}/{name}")

    def write(self, name: str, content: bytes) -> None:
        self.files.pipe_file(f"{BUCKET}/{name}", content)

    def start(self, *words: object, cache: Path, **environment: str) -> subprocess.Popen:
        """Starts `xling` with its copies below a directory of its own.

        That it sees under a name that is the same for all directories, as machines would.
        """
        cache.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", "xling_jax.cli.main", *map(str, words)],
            env={
                **os.environ,
                **self.environment,
                "PYTHONPATH": str(ROOT),
                "XDG_CACHE_HOME": "/proc/self/cwd",
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                **environment,
            },
            cwd=cache,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


# What the emulator lacks of the protocol and tensorstore relies on: conditions on the generation
# that is read or replaced, and to be told it; and to be asked for several things at once.
_SERVER = """
import functools, http.server, re, sys, threading, urllib.parse
from gcp_storage_emulator import server as emulator
from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import buckets
from gcp_storage_emulator.storage import Storage

class Handler(emulator.RequestHandler):
    def generation(self):
        url = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(url.query))
        bucket, name = re.match(".*/b/([^/]+)/o/?(.*)|", url.path).groups()
        name = urllib.parse.unquote(name or "") or self.query.get("name")
        try:
            return str(self.storage.get_file_obj(bucket, name)["generation"]) if name else None
        except NotFound:
            return "0"

    def end_headers(self):
        if self.command == "GET" and self.told not in (None, "0"):
            self.send_header("x-goog-generation", self.told)
        super().end_headers()

class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

lock, handle = threading.Lock(), emulator.Router.handle

def handle_if(router, method):
    handler = router._request_handler
    with lock:
        handler.told = handler.generation()
        if handler.query.get("ifGenerationMatch", handler.told) != handler.told:
            status = 412
        elif handler.query.get("ifGenerationNotMatch") == handler.told != None:
            status = 304
        elif "/moveTo/" in handler.path:
            status = 400  # as from older stores; the emulator's own answer is tried again for long
        else:
            return handle(router, method)
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        handler.send_response(status)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

emulator.Router.handle = handle_if
storage = Storage(use_memory_fs=True)
buckets.create_bucket(sys.argv[1], storage)
server = Server(("127.0.0.1", 0), functools.partial(Handler, storage))
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Serves an empty bucket from memory."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, BUCKET],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield ObjectStore(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
