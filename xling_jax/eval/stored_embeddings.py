"""Embeddings of any origin in place of an encoder: read from files, looked up by text."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from xling_jax.align.rows import row_blocks
from xling_jax.files.embeddings import read_embeddings
from xling_jax.text import languages as languages_lib

_logger = logging.getLogger(__name__)

# Equal texts in two files should have equal vectors, up to float32 and the effect of batches.
_TOLERANCE = 1e-3
_SUFFIXES = (".npy", ".bin")


class StoredEmbeddings:
    """Vectors read from files, with the part of `Encoder` that evaluation uses.

    A repeated text gets the vector of its first row; a warning counts the rows that differ.

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
        num_unequal = 0
        for number, (name, lines) in enumerate(texts.items()):
            path = _find_file(Path(directory).expanduser(), name)
            vectors = read_embeddings(path, dim)
            # A headerless file cannot contradict `dim`; the others must agree with the first.
            dim = vectors.shape[1]
            if len(vectors) != len(lines):
                rule = f"must have a row for each of the {len(lines)} lines of {name}"
                raise ValueError(f"{path}: {rule}; found {len(vectors)}; embed that file again")
            for _, block in row_blocks(vectors, str(path)):
                digest.update(np.ascontiguousarray(block).data)
            self._files.append(vectors)
            for row, text in enumerate(lines):
                file, first = self._row_of.setdefault(text, (number, row))
                if text and (file, first) != (number, row):
                    before = self._files[file][first]
                    # Relative to the whole vector: single values may be near zero.
                    gap = float(np.linalg.norm(vectors[row] - before))
                    num_unequal += gap > _TOLERANCE * max(float(np.linalg.norm(before)), 1e-30)
        self.dim = int(dim)
        self.fingerprint = digest.hexdigest()
        if num_unequal:
            _logger.warning(
                "%s: %d rows differ from an earlier row with the same text, whose vector is used",
                directory,
                num_unequal,
            )

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


def _find_file(directory: Path, name: str) -> Path:
    """The file of vectors of a name, whose language code may be an alias."""
    stem, _, code = name.rpartition(".")
    meaning = languages_lib.to_iso639_1(code)
    exact = [directory / (name + suffix) for suffix in _SUFFIXES]
    found = [path for path in exact if path.is_file()]
    if not found and stem:
        found = [
            path
            for path in sorted(directory.glob("*.*"))
            if path.suffix in _SUFFIXES
            and path.stem.rpartition(".")[0] == stem
            and languages_lib.to_iso639_1(path.stem.rpartition(".")[2]) == meaning
        ]
    if len(found) != 1:
        names = " and ".join(path.name for path in found) or "neither"
        rule = f"must hold the vectors of {name} as {' or '.join(path.name for path in exact)}"
        raise ValueError(f"{directory}: {rule}; found {names}")
    return found[0]
