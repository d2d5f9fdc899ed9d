"""Embeddings of any origin in place of an encoder: read from files, looked up by text."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from xling_jax.align.rows import row_blocks
from xling_jax.files.embeddings import read_embeddings


class StoredEmbeddings:
    """Vectors read from files, with the part of `Encoder` that evaluation uses.

    A repeated text gets the vector of its first row.

    Args:
        directory: holds the files `NAME.npy` (float [n, dim]) or `NAME.bin` (LASER's, headerless
            float32), one for each name.
        texts: NAME -> the texts of its rows; see `Task.vector_files`.
        dim: embedding size, which `.bin` files do not state.

    Attributes:
        fingerprint: SHA-256 of the vectors used, in hex.
        dim: embedding size.

    Raises:
        ValueError, OSError: if a file is missing or cannot be read, has more or fewer rows than
            there are texts, vectors of another size, or a value that is not finite.
    """

    def __init__(
        self, directory: str | Path, texts: Mapping[str, Sequence[str]], *, dim: int | None = None
    ):
        if not texts:
            raise ValueError(f"{directory}: there is no text to look up vectors for")
        self._files: list[np.ndarray] = []
        self._row_of: dict[str, tuple[int, int]] = {}
        digest = hashlib.sha256()
        for number, (name, lines) in enumerate(texts.items()):
            names = [f"{name}.npy", f"{name}.bin"]
            paths = [Path(directory).expanduser() / file for file in names]
            if len(found := [path for path in paths if path.is_file()]) != 1:
                rule = f"must hold the vectors of {name} as {' or '.join(names)}"
                raise ValueError(f"{directory}: {rule}; found {'both' if found else 'neither'}")
            vectors = read_embeddings(found[0], dim)
            # A headerless file cannot contradict `dim`; the others must agree with the first.
            dim = vectors.shape[1]
            if len(vectors) != len(lines):
                rule = f"must have a row for each of the {len(lines)} lines of {name}"
                raise ValueError(f"{found[0]}: {rule}; found {len(vectors)}; embed that file again")
            for _, block in row_blocks(vectors, str(found[0])):
                digest.update(np.ascontiguousarray(block).data)
            self._files.append(vectors)
            for row, text in enumerate(lines):
                self._row_of.setdefault(text, (number, row))
        self.dim = int(dim)
        self.fingerprint = digest.hexdigest()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Returns float32 [n, dim], row i for text i.

        Raises:
            ValueError: if there is no vector for a text.
        """
        for text in texts:
            if text not in self._row_of:
                raise ValueError(f"no stored vector for the text {text[:60]!r}; embed its file too")
        rows = np.array([self._row_of[text] for text in texts], np.int64).reshape(-1, 2)
        vectors = np.empty((len(texts), self.dim), np.float32)
        for number, file in enumerate(self._files):
            of_file = rows[:, 0] == number
            vectors[of_file] = file[rows[of_file, 1]]
        return vectors
