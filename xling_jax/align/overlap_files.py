"""Overlap files of vecalign: texts of 1, 2, … adjacent sentences, a line each; their vectors."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from xling_jax.files.embeddings import read_embeddings
from xling_jax.files.lines import iterate_lines, shown

# vecalign cuts longer texts, so that no encoder has to read them.
_MAX_CHARS = 10_000


class OverlapVectors:
    """Vectors of texts, looked up in place of encoding them.

    Args:
        path: the texts, as vecalign's `overlap.py` writes them; maybe compressed.
        embeddings: their vectors, row i for line i: `.npy`, or headerless float32 as of LASER.
        dim: of headerless vectors; None to divide the file by the number of lines.

    Raises:
        ValueError: if there is not one vector for each line.
        OSError: if a file cannot be read.
    """

    def __init__(self, path: str, embeddings: str, dim: int | None = None):
        self.name = shown(path)
        lines = [line.strip() for line in iterate_lines(path)]
        self._row_of = {line: row for row, line in reversed([*enumerate(lines)])}
        with open(embeddings, "rb") as file:
            has_header = file.read(6) == b"\x93NUMPY"
        if dim is None and not has_header:
            dim, rest = divmod(os.path.getsize(embeddings), 4 * max(len(lines), 1))
            if rest or not dim:
                raise ValueError(
                    f"{embeddings}: must hold a vector of float32 for each of the {len(lines)} "
                    f"lines of {self.name}; found {os.path.getsize(embeddings)} bytes"
                )
        self._vectors = read_embeddings(embeddings, dim=dim)
        if len(self._vectors) != len(lines):
            raise ValueError(
                f"{embeddings}: must have one row for each of the {len(lines)} lines of "
                f"{self.name}; found {len(self._vectors)}"
            )

    @property
    def dim(self) -> int:
        """Dimensions of the vectors."""
        return self._vectors.shape[1]

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """[n, dim] float32 vectors of texts.

        Raises:
            ValueError: if a text is not among the lines.
        """
        try:
            rows = [self._row_of[text[:_MAX_CHARS].strip()] for text in texts]
        except KeyError as error:
            raise ValueError(
                f"{self.name}: lacks the text {error.args[0]!r:.60}; write the overlaps of these "
                "sentences, of as many as --max-sentences less one, without blank lines"
            ) from None
        return np.asarray(self._vectors[rows], np.float32).reshape(len(rows), self.dim)
