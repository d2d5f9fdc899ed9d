"""Vectors of a frozen encoder for the rows of token shards, computed once.

    DIR/teacher/de-en/de.npy         [rows, width] float16 unit vectors of the rows of DIR/de-en
    DIR/teacher/de-en/vectors.json   fingerprint of what they were made from
    DIR/teacher/axes.KEY.npy         [dim, dim], the principal axes of a teacher that is wider

Vectors of pairs held out for the validation loss are in `DIR/validation/teacher/`.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from xling_jax.corpora.pair_tokens import PairPlan, ShardWriter
from xling_jax.corpora.shards import prepared_array
from xling_jax.files.hashes import fingerprint
from xling_jax.files.whole import naming_errors, read_json, whole_directory, whole_file, write_json

TEACHER = "teacher"


class RowEncoder(Protocol):
    """The encoder of rows, see `encode.teacher.Teacher`.

    Attributes:
        fingerprint: of its vectors.
        dim: their size.
    """

    fingerprint: str
    dim: int

    def encode_stream(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Yields unit vectors, [any, dim] float32, in input order."""

    def principal_axes(self, texts: Iterable[str]) -> np.ndarray:
        """The orthonormal axes of its vectors on texts, in columns, the largest first."""


class RowVectors:
    """Reads the vectors of one side of a pair.

    Args:
        directory: that of the token shards of all pairs.
        pair: name of the pair.
        language: of the side.
        rows: number of rows in the token shards.
        width: size of the vectors that are asked for; narrower ones get zeros at their end.

    Raises:
        ValueError: if they are missing, damaged or wider.
    """

    def __init__(self, directory: Path, pair: str, language: str, rows: int, width: int):
        path, self._width = directory / TEACHER / pair / f"{language}.npy", width
        what = "missing or damaged vectors of the teacher"
        way_out = f"remove {path.parent} and run the same command again to compute them"
        with prepared_array(path, what, way_out) as self._vectors:
            shape, dtype = self._vectors.shape, self._vectors.dtype
            if dtype != np.float16 or shape[0] != rows or shape[1] > width:
                raise ValueError(f"found {dtype} {list(shape)}, expected [{rows}, {width}]")

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """[n] int64 row numbers -> [n, width] float32; zeros for row -1."""
        out = np.zeros((len(rows), self._width), np.float32)
        real = rows >= 0
        out[real, : self._vectors.shape[1]] = self._vectors[rows[real]]
        return out


def write_row_vectors(
    directories: Mapping[Path, Sequence[PairPlan]],
    languages: Mapping[str, Sequence[str]],
    encoder: RowEncoder,
    width: int,
    writer: ShardWriter,
    sample: Callable[[], Iterable[str]],
    progress: Callable[..., Iterable],
) -> str:
    """Encodes the rows of token shards, as far as their vectors are missing.

    Vectors wider than `width` are rotated to their principal axes, cut and scaled to length 1.
    An interrupted call continues after the finished pairs.

    Args:
        directories: of token shards -> the plans that these were made from.
        languages: pair -> the sides to encode.
        encoder: the teacher.
        width: largest size of the stored vectors.
        writer: of the shards, which says which rows these hold.
        sample: gives texts to find the axes on.
        progress: wraps an iterable to show its progress; as `files.progress.track`.

    Returns:
        The fingerprint of the vectors.

    Raises:
        ValueError: if the texts do not agree with the shards.
        OSError: naming a path, if writing fails.
    """
    plans = [plan for group in directories.values() for plan in group]
    key = {"teacher": encoder.fingerprint, "width": min(width, encoder.dim)}
    if encoder.dim > width:  # with other text the axes are others
        key["text"] = sorted({plan.fingerprint for plan in plans})
    axes = None
    for directory, group in directories.items():
        for plan in group:
            sides = sorted({*languages[plan.pair]})
            own = fingerprint({**key, "rows": plan.fingerprint, "languages": sides})
            target = directory / TEACHER / plan.pair
            if (read_json(target / "vectors.json") or {}).get("fingerprint") == own:
                continue
            if encoder.dim > width and axes is None:
                path = next(iter(directories)) / TEACHER / f"axes.{fingerprint(key)}.npy"
                axes = _axes(path, encoder, sample)[:, :width]
            with whole_directory(target) as temporary, naming_errors(target):
                _write_pair(temporary, directory, plan, sides, encoder, axes, writer, progress)
                write_json(temporary / "vectors.json", {"fingerprint": own})
    _remove_others(directories, fingerprint(key))
    return fingerprint({**key, "languages": {pair: sorted({*s}) for pair, s in languages.items()}})


def remove_row_vectors(directory: Path) -> None:
    """Removes the vectors of a teacher, if there are any."""
    shutil.rmtree(directory / TEACHER, ignore_errors=True)


def _remove_others(directories: Mapping[Path, Sequence[PairPlan]], key: str) -> None:
    for directory, group in directories.items():
        used = {f"axes.{key}.npy", *(plan.pair for plan in group)}
        for path in (directory / TEACHER).iterdir():
            if path.name not in used:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _axes(path: Path, encoder: RowEncoder, sample: Callable[[], Iterable[str]]) -> np.ndarray:
    """[dim, dim] axes, kept: another machine might find them with other bits."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        with whole_file(path) as file:
            np.save(file, encoder.principal_axes(sample()))
    return np.load(path, allow_pickle=False)


def _write_pair(
    target: Path,
    directory: Path,
    plan: PairPlan,
    sides: Sequence[str],
    encoder: RowEncoder,
    axes: np.ndarray | None,
    writer: ShardWriter,
    progress: Callable[..., Iterable],
) -> None:
    num_rows = read_json(directory / plan.pair / "pair.json")["rows"]
    width = encoder.dim if axes is None else axes.shape[1]
    codes = plan.pair.split("-")
    files = {
        code: np.lib.format.open_memmap(target / f"{code}.npy", "w+", np.float16, (num_rows, width))
        for code in sides
    }
    done = 0
    label = f"encode {plan.pair} with the teacher"
    for rows in progress(kept_rows(plan, writer), label, unit="row", size=len):
        for code, file in files.items() if done + len(rows) <= num_rows else ():
            start = done
            for vectors in encoder.encode_stream([row[codes.index(code)] for row in rows]):
                if axes is not None:
                    vectors = vectors @ axes
                    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
                    vectors = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
                file[start : start + len(vectors)] = vectors
                start += len(vectors)
        done += len(rows)
    if done != num_rows:
        raise ValueError(
            f"{directory / plan.pair}: its {num_rows} rows are not those of the text; remove it "
            "and run the same command again"
        )
    for file in files.values():
        file.flush()


def kept_rows(plan: PairPlan, writer: ShardWriter) -> Iterator[list[tuple[str, str]]]:
    """The rows of a pair's shards, in order, member by member."""
    for (_, text), keep in zip(plan.corpora, plan.keep(), strict=True):
        for member in text.members(plan.pair):
            yield writer.rows(member, keep[member.rows])
