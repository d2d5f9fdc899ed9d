r"""Is what `xling mine --precision` promises kept on text of other kinds than the calibration's?

    python benchmarks/mining_precision.py --model M --languages en,de,fr,es,it \
        --calibrate europarl.dev.tsv.gz tatoeba.dev --test pud.dev.tsv.gz multi30k.dev.tsv.gz

Every pair of languages of a test set becomes two shuffled texts, a share of whose sentences have
their translation in the other. Prints the true precision and recall of what is kept.
"""

import argparse
from pathlib import Path

import numpy as np

import xling_jax
from xling_jax.cli.options import words
from xling_jax.eval.calibration import calibrate, mine_known
from xling_jax.eval.results import markdown_table, percent
from xling_jax.eval.retrieval_data import load_retrieval_data

PROMISED = (0.9, 0.95, 0.99)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--calibrate", nargs="*", help="default: the model's own calibration")
    parser.add_argument("--test", required=True, nargs="+")
    parser.add_argument("--languages", type=words)
    parser.add_argument("--margin", default="ratio")
    parser.add_argument("--share", type=float, default=1 / 3)
    args = parser.parse_args()
    encoder = xling_jax.load(args.model)
    calibration = encoder.calibration
    if args.calibrate:
        sets = [load_retrieval_data(path, args.languages) for path in args.calibrate]
        calibration = calibrate(encoder.encode, sets)
    elif calibration is None:
        parser.error(f"{args.model}: not calibrated; add --calibrate FILE")
    rows = []
    for path in args.test:
        data = load_retrieval_data(path, args.languages)
        mined = mine_known(
            encoder.encode, data, args.share, margins=[args.margin], k=calibration.k, seed=1
        )
        # Of all pairs of languages together, for each promise: pairs kept, and right ones.
        kept, right = np.zeros(len(PROMISED)), np.zeros(len(PROMISED))
        num_translations = num_language_pairs = 0
        for _, known in mined:
            counts = [calibration.count_for(known.pairs, promised) for promised in PROMISED]
            kept += counts
            right += [known.is_translation[:count].sum() for count in counts]
            num_translations += known.num_translations
            num_language_pairs += 1
        cells = [
            f"{percent(r / n if n else np.nan)} / {percent(r / num_translations)}"
            for r, n in zip(right, kept)
        ]
        rows.append([Path(path).name.partition(".tsv")[0], f"{num_language_pairs}", *cells])
    header = [f"promised {promised:.0%}: precision / recall" for promised in PROMISED]
    print(markdown_table(["text", "language pairs", *header], rows))


if __name__ == "__main__":
    main()
