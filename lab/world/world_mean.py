r"""Writes the weighted mean of trained tables.

    python lab/world/world_mean.py --tables DIR/again 0.7 \
        --tables DIR/running 0.3 DIR/rejoined/axes.npy --output DIR/begun

Tables from before topics were joined are rotated to the axes that these brought. With `--of-four
DIR`, a row is that of the last tables by the share of four languages in its uses, DIR/texts.npz.
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
    parser.add_argument("--of-four", type=Path, metavar="DIR")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        mean, usage = 0, np.float32(0)
        if args.of_four:
            usage = np.load(args.of_four / "texts.npz")[f"of_four_{name}"][:, None]
        for number, (directory, share, *axes) in enumerate(args.tables, 1):
            table = np.load(Path(directory) / f"{name}.npy")
            for path in axes:
                width = table.shape[1]
                table = table @ np.load(path)[:width, :width]
            own = usage * (number == len(args.tables))
            mean = mean + (np.float32(share) * (1 - usage) + own) * table
        np.save(args.output / f"{name}.npy", mean.astype(np.float32))


if __name__ == "__main__":
    main()
