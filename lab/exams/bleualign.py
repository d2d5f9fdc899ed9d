r"""Bleualign's articles: sentence alignment against human gold, counted as by vecalign's score.py.

    python lab/exams/bleualign.py ../shared/data/align --model mini
    python lab/exams/bleualign.py ../shared/data/align --list --deletion 0.7

The directory has, for each article, NAME.de and NAME.fr, a sentence per line, and NAME.defr with
the gold groups, `[0]:[0, 1]` per line, as in the repository of Bleualign (Sennrich and Volk 2011).
Articles are counted together. Options of the aligner may follow.
"""

import argparse
import ast
import sys
import time
from pathlib import Path

import xling_jax
from xling_jax.align.sentences import SentenceAligner
from xling_jax.cli.options import add_options, options_from
from xling_jax.encode.sentence_alignment import align_pairs
from xling_jax.eval.results import markdown_table

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.sentence_alignment import score_sentence_alignment

KINDS = ("1-1", "without translation", "other")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("data", type=Path, help="directory of articles")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--languages", default="de,fr", help="ends of the names, source first")
    parser.add_argument("--list", action="store_true", help="print the groups that differ")
    add_options(parser, SentenceAligner)
    args = parser.parse_args()
    codes = args.languages.split(",")
    paths = sorted(args.data.glob(f"*.{''.join(codes)}"))
    if not paths:
        parser.error(f"{args.data}: must have gold groups, NAME.{''.join(codes)}; found none")
    articles = [[path.with_suffix(f".{code}") for code in codes] for path in paths]
    texts = [[side.read_text("utf-8").splitlines() for side in sides] for sides in articles]
    gold = [read_groups(path) for path in paths]
    encode = xling_jax.load(args.model).encode
    begin = time.process_time()
    aligned = align_pairs(options_from(args, SentenceAligner), encode, texts)
    found = [[(tuple(g.source), tuple(g.target)) for g in groups] for _, groups in aligned]
    seconds = time.process_time() - begin
    print(f"{args.model}: {len(paths)} articles, {seconds:.1f} s of CPU\n")
    scores = score_sentence_alignment(found, gold)
    shares = ("precision", "recall", "f1")
    rows = [[k, *(f"{scores[f'{k}_{s}']:.3f}" for s in shares)] for k in ("strict", "lax")]
    print(markdown_table(["", "precision", "recall", "F1"], rows))
    rows = [[name, *count_kinds(groups)] for name, groups in (("gold", gold), ("found", found))]
    print(markdown_table(["groups", *KINDS], rows))
    if args.list:
        for name, text, *groups in zip(paths, texts, found, gold):
            list_differences(name.stem, text, *map(set, groups))


def read_groups(path: Path) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Groups of positions from lines `[0]:[0, 1]`; vecalign's may end with a cost."""
    lines = filter(None, map(str.strip, path.read_text("utf-8").splitlines()))
    sides = (line.split(":")[:2] for line in lines)
    return [tuple(tuple(ast.literal_eval(side)) for side in group) for group in sides]


def count_kinds(articles: list) -> list[str]:
    """Numbers of groups of each of KINDS."""
    sizes = [tuple(map(len, group)) for groups in articles for group in groups]
    alone, single = sum(0 in size for size in sizes), sizes.count((1, 1))
    return [str(single), str(alone), str(len(sizes) - single - alone)]


def list_differences(name: str, text: list[list[str]], found: set, gold: set) -> None:
    """Groups of one alignment only, in the order of the target."""
    place = lambda group: (max(group[1], default=-1), max(group[0], default=-1))
    for group in sorted(found ^ gold, key=place):
        print(f"\n{name} {'found' if group in found else 'gold '} {[*group[0]]}:{[*group[1]]}")
        for lines, side in zip(text, group):
            print("    " + " | ".join(lines[i].strip() for i in side))


if __name__ == "__main__":
    main()
