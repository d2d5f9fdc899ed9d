"""`python -m tests.hostile --count 10000 --seed 0`: damaged inputs over all readers and loaders.

Prints a table of readers and outcomes, and each finding: an exception that is not a one-line error
of the library, a wrong row, much time or memory. Exit status 1 if there is one. What takes a minute
ends the run with its trace; what crashes it is the case printed last.
"""

import argparse
import collections
import faulthandler
import logging
import sys

from tests.hostile.run import GOOD, run_case
from tests.hostile.targets import TARGETS

_TIMEOUT_S = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="inputs in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="readers, by the beginnings of their names")
    parser.add_argument("--case", type=int, help="run only this case of each, and show it")
    args = parser.parse_args()
    names = [name for name in TARGETS if name.startswith(tuple(args.only.split(",")))]
    if args.case is not None:
        for name in names:
            print(name, *run_case(TARGETS[name], args.case), sep="\n")
        return 0
    logging.disable(logging.CRITICAL)
    first, table = args.seed * 1_000_000, {}
    for number, name in enumerate(names):
        table[name] = collections.Counter()
        count = args.count // len(names) + (number < args.count % len(names))
        for case in range(first, first + count):
            faulthandler.dump_traceback_later(_TIMEOUT_S, exit=True)
            print(f"\r{name} --case {case} ", end="", file=sys.stderr, flush=True)
            kind, detail = run_case(TARGETS[name], case)
            table[name][kind] += 1
            if kind not in GOOD:
                print(f"{kind}: {name} --case {case}\n{detail}\n", flush=True)
    faulthandler.cancel_dump_traceback_later()
    kinds = [*GOOD, *sorted(set().union(*table.values()) - {*GOOD})]
    print(f"\n{'reader':16}" + "".join(f"{kind:>11}" for kind in kinds))
    for name, counts in [*table.items(), ("all", sum(table.values(), collections.Counter()))]:
        print(f"{name:16}" + "".join(f"{counts[kind]:11}" for kind in kinds))
    return int(any(not {*counts} <= {*GOOD} for counts in table.values()))


if __name__ == "__main__":
    sys.exit(main())
