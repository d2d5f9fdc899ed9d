"""Aligns the sentences of documents with an encoder: texts in, groups of sentences out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xling_jax.align.sentences import Group, SentenceAligner
from xling_jax.encode.texts import Encode, encode_unique
from xling_jax.text.splitting import check_texts, split_sentences

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder

Document = str | Sequence[str]

# Sentences of either side whose overlaps are encoded at once: enough to fill batches.
_WINDOW = 2000


def align_sentences(
    source: Document,
    target: Document,
    encoder: Encoder | Encode | str | os.PathLike[str] = "mini",
    **options: Any,
) -> list[Group]:
    """Aligns the sentences of two documents that are translations.

    Groups of m and n sentences, in order, by dynamic programming over vectors of adjacent sentences
    as in vecalign (Thompson and Koehn 2019); time and memory are linear in the length.

        for group in xling_jax.align_sentences(german, english):
            print([german[i] for i in group.source], [english[j] for j in group.target])

    Args:
        source: the sentences of a document, or a text, which is cut by the built-in rule.
        target: likewise.
        encoder: an `Encoder`, what `load` takes, or a function from texts to vectors [n, dim].
        **options: of `align.sentences.SentenceAligner`: max_sentences=6, deletion=0.55,
            merging=0.2, radius=10, num_samples=100, seed=0.

    Returns groups that cover every sentence once, in order: `source` and `target` are ranges of
    positions, empty for a sentence without translation, `cost` is 0 for equal vectors and about 1
    for random ones.
    """
    unknown = options.keys() - SentenceAligner.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(SentenceAligner.__dataclass_fields__)
        raise ValueError(f"{min(unknown)} is not an option of SentenceAligner; it takes {known}")
    aligner = SentenceAligner(**options)
    # Blank sentences are kept, so that positions are those given.
    pair = tuple(
        split_sentences(side) if isinstance(side, str) else check_texts(side, name)
        for name, side in (("source", source), ("target", target))
    )
    if isinstance(encoder, (str, os.PathLike)):
        from xling_jax.encode.load import load

        encoder = load(encoder)
    ((_, groups),) = align_pairs(aligner, getattr(encoder, "encode", encoder), [pair])
    return groups


def align_pairs(
    aligner: SentenceAligner, encode: Encode, pairs: Iterable[tuple[Sequence[str], Sequence[str]]]
) -> Iterator[tuple[tuple[Sequence[str], Sequence[str]], list[Group]]]:
    """Aligns pairs of documents, encoding some at a time; yields each pair, and its groups."""
    for window in _windows(pairs):
        vectors = [
            overlap_vectors(encode, [pair[side] for pair in window], aligner.num_overlaps)
            for side in range(2)
        ]
        others = tuple(np.concatenate([each[0] for each in side]) for side in vectors)
        for pair, *both in zip(window, *vectors):
            yield pair, aligner.align(*both, others if all(map(len, others)) else None)


def overlap_vectors(
    encode: Encode, documents: Sequence[Sequence[str]], num_overlaps: int
) -> list[np.ndarray]:
    """Vectors of each document for `SentenceAligner.align`, [num_overlaps, sentences, dim].

    They are of 1, 2, … adjacent sentences, joined by a space; where fewer are left, of those. Every
    distinct text is encoded once, all in one call.
    """
    if not any(map(len, documents)):  # a function may return any shape for none
        return [np.empty((num_overlaps, 0, 0), np.float32) for _ in documents]
    sizes = range(1, num_overlaps + 1)
    texts = [
        [" ".join(sentences[i : i + size]) for size in sizes for i in range(len(sentences))]
        for sentences in documents
    ]
    vectors, ids = encode_unique(encode, texts)
    return [
        vectors[ids(each)].reshape(num_overlaps, len(sentences), vectors.shape[1])
        for each, sentences in zip(texts, documents)
    ]


def _windows(pairs: Iterable[tuple]) -> Iterator[list[tuple]]:
    """The pairs, some at a time; short documents at the end join those of the last window."""
    complete: list[tuple] = []
    window, count = [], 0
    for pair in pairs:
        window.append(pair)
        count += max(map(len, pair))
        if count >= _WINDOW:
            if complete:
                yield complete
            complete, window, count = window, [], 0
    if complete or window:
        yield complete + window
