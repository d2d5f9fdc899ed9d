r"""Is what `xling mine --precision` promises kept on text of other kinds than the calibration's?

    python lab/mining/mining_precision.py --model M --languages en,de,fr,es,it \
        --calibrate europarl.dev.tsv.gz tatoeba.dev --test pud.dev.tsv.gz multi30k.dev.tsv.gz

Every pair of languages of a test set becomes two shuffled texts, a share of whose sentences have
their translation in the other. Prints the true precision and recall of what is kept.

    python lab/mining/mining_precision.py --model mini --share 1 --test tatoeba.en-fr.tsv.gz \
        --first 1000 3000 10000 30000

shows how the estimate changes as a text grows.
"""

import argparse
import dataclasses
from pathlib import Path

import numpy as np

import xling_jax
from xling_jax.align.precision import Calibration
from xling_jax.cli.options import words
from xling_jax.encode.encoder import Encoder
from xling_jax.eval.calibration import calibrate, mine_known
from xling_jax.eval.results import markdown_table, percent
from xling_jax.eval.retrieval_data import RetrievalData, load_retrieval_data

PROMISED = (0.9, 0.95, 0.99)
# Of them, with `--first`.
_SHOWN = 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--calibrate", nargs="*", help="default: the model's own calibration")
    parser.add_argument("--test", required=True, nargs="+")
    parser.add_argument("--languages", type=words)
    parser.add_argument("--margin", default="ratio")
    parser.add_argument("--share", type=float, default=1 / 3)
    parser.add_argument(
        "--first", type=int, nargs="+", default=[], metavar="N", help="of N rows, what is expected"
    )
    parser.add_argument("--threshold", type=float, default=1.15, help="with --first, to compare")
    args = parser.parse_args()
    encoder = xling_jax.load(args.model)
    calibration = encoder.calibration
    if args.calibrate:
        sets = [load_retrieval_data(path, args.languages) for path in args.calibrate]
        calibration = calibrate(encoder.encode, sets)
    elif calibration is None:
        parser.error(f"{args.model}: not calibrated; add --calibrate FILE")
    if args.first:
        for path in args.test:
            print(_growing(encoder, calibration, load_retrieval_data(path, args.languages), args))
        return
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


def _growing(
    encoder: Encoder,
    calibration: Calibration,
    data: RetrievalData,
    args: argparse.Namespace,
) -> str:
    """A table of what is expected and true of the first rows, for each number of them."""
    rows = []
    for count in args.first:
        parts = [
            dataclasses.replace(part, texts={c: texts[:count] for c, texts in part.texts.items()})
            for part in data.parts
        ]
        first = dataclasses.replace(data, parts=tuple(parts))
        mined = mine_known(
            encoder.encode, first, args.share, margins=[args.margin], k=calibration.k, seed=1
        )
        for _, known in mined:
            kept = calibration.count_for(known.pairs, _SHOWN)
            above = np.count_nonzero(known.pairs.scores > args.threshold)
            cells = [
                f"{n:,}, {percent(known.is_translation[:n].mean() if n else np.nan)} right"
                for n in (len(known.pairs), kept, above)
            ]
            expected = percent(calibration.precisions(known.pairs)[-1])
            rows.append([f"{count:,}", cells[0], expected, *cells[1:]])
    header = ["rows", "all pairs", "expected to be right", f"--precision {_SHOWN} keeps"]
    return markdown_table([*header, f"--threshold {args.threshold:g} keeps"], rows)


if __name__ == "__main__":
    main()
