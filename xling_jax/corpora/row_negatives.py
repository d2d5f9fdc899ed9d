r"""Hard negatives from a file, as rows of the token shards.

The file has a text of the training corpora in each line, then texts that are similar to it but no
translations of it, the hardest first, separated by tabs:

    The cat sleeps.	Der Hund schläft.	Die Katze frisst.

All are texts of either side, in any language. A negative stands for its row: this joins the batches
of the rows that have the first text, with its own translation.

    DIR/negatives/de-en.npy         [rows, 8] int32, rows of DIR/de-en; -1 for none
    DIR/negatives/negatives.json    fingerprint of what they were made from

Choice: a file of its own, not a further column of the corpora. Corpora come in many formats, most
without columns to add, and a miner reads texts and writes texts.
"""

import logging
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from xling_jax.corpora.pair_tokens import PairPlan, ShardWriter
from xling_jax.corpora.row_vectors import kept_rows
from xling_jax.corpora.shards import prepared_array
from xling_jax.files.hashes import fingerprint
from xling_jax.files.lines import iterate_lines
from xling_jax.files.whole import naming_errors, read_json, whole_directory, write_json
from xling_jax.text.vocab import text_hash

NEGATIVES = "negatives"
_MOST = 8  # of a row

_logger = logging.getLogger(__name__)


def read_row_negatives(directory: Path, pair: str, rows: int) -> np.ndarray:
    """[rows, 8] int32: the hard negatives of a pair's rows, -1 for none.

    Raises:
        ValueError: if they are missing or damaged.
    """
    path = directory / NEGATIVES / f"{pair}.npy"
    way_out = f"remove {path.parent} and run the same command again"
    with prepared_array(path, "missing or damaged hard negatives", way_out) as found:
        if found.dtype != np.int32 or found.shape != (rows, _MOST):
            raise ValueError(f"found {found.dtype} {list(found.shape)}, expected [{rows}, {_MOST}]")
        if rows and not -1 <= found.min() <= found.max() < rows:
            raise ValueError(f"found rows {found.min()} to {found.max()} of {rows}")
    return found


def write_row_negatives(
    directory: Path,
    plans: Sequence[PairPlan],
    path: str,
    file_hash: str,
    writer: ShardWriter,
    progress: Callable[..., Iterable],
) -> str:
    """Finds the rows of a file's negatives, unless that is done.

    Texts are compared as `normalize_text` leaves them, in their case, since training text is
    cleaned. Of rows with equal texts the first counts.

    Args:
        directory: of token shards.
        plans: that these were made from.
        path: of the file.
        file_hash: of its content.
        writer: of the shards, which says which rows these hold.
        progress: wraps an iterable to show its progress; as `files.progress.track`.

    Returns:
        The fingerprint of the negatives.

    Raises:
        ValueError: if a line has no negative, or no training row has any of them.
        OSError: naming a path, if reading or writing fails.
    """
    own = fingerprint([file_hash, {plan.pair: plan.fingerprint for plan in plans}])
    target = directory / NEGATIVES
    if (read_json(target / "negatives.json") or {}).get("fingerprint") == own:
        return own
    wanted = _read(path)
    num_found = num_rows = 0
    with whole_directory(target) as temporary, naming_errors(target):
        for plan in plans:
            texts = _text_keys(plan, writer, progress)
            found = _rows_of(texts, wanted)
            np.save(temporary / f"{plan.pair}.npy", found)
            num_found, num_rows = num_found + int((found[:, 0] >= 0).sum()), num_rows + len(found)
        if not num_found:
            raise ValueError(
                f"{path}: no training row has one of its texts and another its negative, in the "
                "same pair of languages; name texts of data.corpora, as they stand there"
            )
        write_json(temporary / "negatives.json", {"fingerprint": own})
    _logger.info("%s: hard negatives for %d of %d rows", path, num_found, num_rows)
    return own


def remove_row_negatives(directory: Path) -> None:
    """Removes the negatives, if there are any."""
    shutil.rmtree(directory / NEGATIVES, ignore_errors=True)


def _read(path: str) -> dict[int, list[int]]:
    """Key of a text -> keys of its negatives."""
    wanted: dict[int, list[int]] = {}
    for number, line in enumerate(iterate_lines(path), 1):
        if not line:
            continue
        texts = [text_hash(text) for text in line.split("\t") if text.strip()]
        if len(texts) < 2:
            raise ValueError(
                f"{path}:{number}: must have a text and at least one negative, separated by tabs; "
                f"found {line!r:.60}"
            )
        wanted.setdefault(texts[0], []).extend(texts[1:])
    return wanted


def _text_keys(plan: PairPlan, writer: ShardWriter, progress: Callable[..., Iterable]) -> list:
    """Keys of both texts of every row of a pair's shards."""
    label = f"find the negatives of {plan.pair}"
    chunks = progress(kept_rows(plan, writer), label, unit="row", size=len)
    return [(text_hash(first), text_hash(second)) for rows in chunks for first, second in rows]


def _rows_of(texts: Sequence[tuple[int, int]], wanted: Mapping[int, list[int]]) -> np.ndarray:
    """[rows, 8] int32, the rows of the negatives of each row's texts."""
    row_of: dict[int, int] = {}
    for row, keys in enumerate(texts):
        for key in keys:
            row_of.setdefault(key, row)
    found = np.full((len(texts), _MOST), -1, np.int32)
    for row, keys in enumerate(texts):
        negatives = (row_of.get(n, row) for key in keys for n in wanted.get(key, ()))
        rows = list(dict.fromkeys(n for n in negatives if n != row))[:_MOST]
        found[row, : len(rows)] = rows
    return found
