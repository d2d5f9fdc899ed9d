"""Long texts: what is encoded at once, and how its vectors become the vector of the document.

Gong et al. (2021) encode each sentence, or as many as fit; Yu et al. (2018), Table 5, compare
sentences and windows of words, pooled by their mean or maximum; LASER and T-LASER encode a document
as one sequence. LAWDR weights sentences instead of pooling them, see `documents`.
"""

from __future__ import annotations

import re
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np

from xling_jax.encode.texts import Encode, encode_unique
from xling_jax.files.progress import track
from xling_jax.files.whole import naming_errors
from xling_jax.registry import check_choice
from xling_jax.text.splitting import document_sentences
from xling_jax.text.vocabularies import Vocabulary

MODES = ("sentences", "packed", "sequence", "windows")
MODES_HELP = (
    "what is encoded at once: a sentence; as many as the model takes; all of the document, "
    "truncated where the model ends; or windows of 128 words, every 64"
)
POOLINGS = ("mean", "max")

# Yu et al. (2018), section 5.2.
_WINDOW_WORDS, _STRIDE_WORDS = 128, 64

# Documents whose sentences are counted together; enough to keep the tokenizer's threads busy.
_BLOCK_DOCUMENTS = 64
# Documents whose sentences' vectors are in memory at the same time.
_ENCODED_TOGETHER = 2000
# Each character of a script written without spaces counts as a word: kana, ideographs, Thai, Lao,
# Khmer, Burmese.
_UNSPACED = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0eff\u1780-\u17ff\u1000-\u109f"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")


def document_inputs(
    documents: Iterable[str | Sequence[str]],
    mode: str,
    *,
    vocab: Vocabulary | None = None,
    room: int = 0,
    splitter: str = "rule",
) -> Iterator[list[str]]:
    """Yields, for each document, the texts that are encoded, one vector each; [""] if it is empty.

    Documents, each a text or its sentences, are consumed some at a time. For "packed", `vocab` is
    that of the encoder and `room` the most tokens of a text, special ones not counted. ValueError
    if the mode is unknown, or a document cannot be split.
    """
    check_choice("mode", mode, MODES)
    if mode in ("sequence", "windows"):
        whole = (d if isinstance(d, str) else " ".join(document_sentences(d)) for d in documents)
        return map(word_windows, whole) if mode == "windows" else ([text] for text in whole)
    split = (document_sentences(d, splitter=splitter) for d in documents)
    if mode == "sentences":
        return split
    blocks = iter(lambda: list(islice(split, _BLOCK_DOCUMENTS)), [])
    return chain.from_iterable(pack_sentences(block, vocab, room) for block in blocks)


def document_encoder(encode: Encode, mode: str, *, pooling: str = "mean") -> Encode:
    """Returns a function from documents to embeddings [n, dim] float32, on top of one for texts.

    `encode` is called with each text once, of 2,000 documents at a time; for "sequence" it is
    returned itself, and "packed" needs an encoder's vocabulary instead. ValueError if mode or
    pooling is unknown.
    """
    check_choice("mode", mode, [name for name in MODES if name != "packed"])
    check_choice("pooling", pooling, POOLINGS)
    if mode == "sequence":
        return encode

    def encode_block(documents: Sequence[str]) -> np.ndarray:
        inputs = list(document_inputs(documents, mode))
        if not inputs:
            return np.asarray(encode([]))
        vectors, ids = encode_unique(encode, inputs)
        rows = vectors[ids([*chain.from_iterable(inputs)])].astype(np.float32)
        return pool_vectors(rows, [*map(len, inputs)], pooling)

    def encode_documents(documents: Sequence[str]) -> np.ndarray:
        starts = range(0, max(1, len(documents)), _ENCODED_TOGETHER)
        return np.concatenate([encode_block(documents[i : i + _ENCODED_TOGETHER]) for i in starts])

    return encode_documents


def write_mapped(
    chunks: Iterable[np.ndarray], dim: int, total: int, directory: Path, name: str = ""
) -> np.ndarray:
    """Writes vectors into an unnamed file, deleted with the array: [n, dim] float32, mapped.

    LAWDR reads sentence vectors more than once, and those of a large collection exceed memory, so
    `directory` must not be on a file system in memory. `total` is an upper limit for the progress.
    """
    with naming_errors(directory), tempfile.TemporaryFile(dir=directory) as file:
        rows = 0
        for chunk in track(chunks, f"embed {name}".strip(), total, "sentence", len):
            file.write(np.ascontiguousarray(chunk, dtype="<f4").data)
            rows += len(chunk)
        file.flush()
        if not rows:  # an empty file cannot be mapped
            return np.empty((0, dim), np.float32)
        return np.memmap(file, dtype="<f4", mode="r", shape=(rows, dim))


def pool_vectors(vectors: np.ndarray, counts: Sequence[int], pooling: str = "mean") -> np.ndarray:
    """Pools the vectors of each document, [sum of counts, dim] float32 -> [docs, dim] float32.

    The vectors stand document after document, at least one of each; at least one document.
    """
    check_choice("pooling", pooling, POOLINGS)
    parts = np.split(vectors, np.cumsum(counts)[:-1])
    return np.stack([part.max(axis=0) if pooling == "max" else part.mean(axis=0) for part in parts])


def pool_stream(
    chunks: Iterable[np.ndarray], counts: deque[int], pooling: str = "mean"
) -> Iterator[np.ndarray]:
    """Pools a stream of vectors, document by document, see `pool_vectors`.

    The counts of vectors are consumed; each must be there before the last one of its document.
    """
    pending: list[np.ndarray] = []
    for chunk in chunks:
        pending.append(chunk)
        if not counts or counts[0] > sum(map(len, pending)):
            continue  # the vectors of a long document are copied once
        vectors = np.concatenate(pending)
        complete, taken = [], 0
        while counts and taken + counts[0] <= len(vectors):
            complete.append(counts.popleft())
            taken += complete[-1]
        pending = [vectors[taken:]]
        yield pool_vectors(vectors[:taken], complete, pooling)


def pack_sentences(
    documents: Sequence[Sequence[str]], vocab: Vocabulary, room: int
) -> list[list[str]]:
    """Joins consecutive sentences of each document into texts of at most `room` tokens.

    Each text begins with the sentence that did not fit into the one before. Only a text of a single
    sentence can be longer than `room`.
    """
    lengths = _count_tokens(documents, vocab)
    packed = [list(_pack(*each, room)) for each in zip(documents, lengths)]
    # Joined sentences may have more tokens than separate ones, as if a period within a text is
    # tokenized unlike one at its end. This is rare, so only these documents are packed again, which
    # is slow.
    for number, (texts, counts) in enumerate(zip(packed, _count_tokens(packed, vocab))):
        too_long = {text for text, count in zip(texts, counts) if count > room}
        if too_long.difference(documents[number]):
            packed[number] = list(_pack(documents[number], lengths[number], room, vocab))
    return packed


def word_windows(text: str) -> list[str]:
    """Cuts a text into windows of 128 words, one every 64, as they stand in the text.

    Words are separated by white space; a character of a script without spaces is a word. No window
    is inside another, the last one may be shorter.
    """
    words = [match.span() for match in _WORD.finditer(text)]
    if len(words) <= _WINDOW_WORDS:
        return [text]
    starts = range(0, len(words) - _WINDOW_WORDS + _STRIDE_WORDS, _STRIDE_WORDS)
    return [text[words[i][0] : words[min(i + _WINDOW_WORDS, len(words)) - 1][1]] for i in starts]


def _count_tokens(texts: Sequence[Sequence[str]], vocab: Vocabulary) -> list[np.ndarray]:
    """Tokens of each text of each document."""
    lengths = vocab.encode_flat(list(chain.from_iterable(texts)))[1]
    return np.split(lengths, np.cumsum([len(each) for each in texts])[:-1])


def _pack(
    sentences: Sequence[str], lengths: np.ndarray, room: int, vocab: Vocabulary | None = None
) -> Iterator[str]:
    """Texts whose sentences' lengths add up to the room; with `vocab` their joint length fits."""
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
