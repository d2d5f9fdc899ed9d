"""The lines of a text and their vectors, to search by meaning.

Vectors, and an index of them if one is asked for, are kept beside the text under names that hold a
hash of it and of the model. A text that has changed is encoded again, and what is left of the old
one is removed.
"""

import glob
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xling_jax.align import knn
from xling_jax.align.knn_index import EXACT, FilledIndex, empty_index
from xling_jax.documents.debias import (
    check_rank,
    gram_matrix,
    language_components,
    remove_components,
)
from xling_jax.encode.encoder import Encoder
from xling_jax.files.embeddings import read_embeddings, write_embeddings
from xling_jax.files.hashes import fingerprint, hash_file
from xling_jax.files.lines import iterate_lines
from xling_jax.files.progress import counted, track

_logger = logging.getLogger(__name__)

# Lines that are encoded at a time.
_WINDOW = 8192
# Rows of a sample in which the components of `debias` are found.
_SAMPLE_ROWS = 20_000
# Lines in the sample of `resemblance`, and copies of one that are seen to be copies.
_RESEMBLING, _COPIES = 200, 15


class Hit(NamedTuple):
    """A line that was found: cosine, number from 1, and text."""

    score: float
    line: int
    text: str


class Corpus:
    """A text to search.

    Args:
        path: the text, one line each, plain or compressed.
        encoder: of lines and queries, with its prompts for documents and queries if it has some.
        index: "exact", or of faiss, see `knn.top_k`; found lines may then miss some.
        debias: how many of the principal components of all lines to remove from lines and queries.
            Where the lines are in several languages, these hold what a language has in common.

    Raises:
        OptionError: if `index` is none, or `debias` not below the dimensions of the encoder.
        ValueError: if the text has no lines or cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        encoder: Encoder,
        *,
        index: str = EXACT,
        debias: int = 0,
    ):
        if index != EXACT:
            empty_index(index, encoder.dim)  # refuses a wrong one before any work
        check_rank(debias, encoder)
        self._encoder = encoder
        self.path, self.lines = Path(path), list(iterate_lines(path))
        if not self.lines:
            raise ValueError(f"{path}: has no lines to search")
        model = fingerprint(encoder.fingerprint)[:8]
        stem = f"{path}.{model}-{hash_file(path)[:16]}"
        vectors = self._kept(f"{stem}.npy")
        self._components = None
        if debias:
            sample = np.random.default_rng(0).permutation(len(vectors))[:_SAMPLE_ROWS]
            gram = gram_matrix(np.asarray(vectors[np.sort(sample)]))
            self._components = language_components(gram, debias)
            vectors = remove_components(vectors, self._components)
        self._vectors = knn.UnitRows(vectors, name=f"vectors of {path}")
        self._index = None
        if index != EXACT:
            kept = Path(f"{stem}.{fingerprint([index, debias])[:8]}.faiss")
            if kept.exists():
                self._index = FilledIndex.read(kept, self._vectors)
            else:
                self._index = FilledIndex.build(self._vectors, index)
                self._index.write(kept)
        for left in glob.glob(f"{glob.escape(f'{path}.{model}-')}*"):
            if not left.startswith(stem):
                Path(left).unlink(missing_ok=True)

    def search(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """Finds the lines nearest to each query, best first, at most k."""
        return self.nearest(self._encoder.encode_query(queries), k)

    def nearest(self, vectors: np.ndarray, k: int) -> list[list[Hit]]:
        """As `search`, for the vectors of queries, [n, dim]."""
        if self._components is not None:
            vectors = remove_components(vectors, self._components)
        scores, rows = self._nearest(knn.normalize(vectors, "queries"), k)
        return [
            [Hit(round(s, 4), row + 1, self.lines[row]) for s, row in zip(*both, strict=True)]
            for both in zip(scores.tolist(), rows.tolist(), strict=True)
        ]

    def resemblance(self, scores: Sequence[float]) -> list[float]:
        """What shares of the queries without an answer find a line above some cosines, about.

        These are the shares of the text's own lines that another line, of other words, resembles as
        much, in a sample. Text in several languages may hold their translations.
        """
        drawn = np.random.default_rng(0).permutation(len(self.lines))[:_RESEMBLING]
        found = self._nearest(self._vectors[drawn], _COPIES + 1)
        best = [
            next((s for s, row in zip(*both) if self.lines[row] != self.lines[own]), -1.0)
            for own, *both in zip(drawn.tolist(), *found)
        ]
        return [float(np.mean(np.array(best) > score)) for score in scores]

    def _nearest(self, queries: np.ndarray, k: int) -> knn.Neighbors:
        """Cosines and rows of the lines nearest to unit vectors."""
        if self._index is not None:
            return self._index.search(queries, k)[0]
        return knn.top_k(queries, self._vectors, k)

    def _kept(self, path: str) -> np.ndarray:
        """The vectors in a file, which is written if there is none."""
        if not os.path.exists(path):
            if not os.access(self.path.parent, os.W_OK):
                raise OSError(f"{path}: cannot be written; copy the text to where it can")
            parts = (self.lines[i : i + _WINDOW] for i in range(0, len(self.lines), _WINDOW))
            vectors = map(self._encoder.encode_document, parts)
            lines = track(vectors, "encode", len(self.lines), "line", len)
            count = write_embeddings(path, lines, dim=self._encoder.dim)
            _logger.info("%s: the vectors of %s", path, counted(count, "line"))
        return read_embeddings(path, self._encoder.dim)
