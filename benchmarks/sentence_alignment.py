r"""Sentence alignment against known changes, beside a length-based aligner.

Documents of equally many sentences in two languages are taken as aligned one to one. Then, by rule,
sentences are merged, split at a comma, dropped or moved, on one side each, and the aligners have to
find out. Gale and Church (1993) is the one of NLTK (`pip install nltk`).

    python benchmarks/sentence_alignment.py --documents europarl_speeches.dev.jsonl.gz \
        --languages en,fr --model mini
"""

import argparse
import random
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import xling_jax
from xling_jax.align.sentences import SentenceAligner
from xling_jax.documents.records import read_documents
from xling_jax.encode.sentence_alignment import overlap_vectors

# Shares of sentences.
MERGED, SPLIT, DROPPED, MOVED = 0.10, 0.08, 0.06, 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", required=True, help="JSONL with sentences")
    parser.add_argument("--languages", default="en,fr")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--size", type=int, default=100, help="sentences per document, about")
    parser.add_argument("--book", type=int, default=0, help="also one document of so many")
    parser.add_argument("--deletion", default="0.5")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    encoder = xling_jax.load(args.model)
    pairs = parallel_documents(args.documents, args.languages.split(","))
    generator = random.Random(args.seed)
    cases = [changed(document, generator) for document in joined(pairs, args.size)]
    count = sum(len(case[0]) for case in cases)
    print(f"{len(cases)} documents, {count} source sentences, {args.languages}")
    report("Gale and Church", [gale_church(*case[:2]) for case in cases], cases)
    for deletion in map(float, args.deletion.split(",")):
        aligner = SentenceAligner(deletion=deletion)
        begin = time.perf_counter()
        found = [ours(aligner, encoder, *case[:2]) for case in cases]
        seconds = time.perf_counter() - begin
        report(f"vectors, deletion {deletion:g}", found, cases, seconds)
    if args.book:
        book(SentenceAligner(), encoder, pairs, args.book, generator)


def parallel_documents(path: str, languages: list[str]) -> list[list[tuple[str, str]]]:
    """Documents with equally many sentences in both languages."""
    by_id: dict[str, dict[str, list[str]]] = {}
    for document in read_documents(path):
        by_id.setdefault(document.id, {})[document.language] = list(document.sentences)
    both = ([sides.get(code, []) for code in languages] for sides in by_id.values())
    return [[*zip(a, b)] for a, b in both if a and len(a) == len(b)]


def joined(pairs: list[list[tuple[str, str]]], size: int) -> list[list[tuple[str, str]]]:
    """Longer documents, of at least `size` sentences."""
    documents, document = [], []
    for pair in pairs:
        document += pair
        if len(document) >= size:
            documents.append(document)
            document = []
    return documents


def changed(document: list[tuple[str, str]], generator: random.Random) -> tuple:
    """Both sides of a document after the changes, and the groups that are right."""
    units = [([a], [b]) for a, b in document]
    for i in range(len(units) - 1):  # moved: a neighbor's place on one side
        if generator.random() < MOVED:
            units[i], units[i + 1] = (units[i][0], units[i + 1][1]), (units[i + 1][0], units[i][1])
    result, i = [], 0
    while i < len(units):
        source, target = units[i]
        draw = generator.random()
        sides = [source, target]
        which = generator.randrange(2)
        if draw < MERGED and i + 1 < len(units):
            sides = [source + units[i + 1][0], target + units[i + 1][1]]
            sides[which] = [" ".join(sides[which])]
            i += 1
        elif draw < MERGED + SPLIT and ", " in sides[which][0]:
            commas = [k for k, c in enumerate(sides[which][0]) if c == ","]
            middle = min(commas, key=lambda k: abs(k - len(sides[which][0]) / 2))
            text = sides[which][0]
            sides[which] = [text[: middle + 1], text[middle + 1 :].strip()]
            sides[which] = [part for part in sides[which] if part]
        elif draw < MERGED + SPLIT + DROPPED:
            sides[which] = []
        result.append(sides)
        i += 1
    texts: tuple[list[str], list[str]] = ([], [])
    gold = []
    for sides in result:
        spans = []
        for text, side in zip(texts, sides):
            spans.append(range(len(text), len(text) + len(side)))
            text.extend(side)
        gold.append(tuple(spans))
    return *texts, gold


def ours(aligner: SentenceAligner, encoder: Any, source: list, target: list) -> list:
    vectors = overlap_vectors(encoder.encode, [source, target], aligner.num_overlaps)
    return [(group.source, group.target) for group in aligner.align(*vectors)]


def gale_church(source: list[str], target: list[str]) -> list[tuple[range, range]]:
    from nltk.translate.gale_church import align_blocks

    # The function of NLTK gives links; groups are their connected parts.
    links = align_blocks([len(text) for text in source], [len(text) for text in target])
    return link_groups(links, len(source), len(target))


def link_groups(links: list[tuple[int, int]], num_source: int, num_target: int) -> list:
    """Groups from links (i, j) of single sentences."""
    groups: list[tuple[set, set]] = []
    for i, j in sorted(links):
        if groups and (i in groups[-1][0] or j in groups[-1][1]):
            groups[-1][0].add(i)
            groups[-1][1].add(j)
        else:
            groups.append(({i}, {j}))
    return [(range(min(a), max(a) + 1), range(min(b), max(b) + 1)) for a, b in groups]


def score_sentence_alignment(
    found: Iterable[Iterable[tuple[Sequence[int], Sequence[int]]]],
    gold: Iterable[Iterable[tuple[Sequence[int], Sequence[int]]]],
) -> dict[str, float]:
    """Precision, recall and F1 over documents, counted as by vecalign's `score.py`.

    Strict: a group is right if the other alignment has it. Lax: also if it shares a sentence on
    both sides with a group there. Sentences without translation count for precision, not for
    recall. Groups are the positions of their source and target sentences.

    Returns `strict_precision`, `strict_recall`, `strict_f1`, and the same with `lax`; 0 without
    groups.
    """
    totals = {"precision": 0, "recall": 0}
    right = {f"{kind}_{share}": 0 for kind in ("strict", "lax") for share in totals}
    for pair in zip(found, gold):
        sides = [{(tuple(s), tuple(t)) for s, t in side if s or t} for side in pair]
        pairs = [{group for group in side if all(group)} for side in sides]
        for share, (these, others) in zip(totals, (sides, pairs[::-1])):
            links = {(i, j) for source, target in others for i in source for j in target}
            exact = these & others
            totals[share] += len(these)
            right[f"strict_{share}"] += len(exact)
            right[f"lax_{share}"] += len(exact) + sum(
                any((i, j) in links for i in source for j in target)
                for source, target in these - exact
            )
    result = {name: count / max(totals[name.split("_")[1]], 1) for name, count in right.items()}
    for kind in ("strict", "lax"):
        precision, recall = result[f"{kind}_precision"], result[f"{kind}_recall"]
        result[f"{kind}_f1"] = 2 * precision * recall / max(precision + recall, 1e-12)
    return result


def report(name: str, found: list, cases: list, seconds: float | None = None) -> None:
    """Prints scores over all documents together."""
    counted = score_sentence_alignment(found, [case[2] for case in cases])
    scores = {key: 100 * value for key, value in counted.items()}
    cells = [
        " / ".join(f"{scores[f'{kind}_{part}']:.1f}" for part in ("precision", "recall", "f1"))
        for kind in ("strict", "lax")
    ]
    taken = "" if seconds is None else f"  {seconds:.1f} s"
    print(f"{name:28} strict {cells[0]}  lax {cells[1]}{taken}", flush=True)


def book(aligner, encoder, pairs, size, generator) -> None:
    """One long document."""
    lines = [pair for document in pairs for pair in document]
    lines = (lines * (size // len(lines) + 1))[:size]
    # Repeated speeches must differ, or a shift by a whole round would be as good.
    lines = [(f"{a} {i // 997}", f"{b} {i // 997}") for i, (a, b) in enumerate(lines)]
    case = changed(lines, generator)
    begin = time.perf_counter()
    vectors = overlap_vectors(encoder.encode, case[:2], aligner.num_overlaps)
    encoded = time.perf_counter()
    found = [(group.source, group.target) for group in aligner.align(*vectors)]
    aligned = time.perf_counter()
    report(f"a book of {size}", [found], [case], aligned - begin)
    print(f"of these {encoded - begin:.1f} s for vectors, {aligned - encoded:.1f} s to align")


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
