"""What of a document an encoder reads at once: a sentence, several, or its beginning.

Gong et al. (2021) compare the first two (their single- and multi-sentence inputs) with LASER, which
reads a document as one sequence. Several inputs become one vector elsewhere: as the mean in
`Encoder.encode_documents`, weighted in LAWDR.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import numpy as np

from xling_jax.text.splitting import document_sentences
from xling_jax.text.vocabularies import AnyVocab

# "sequence" is the same in `eval.document_modes`, where "sentences" says how it pools, too.
MODES = ("sentences", "packed", "sequence")

# Documents whose sentences are counted together; enough to keep the tokenizer's threads busy.
_BLOCK_DOCUMENTS = 64


def document_inputs(
    documents: Iterable[str | Sequence[str]],
    mode: str,
    *,
    vocab: AnyVocab,
    room: int,
    splitter: str = "rule",
    language: str | None = None,
) -> Iterator[list[str]]:
    """Yields, for each document, the texts that an encoder reads, one vector each.

    Args:
        documents: each a text or its sentences; consumed some at a time.
        mode: one of `MODES`. "sentences": each sentence; "packed": as many consecutive sentences
            as fit, joined by a space; "sequence": all of it, of which an encoder reads as much as
            it takes (one with a smaller `max_length_tokens` reads the first tokens).
        vocab: that of the encoder; used for "packed".
        room: tokens of text that the encoder takes, without special ones; used for "packed".
        splitter: as for `split_sentences`.
        language: of all documents, as for `split_sentences`.

    Yields:
        One text or more, [""] for a document without sentences.

    Raises:
        ValueError: if the mode is unknown, or a document cannot be split.
    """
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} must be one of {', '.join(MODES)}")
    if mode == "sequence":
        return ([_whole(document)] for document in documents)
    split = (document_sentences(d, splitter=splitter, language=language) for d in documents)
    return split if mode == "sentences" else _pack_blocks(split, vocab, room)


def pack_sentences(
    documents: Sequence[Sequence[str]], vocab: AnyVocab, room: int
) -> list[list[str]]:
    """Joins consecutive sentences of documents to texts of at most `room` tokens.

    Args:
        documents: sentences of each.
        vocab: what counts tokens.
        room: the most tokens of a text.

    Returns:
        For each document its texts; each begins with the sentence that no longer fitted into the
        one before. Longer than `room` is only a text of one sentence.
    """
    lengths = _count_tokens(documents, vocab)
    packed = [list(_pack(*each, room)) for each in zip(documents, lengths)]
    # Joined, sentences may have more tokens than apart, as where a full stop inside a text is read
    # otherwise than at its end. Seldom, and texts one by one take long: those documents only.
    for number, (texts, counts) in enumerate(zip(packed, _count_tokens(packed, vocab))):
        too_long = {text for text, count in zip(texts, counts) if count > room}
        if too_long.difference(documents[number]):
            packed[number] = list(_pack(documents[number], lengths[number], room, vocab))
    return packed


def _count_tokens(texts: Sequence[Sequence[str]], vocab: AnyVocab) -> list[np.ndarray]:
    """Tokens of each text of each document."""
    lengths = vocab.encode_flat(list(chain.from_iterable(texts)))[1]
    return np.split(lengths, np.cumsum([len(each) for each in texts])[:-1])


def _pack(
    sentences: Sequence[str], lengths: np.ndarray, room: int, vocab: AnyVocab | None = None
) -> Iterator[str]:
    """Texts whose sentences' lengths add up to the room; with `vocab` their own length fits too."""
    ends = np.cumsum(lengths)
    start = taken = 0
    while start < len(sentences):
        stop = max(start + 1, int(np.searchsorted(ends, taken + room, side="right")))
        text = " ".join(sentences[start:stop])
        while vocab is not None and stop > start + 1:
            if vocab.encode_flat([text])[1][0] <= room:
                break
            stop -= 1
            text = " ".join(sentences[start:stop])
        yield text
        start, taken = stop, ends[stop - 1]


def document_means(chunks: Iterable[np.ndarray], counts: deque[int]) -> Iterator[np.ndarray]:
    """Averages a stream of vectors, document by document.

    Args:
        chunks: float32 [any, dim] each, the vectors of document after document.
        counts: vectors of each document, at least 1; there before the last of them is. Emptied.

    Yields:
        float32 [any, dim], one row a document.
    """
    pending: list[np.ndarray] = []
    for chunk in chunks:
        vectors = np.concatenate([*pending, chunk])
        taken, means = 0, []
        while counts and taken + counts[0] <= len(vectors):
            count = counts.popleft()
            means.append(vectors[taken : taken + count].mean(axis=0))
            taken += count
        pending = [vectors[taken:]]
        if means:
            yield np.stack(means)


def _whole(document: str | Sequence[str]) -> str:
    return document if isinstance(document, str) else " ".join(document_sentences(document))


def _pack_blocks(documents: Iterator[list[str]], vocab: AnyVocab, room: int) -> Iterator[list[str]]:
    while block := list(islice(documents, _BLOCK_DOCUMENTS)):
        yield from pack_sentences(block, vocab, room)
