"""How a long text becomes one vector: as it is, or from the vectors of its sentences or windows.

Works on top of any function from texts to embeddings. Yu et al. (2018), Table 5, compare the four
ways of cutting and pooling; T-LASER's papers embed the document as one sequence.
"""

import itertools
import re
from collections.abc import Callable, Sequence

import numpy as np

from xling_jax.align import knn
from xling_jax.text.splitting import document_sentences

Encode = Callable[[Sequence[str]], np.ndarray]

MODES = ("sequence", "sentences-mean", "sentences-max", "windows-mean", "windows-max")
SPLITS = ("punctuation", "laser")

# Yu et al. (2018), section 5.2.
WINDOW_WORDS, STRIDE_WORDS = 128, 64

# Texts are cut and encoded in blocks, so that pieces and their vectors stay few.
_BLOCK_TEXTS = 2000
# Characters of scripts that write no spaces are words of their own: kana, ideographs, Thai, Lao,
# Khmer, Burmese.
_UNSPACED = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0eff\u1780-\u17ff\u1000-\u109f"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")


def document_encoder(encode: Encode, mode: str, *, split: str = "punctuation") -> Encode:
    """Returns the function from documents to embeddings in one of the document modes.

    Args:
        encode: texts to [n, dim] embeddings.
        mode: one of `MODES`: the text as one sequence, which the encoder cuts at its longest; the
            mean or maximum, in each dimension, over sentences; or over windows of 128 words, one
            every 64.
        split: how sentences are found: "punctuation", as by `Encoder.encode_documents`; or
            "laser", at every "." that stands alone in tokenised text.

    Returns:
        Texts to [n, dim] embeddings, float32 but for `sequence`, which is `encode` itself.

    Raises:
        ValueError: if the mode or the split is unknown.
    """
    if mode not in MODES:
        raise ValueError(f"documents must be one of {', '.join(MODES)}; got {mode!r}")
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}")
    if mode == "sequence":
        return encode
    unit, pooling = mode.split("-")
    cut: Callable[[str], list[str]] = word_windows
    if unit == "sentences":
        cut = document_sentences if split == "punctuation" else split_at_points
    pool = np.add if pooling == "mean" else np.maximum

    def encode_documents(texts: Sequence[str]) -> np.ndarray:
        if not len(texts):
            return np.asarray(encode([]))
        blocks = [
            _pool_block(encode, texts[start : start + _BLOCK_TEXTS], cut, pool)
            for start in range(0, len(texts), _BLOCK_TEXTS)
        ]
        return np.concatenate(blocks)

    return encode_documents


def word_windows(text: str, size: int = WINDOW_WORDS, stride: int = STRIDE_WORDS) -> list[str]:
    """Cuts a text into overlapping windows of words.

    Args:
        text: words separated by white space; a character of a script without spaces is a word.
        size: words in a window.
        stride: words from the start of a window to that of the next.

    Returns:
        The windows as they stand in the text, the last one maybe shorter, none inside another;
        the text itself if it fits into one.

    Raises:
        ValueError: if the stride is not from 1 to the size.
    """
    if not 1 <= stride <= size:
        raise ValueError(f"stride must be from 1 to size={size}; got {stride}")
    words = [match.span() for match in _WORD.finditer(text)]
    if len(words) <= size:
        return [text]
    starts = range(0, len(words) - size + stride, stride)
    return [text[words[i][0] : words[min(i + size, len(words)) - 1][1]] for i in starts]


def split_at_points(text: str) -> list[str]:
    """Cuts tokenised text after every "." that stands alone, as LASER does for MLDoc.

    Args:
        text: tokens separated by white space.

    Returns:
        The pieces, tokens joined by single spaces; one empty piece for an empty text. No piece
        is added for a "." at the very end.
    """
    pieces: list[list[str]] = [[]]
    words = text.split()
    for number, word in enumerate(words, start=1):
        pieces[-1].append(word)
        if word == "." and number < len(words):
            pieces.append([])
    return [" ".join(piece) for piece in pieces]


def _pool_block(encode: Encode, texts: Sequence[str], cut: Callable, pool: np.ufunc) -> np.ndarray:
    pieces = [cut(text) for text in texts]
    row_of = {piece: row for row, piece in enumerate(dict.fromkeys(itertools.chain(*pieces)))}
    vectors = knn.as_embeddings(encode(list(row_of)), "the result of encode")
    if len(vectors) != len(row_of):
        raise ValueError(
            f"encode must return one row a text; got {len(vectors)} rows for {len(row_of)} texts"
        )
    rows = np.array([row_of[piece] for piece in itertools.chain(*pieces)])
    counts = np.array([len(each) for each in pieces])
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    pooled = pool.reduceat(np.asarray(vectors, np.float32)[rows], starts, axis=0)
    return pooled / counts[:, None].astype(np.float32) if pool is np.add else pooled
