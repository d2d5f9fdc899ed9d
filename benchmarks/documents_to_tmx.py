r"""Two folders of documents to a translation memory, measured against what is known.

Takes documents in two languages, changes their sentences by rule (`sentence_alignment.py`), takes
some away on one side, and writes each as a text file of a shuffled name, one sentence a line. Then
`xling align-sentences` has to find which documents and which sentences are translations.

    python benchmarks/documents_to_tmx.py --documents europarl_speeches.train.jsonl.gz \
        --languages en,fr --count 200 --single 40
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sentence_alignment import changed, parallel_documents, score_sentence_alignment

from xling_jax.corpora.readers.xml_units import TmxReader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", required=True, help="JSONL with sentences")
    parser.add_argument("--languages", default="en,fr")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--count", type=int, default=200, help="documents in both folders")
    parser.add_argument("--single", type=int, default=40, help="more in one folder only, each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--options", default="", help="further ones of xling align-sentences")
    args = parser.parse_args()
    languages = args.languages.split(",")
    generator = random.Random(args.seed)
    pairs = parallel_documents(args.documents, languages)
    generator.shuffle(pairs)
    cases = [changed(pair, generator) for pair in pairs[: args.count + 2 * args.single]]
    cases = [case for case in cases if case[0] and case[1]]
    with tempfile.TemporaryDirectory() as directory:
        gold = write_folders(Path(directory), cases, args.count, languages, generator)
        measure(Path(directory), cases, gold, languages, args)


def write_folders(
    place: Path, cases: list, count: int, languages: list[str], generator: random.Random
) -> dict[tuple[str, str], int]:
    """Writes the folders; returns the names of translations and the number of their case."""
    names = [[f"{number:05}" for number in range(len(cases))] for _ in languages]
    for side, code in enumerate(languages):
        generator.shuffle(names[side])
        (place / code).mkdir()
        for number, (name, case) in enumerate(zip(names[side], cases)):
            single = number - count
            if single < 0 or single % 2 == side:
                (place / code / f"{name}.txt").write_text("\n".join([*case[side], ""]), "utf-8")
    return {(names[0][i], names[1][i]): i for i in range(min(count, len(cases)))}


def measure(place: Path, cases: list, gold: dict, languages: list[str], args) -> None:
    folders = [place / code for code in languages]
    found = {}
    for name in ("groups", "tmx"):
        command = [
            sys.executable,
            "-c",
            "from xling_jax.cli.main import entry; entry()",
            "align-sentences",
        ]
        command += ["--model", args.model, "--splitter", "lines"]
        command += ["--source", folders[0], "--target", folders[1], *args.options.split()]
        command += ["--output", place / f"out.{name}", "--format", name]
        begin, used = time.perf_counter(), cpu_seconds()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        found[name] = time.perf_counter() - begin, cpu_seconds() - used, done.stderr
    texts = [[path.read_text("utf-8") for path in folder.iterdir()] for folder in folders]
    sizes = [
        f"{len(side)} documents of {sum(t.count(chr(10)) for t in side)} sentences"
        for side in texts
    ]
    print(f"{sizes[0]} and {sizes[1]}, {len(gold)} pairs")
    documents, groups = read_groups(place / "out.groups", gold)
    right = len(documents & gold.keys())
    print_scores("documents", right / len(documents), right / len(gold))
    wanted = [move(group, number) for number in gold.values() for group in cases[number][2]]
    scores = score_sentence_alignment([groups], [wanted])
    for kind in ("strict", "lax"):
        print_scores(
            f"sentences, {kind}", *(scores[f"{kind}_{s}"] for s in ("precision", "recall"))
        )
    texts = {
        tuple(" ".join(case[side][i] for i in group[side]) for side in (0, 1))
        for case in (cases[number] for number in gold.values())
        for group in case[2]
        if group[0] and group[1]
    }
    reader = TmxReader(f"tmx:{place / 'out.tmx'}", str(place / "out.tmx"))
    units = [tuple(row.texts[code] for code in languages) for row in reader.read(languages)]
    right = len(texts.intersection(units))
    print_scores("units of the TMX", right / len(units), right / len(texts))
    seconds, cpu, log = found["tmx"]
    counts = re.search(r"\d+ translations; dropped: .*", log)[0]
    print(f"{counts}, in {seconds:.1f} s, {cpu:.1f} s of all CPUs")


def cpu_seconds() -> float:
    """CPU time of the processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def read_groups(path: Path, gold: dict) -> tuple[set, list]:
    """Pairs of documents, and groups of all; those of wrong pairs get positions of their own."""
    documents, groups = {}, []
    for line in path.read_text("utf-8").splitlines():
        source, target, text = line.split("\t")
        wrong = len(gold) + 1_000_000 + len(documents)
        number = documents.setdefault((source, target), gold.get((source, target), wrong))
        sides = [side.strip("[]") for side in text.split(":")[:2]]
        spans = [[int(i) for i in side.split(",")] if side else [] for side in sides]
        groups.append(move([range(s[0], s[-1] + 1) if s else range(0) for s in spans], number))
    return set(documents), groups


def move(group, number: int) -> tuple[range, range]:
    """A group of document `number` with positions that no other document has."""
    begin = 100_000 * number
    return tuple(
        range(side.start + begin, side.stop + begin) if side else range(0) for side in group
    )


def print_scores(name: str, precision: float, recall: float) -> None:
    f1 = 2 * precision * recall / ((precision + recall) or 1)
    print(f"{name:20} {100 * precision:.1f} / {100 * recall:.1f} / {100 * f1:.1f}", flush=True)


if __name__ == "__main__":
    main()
