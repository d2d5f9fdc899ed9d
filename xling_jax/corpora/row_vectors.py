"""Vectors of a frozen encoder for the rows of token shards, computed once.

    DIR/teacher/de-en/de.npy         [rows, width] float16 unit vectors of the rows of DIR/de-en
    DIR/teacher/de-en/vectors.json   fingerprint of what they were made from, hashes of the files
    DIR/teacher/axes.KEY.npy         [dim, dim], the principal axes of a teacher that is wider

Vectors of pairs held out for the validation loss are in `DIR/validation/teacher/`.
"""

import functools
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.corpora.pair_tokens import PairPlan, ShardWriter
from xling_jax.corpora.shards import DamagedData, file_hashes, prepared_array, recorded_hashes
from xling_jax.corpora.stages import Stage
from xling_jax.files.hashes import fingerprint
from xling_jax.files.progress import track
from xling_jax.files.whole import whole_file

TEACHER = "teacher"


class RowVectors:
    """Reads the vectors of one side of a pair, of the number of `rows` in the token shards.

    Vectors narrower than `width` get zeros at their end.
    """

    def __init__(self, directory: Path, pair: str, language: str, rows: int, width: int):
        path, self._width = directory / TEACHER / pair / f"{language}.npy", width
        what = "missing or damaged vectors of the teacher"
        expected = recorded_hashes(path.with_name("vectors.json"), path.parent).get(path.name)
        vectors = self._vectors = prepared_array(path, what, path.parent, expected)
        if vectors.dtype != np.float16 or len(vectors) != rows or vectors.shape[1] > width:
            found = f"found {vectors.dtype} {list(vectors.shape)}, expected [{rows}, {width}]"
            raise DamagedData(path, f"{what}: {found}", path.parent)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """[n] int64 row numbers -> [n, width] float32; zeros for row -1."""
        out = np.zeros((len(rows), self._width), np.float32)
        real = rows >= 0
        out[real, : self._vectors.shape[1]] = self._vectors[rows[real]]
        return out


def write_row_vectors(
    plans: Mapping[Path, Sequence[PairPlan]],
    languages: Mapping[str, Sequence[str]],
    teacher: Any,
    width: int,
    writer: ShardWriter,
    sample: Callable[[], Iterable[str]],
) -> str:
    """Encodes the rows of token shards, as far as their vectors are missing.

    `plans` are what the shards in a directory were made from, `languages` the sides to encode by
    pair, with a `teacher` (`encode.teacher.Teacher`). Vectors wider than `width` are rotated to
    their principal axes, which are found on a `sample` of texts, cut and scaled to length 1. An
    interrupted call continues after the finished pairs. Returns the fingerprint of the vectors.
    """
    facts = {"teacher": teacher.fingerprint, "width": min(width, teacher.dim)}
    if teacher.dim > width:  # with other text the axes are others
        facts["text"] = sorted({plan.stage.key for group in plans.values() for plan in group})
    key, top = fingerprint(facts), next(iter(plans)) / TEACHER
    find_axes = functools.cache(lambda: _axes(top / f"axes.{key}.npy", teacher, sample)[:, :width])
    for directory, group in plans.items():
        for plan in group:
            sides = sorted({*languages[plan.pair]})
            own = fingerprint({**facts, "rows": plan.stage.key, "languages": sides})
            stage = Stage(directory / TEACHER / plan.pair, own, "vectors.json")
            axes = find_axes() if teacher.dim > width and not stage.read() else None
            write = functools.partial(_write_pair, plan, sides, teacher, axes, writer)
            stage.make(write)
        used = {f"axes.{key}.npy", *(plan.pair for plan in group)}
        for path in (directory / TEACHER).iterdir():
            if path.name not in used:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return fingerprint(
        {**facts, "languages": {pair: sorted({*s}) for pair, s in languages.items()}}
    )


def _axes(path: Path, teacher: Any, sample: Callable[[], Iterable[str]]) -> np.ndarray:
    """[dim, dim] axes, kept: another machine might find them with other bits."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        with whole_file(path) as file:
            np.save(file, teacher.principal_axes(sample()))
    return np.load(path, allow_pickle=False)


def _write_pair(
    plan: PairPlan,
    sides: Sequence[str],
    teacher: Any,
    axes: np.ndarray | None,
    writer: ShardWriter,
    target: Path,
) -> dict[str, Any]:
    num_rows = plan.stage.read()["rows"]
    width = teacher.dim if axes is None else axes.shape[1]
    codes = plan.pair.split("-")
    files = {
        code: np.lib.format.open_memmap(target / f"{code}.npy", "w+", np.float16, (num_rows, width))
        for code in sides
    }
    done = 0
    label = f"encode {plan.pair} with the teacher"
    text = (writer.tokenize(rows)[0] for _, chunks in plan.selected() for rows in chunks)
    for rows in track(text, label, unit="row", size=len):
        for code, file in files.items() if done + len(rows) <= num_rows else ():
            start = done
            for vectors in teacher.encode_stream([row[codes.index(code)] for row in rows]):
                if axes is not None:
                    vectors = vectors @ axes
                    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
                    vectors = vectors / np.maximum(norms, np.finfo(np.float32).tiny)
                file[start : start + len(vectors)] = vectors
                start += len(vectors)
        done += len(rows)
    if done != num_rows:
        raise ValueError(
            f"{plan.stage.directory}: its {num_rows} rows are not those of the text; remove it "
            "and run the same command again"
        )
    for file in files.values():
        file.flush()
    return {"hashes": file_hashes(target)}
