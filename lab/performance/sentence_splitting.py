"""Sentence splitters against gold sentences: accuracy of boundaries, and speed.

    python lab/performance/sentence_splitting.py docs.jsonl.gz
    python lab/performance/sentence_splitting.py pud.tsv.gz --columns en,de --splitters rule

The sentences of a document are joined by spaces and split again. A boundary is a position between
two non-whitespace characters; precision and recall are over all boundaries of a language, excluding
the ends of documents, which no splitter can miss. Documents are JSON lines with `lang` and
`sentences`, or every 20 rows of a column of a TSV file with a header of languages. Gold boundaries
without punctuation, as after headings, count as missed.
"""

import argparse
import gzip
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

from xling_jax.text.languages import is_code, to_iso639_1
from xling_jax.text.splitting import split_sentences

ROWS_PER_DOCUMENT = 20


def rule(language: str) -> Callable[[str], list[str]]:
    """The built-in rule."""
    return split_sentences


def sentencex(language: str) -> Callable[[str], list[str]]:
    """The package sentencex: rules of many languages, and of related ones for others."""
    import sentencex

    return lambda text: sentencex.segment(language, text)


def pysbd(language: str) -> Callable[[str], list[str]]:
    """The package pysbd: rules for 23 languages."""
    import pysbd

    return pysbd.Segmenter(language=language, clean=False).segment


def sentence_splitter(language: str) -> Callable[[str], list[str]]:
    """The package sentence-splitter: the rules of Moses and Europarl."""
    import sentence_splitter

    return sentence_splitter.SentenceSplitter(language=language).split


def syntok(language: str) -> Callable[[str], list[str]]:
    """The package syntok: English, German and Spanish."""
    import syntok.segmenter

    if language not in ("de", "en", "es"):
        raise ValueError(f"language={language!r}")

    def split(text: str) -> list[str]:
        paragraphs = syntok.segmenter.process(text)
        sentences = [sentence for paragraph in paragraphs for sentence in paragraph]
        return ["".join(token.spacing + token.value for token in one) for one in sentences]

    return split


def blingfire(language: str) -> Callable[[str], list[str]]:
    """The package blingfire: one model for all languages."""
    import blingfire

    return lambda text: blingfire.text_to_sentences(text).split("\n")


COMPETITORS = {
    each.__name__: each for each in (rule, sentencex, pysbd, sentence_splitter, syntok, blingfire)
}


def documents(path: Path, columns: list[str] | None) -> Iterator[tuple[str, list[str]]]:
    """Yields the language and sentences of each document."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        if ".jsonl" in path.name:
            for line in file:
                record = json.loads(line)
                if columns is None or record["lang"] in columns:
                    yield record["lang"], record["sentences"]
            return
        header = file.readline().rstrip("\n").split("\t")
        cells = zip(*(line.rstrip("\n").split("\t") for line in file))
    for code, column in zip(header, cells):
        if code in columns if columns else is_code(code) and code != "id":
            column = [cell for cell in column if cell.strip()]
            for start in range(0, len(column), ROWS_PER_DOCUMENT):
                yield code, column[start : start + ROWS_PER_DOCUMENT]


def boundaries(sentences: list[str]) -> set[int]:
    """Boundaries of sentences, counted in non-whitespace characters from the start."""
    return set(accumulate(len("".join(each.split())) for each in sentences[:-1]))


def main() -> None:
    """Prints a Markdown table for each file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--columns", type=lambda text: text.split(","), help="default: all")
    parser.add_argument("--splitters", type=lambda text: text.split(","), default=["rule"])
    parser.add_argument("--limit", type=int, help="documents per language")
    args = parser.parse_args()
    by_language: dict[str, list[list[str]]] = defaultdict(list)
    for path in args.files:
        for language, sentences in documents(path, args.columns):
            if args.limit is None or len(by_language[language]) < args.limit:
                by_language[language].append(sentences)
    print("| splitter | language | precision % | recall % | F1 % | sentences/s | text kept |")
    print("| --- | --- | ---: | ---: | ---: | ---: | --- |")
    for name in args.splitters:
        for language, gold in by_language.items():
            measure(name, language, gold)


def measure(name: str, language: str, gold: list[list[str]]) -> None:
    """Prints a row."""
    try:
        split = COMPETITORS[name](to_iso639_1(language))
    except (ImportError, ValueError) as error:
        print(f"| {name} | {language} | {type(error).__name__} | | | | |")
        return
    texts = [" ".join(sentences) for sentences in gold]
    split(texts[0])
    started = time.perf_counter()
    found = [split(text) for text in texts]
    seconds = time.perf_counter() - started
    counts: Counter[str] = Counter()
    for theirs, ours, text in zip(found, gold, texts):
        predicted, true = boundaries(theirs), boundaries(ours)
        counts["kept"] += "".join(" ".join(theirs).split()) == "".join(text.split())
        counts["right"] += len(predicted & true)
        counts["predicted"] += len(predicted)
        counts["true"] += len(true)
    precision = 100 * counts["right"] / max(counts["predicted"], 1)
    recall = 100 * counts["right"] / max(counts["true"], 1)
    f1 = 2 * precision * recall / max(precision + recall, 1e-9)
    rate = sum(map(len, gold)) / seconds
    kept = "all" if counts["kept"] == len(texts) else f"{counts['kept']} of {len(texts)}"
    scores = f"{precision:.1f} | {recall:.1f} | {f1:.1f}"
    print(f"| {name} | {language} | {scores} | {rate:,.0f} | {kept} |")


if __name__ == "__main__":
    main()
