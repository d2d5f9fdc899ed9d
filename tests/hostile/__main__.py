"""`python -m tests.hostile --count 10000 --seed 0`: damaged inputs over all readers and loaders.

Prints a table of readers and outcomes, and each finding: an exception that is not a one-line error
of the library, a wrong row, a crash, much time or memory. Exit status 1 if there is one.
"""

import argparse
import collections
import faulthandler
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from tests.hostile.run import GOOD, run_case

_TIMEOUT_S = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="inputs in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="readers, by the beginnings of their names")
    parser.add_argument("--case", type=int, help="run only this case of each, and show it")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return work(*json.loads(args.worker))
    from tests.hostile.targets import TARGETS

    names = [name for name in TARGETS if name.startswith(tuple(args.only.split(",")))]
    if args.case is not None:
        for name in names:
            print(name, *run_case(TARGETS[name], args.case), sep="\n")
        return 0
    first = args.seed * 1_000_000
    table, findings = {}, 0
    for number, name in enumerate(names):
        count = args.count // len(names) + (number < args.count % len(names))
        start = time.monotonic()
        outcomes = list(run_in_process(name, first, count))
        table[name] = collections.Counter(kind for _, kind, _ in outcomes)
        for case, kind, detail in outcomes:
            if kind not in GOOD:
                findings += 1
                print(f"{kind}: {name} --case {case}\n{detail}\n", flush=True)
        print(f"{name}: {dict(table[name])} in {time.monotonic() - start:.0f} s", flush=True)
    kinds = [*GOOD, *sorted(set().union(*table.values()) - set(GOOD))]
    print(f"\n{'reader':16}" + "".join(f"{kind:>11}" for kind in kinds))
    for name, counts in [*table.items(), ("all", sum(table.values(), collections.Counter()))]:
        print(f"{name:16}" + "".join(f"{counts[kind]:11}" for kind in kinds))
    return 1 if findings else 0


def run_in_process(name: str, first: int, count: int) -> Iterator[tuple[int, str, str]]:
    """Runs cases in a process of their own; one that dies costs a case, not the run."""
    case, end = first, first + count
    while case < end:
        range_ = json.dumps([name, case, end])
        command = [sys.executable, "-m", "tests.hostile", "--worker", range_]
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ):
            for line in process.stdout:
                number, kind, detail = json.loads(line)
                case = number + 1
                yield number, kind, detail
            process.wait()
            if case < end:
                errors.seek(0)
                yield case, "crash", f"exit status {process.returncode}\n{errors.read()[-1500:]}"
                case += 1


def work(name: str, first: int, end: int) -> int:
    from tests.hostile.targets import TARGETS

    logging.disable(logging.CRITICAL)
    outcomes, sys.stdout = sys.stdout, sys.stderr  # libraries print
    for case in range(first, end):
        faulthandler.dump_traceback_later(_TIMEOUT_S, exit=True)
        print(json.dumps([case, *run_case(TARGETS[name], case)]), file=outcomes, flush=True)
    faulthandler.cancel_dump_traceback_later()
    return 0


if __name__ == "__main__":
    sys.exit(main())
