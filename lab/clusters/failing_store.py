"""Trains in a bucket whose store fails at random, and counts what goes wrong.

    python lab/clusters/failing_store.py --share 0.02 0.05 0.1 --starts 20

The store is the tests' emulator. A share of the requests fails, in one of four ways: status 503,
status 429, a connection closed before the request is carried out, or one closed after it, whose
answer is lost. Every second start is killed at a random moment. The next start, on another machine
that has no copies, continues, until the run is complete. Then its metrics, its vocabulary and its
encoder must equal those of a run in a directory, and another run begins.

Prints a line a start: how it ended, and its last line if that is not 0 or a kill. A start may give
up with one line, as its retries end; a traceback, a start of TIMEOUT_S seconds, or another encoder
is a fault. Exits with 1 if there was one.
"""

import argparse
import collections
import contextlib
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.cli import object_store
from tests.cli.corpora_for_cli import arguments, write_tsv
from tests.train.processes import metrics_without_timing

STEPS = 12
TIMEOUT_S = 900
_FAULTS = """
import random
well, chance, share = handle_if, random.Random(int(sys.argv[2])), float(sys.argv[3])

def handle_or_fail(router, method):
    handler, kind = router._request_handler, chance.randrange(4)
    if chance.random() >= share:
        return well(router, method)
    if kind == 3:  # carried out, and the answer lost
        import io
        answer, handler.wfile = handler.wfile, io.BytesIO()
        try:
            well(router, method)
        finally:
            handler.wfile = answer
    if kind >= 2:
        handler.close_connection = True
        handler.connection.close()
        return None
    handler.told = None
    handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    handler.send_response(503 if kind else 429)
    handler.send_header("Content-Length", "0")
    handler.end_headers()

emulator.Router.handle = handle_or_fail
storage ="""


@contextlib.contextmanager
def failing_store(seed: int, share: float):
    """Serves an empty bucket from memory, of whose requests a share fails."""
    program = object_store._SERVER.replace("\nstorage =", _FAULTS)
    words = [sys.executable, "-c", program, object_store.BUCKET, str(seed), str(share)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield object_store.ObjectStore(int(process.stdout.readline()))
        finally:
            process.kill()


def train(corpus: Path, workdir: object) -> list[str]:
    """The words of the command."""
    steps = (f"--config.train.total_steps={STEPS}", "--config.train.checkpoint_every_steps=3")
    return arguments("train", f"tsv:{corpus}", workdir, *steps)


def patiently(call, *words):
    """Calls a function of a store until it is answered."""
    for _ in range(20):
        with contextlib.suppress(Exception):
            return call(*words)
    return call(*words)


def differences(store, run: str, top: Path, target: Path) -> list[str]:
    """Copies a finished run out of the bucket; names what is not as in the run in a directory."""
    for entry in patiently(store.names, run):
        (target / entry).parent.mkdir(parents=True, exist_ok=True)
        (target / entry).write_bytes(patiently(store.read, f"{run}/{entry}"))
    names = ("encoder/encoder.safetensors", "vocab/sentencepiece.model")
    found = [n for n in names if (target / n).read_bytes() != (top / "w" / n).read_bytes()]
    if metrics_without_timing(target) != metrics_without_timing(top / "w"):
        found.append("metrics.jsonl")
    return found


def outcome(process: subprocess.Popen, kill_after: float) -> tuple[str, str]:
    """Waits for a command, or kills it; returns how it ended and what it logged."""
    try:
        _, errors = process.communicate(timeout=kill_after)
        return str(process.returncode), errors
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()
        return ("killed" if kill_after < TIMEOUT_S else "silent"), errors


def restart(share: float, starts: int, seed: int, top: Path, corpus: Path) -> int:
    """Starts runs again and again in a store of which a share of requests fails; returns faults."""
    chance, ends, run, faults = random.Random(seed), collections.Counter(), 0, 0
    with failing_store(seed, share) as store:
        for start in range(starts):
            command = train(corpus, f"gs://{object_store.BUCKET}/runs/{run}")
            process = store.start(*command, cache=top / f"{share}-{start}")
            kill_after = chance.uniform(3, 25) if start % 2 else TIMEOUT_S
            end, errors = outcome(process, kill_after)
            ends[end] += 1
            last = "" if end in ("0", "killed") else f": {errors.splitlines()[-1:]}"
            print(f"{share:.0%} start {start + 1}: {end}{last}", flush=True)
            if "Traceback" in errors or end not in ("0", "1", "killed"):
                faults += 1
                print(re.sub("^", "    ", errors[-3000:], flags=re.MULTILINE), flush=True)
            if end == "0":
                if differ := differences(store, f"runs/{run}", top, top / f"{share}-{run}-found"):
                    faults += 1
                    print(f"    differ: {', '.join(differ)}", flush=True)
                run += 1
    print(f"{share:.0%}: {dict(ends)}, {run} runs finished, {faults} faults", flush=True)
    return faults


def main() -> None:
    """Makes the run to compare with, and attacks with each share of failures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, nargs="+", default=[0.02, 0.05, 0.1])
    parser.add_argument("--starts", type=int, default=20, help="for each share")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        corpus = write_tsv(top / "corpus.tsv")
        with object_store.object_store() as store:
            end, errors = outcome(store.start(*train(corpus, top / "w"), cache=top), TIMEOUT_S)
            if end != "0":
                sys.exit(errors)
        faults = [restart(share, args.starts, args.seed, top, corpus) for share in args.share]
    sys.exit(any(faults))


if __name__ == "__main__":
    main()
