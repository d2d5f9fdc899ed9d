r"""Writes the weighted mean of trained tables.

    python lab/world/world_mean.py --tables DIR/again 0.7 \
        --tables DIR/running 0.3 DIR/rejoined/axes.npy --output DIR/begun

Tables from before topics were joined are rotated to the axes that these brought.
"""

import argparse
from pathlib import Path

import numpy as np

NAMES = "tokens", "features"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tables", action="append", nargs="+", metavar="DIR SHARE [AXES]")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        mean = 0
        for directory, share, *axes in args.tables:
            table = np.load(Path(directory) / f"{name}.npy")
            for path in axes:
                width = table.shape[1]
                table = table @ np.load(path)[:width, :width]
            mean = mean + np.float32(share) * table
        np.save(args.output / f"{name}.npy", mean.astype(np.float32))


if __name__ == "__main__":
    main()
