"""What encoders without layers sum up: the rows of tables, by the tokens of a sentence.

Needs NumPy only. `models.static` trains such encoders and `encode.static` runs them; both ask here
which rows a sentence has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xling_jax.registry import check_choice

# Feature -> distances of its tokens from the first.
FEATURES = {"pairs": (0, 1), "skips": (0, 2), "triples": (0, 1, 2)}
STORAGES = ("float32", "int8")
_FACTORS = (np.uint32(0x85EBCA77), np.uint32(0xC2B2AE3D), np.uint32(0x27D4EB2F))


@dataclasses.dataclass(frozen=True)
class StaticForm:
    """Sizes and features of a static encoder.

    Attributes:
        vocab_size: token ids are below it; the table is padded to a multiple of `vocab_multiple`.
        width: of the vectors.
        features: what has vectors besides single tokens: `pairs` of neighbors, `skips` (pairs with
            one token between them), `triples` of neighbors.
        feature_rows: rows of the table that features share by their hash.
        pad_id: id of padding.
        storage: of the parameters in a model directory: `float32` as trained, or `int8`, a number
            from -127 to 127 for each element and a factor for each row, with its weight.
    """

    vocab_size: int
    width: int = 512
    features: tuple[str, ...] = ()
    feature_rows: int = 65_536
    pad_id: int = 0
    vocab_multiple: int = 128
    storage: str = "float32"

    def __post_init__(self):
        for name in self.features:
            check_choice("encoder.features", name, FEATURES)
        check_choice("encoder.storage", self.storage, STORAGES)
        for name in ("vocab_size", "width", "feature_rows", "vocab_multiple"):
            if getattr(self, name) < 1:
                raise ValueError(f"encoder.{name}={getattr(self, name)} must be at least 1")

    @property
    def token_rows(self) -> int:
        """Rows of the token table."""
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple

    @property
    def parameters(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name -> shape and dtype of the stored parameters."""
        extra_rows = self.feature_rows if self.features else 0
        if self.storage == "int8":
            rows = self.token_rows + extra_rows
            return {"rows": ((rows, self.width), "int8"), "factor": ((rows,), "float32")}
        sizes = {"embedding": (self.token_rows, self.width), "token_weight": (self.token_rows,)}
        if self.features:
            sizes["feature_embedding"] = (self.feature_rows, self.width)
            sizes["feature_weight"] = (self.feature_rows,)
        return {name: (size, "float32") for name, size in sizes.items()}

    def tables(self, stored: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """All rows [rows, width], tokens and then features, and a factor [rows] float32 for each.

        Args:
            stored: the parameters as stored.
        """
        if self.storage == "int8":
            return stored["rows"], stored["factor"]
        names = ("token", "feature") if self.features else ("token",)
        tables = {"token": stored["embedding"], "feature": stored.get("feature_embedding")}
        rows = [np.asarray(tables[name]) for name in names]
        factors = [np.asarray(stored[f"{name}_weight"]) for name in names]
        return (
            (rows[0], factors[0])
            if len(rows) == 1
            else (np.concatenate(rows), np.concatenate(factors))
        )

    def trainable(self, stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The float32 parameters of `models.static.StaticEncoder` with the stored vectors."""
        if self.storage == "float32":
            return dict(stored)
        rows, factors = self.tables(stored)
        tokens, features = np.split(rows * factors[:, None], [self.token_rows])
        params = {"embedding": tokens, "token_weight": np.ones(len(tokens), np.float32)}
        if self.features:
            params["feature_embedding"] = features
            params["feature_weight"] = np.ones(len(features), np.float32)
        return params

    def rotated(self, params: Mapping[str, np.ndarray], axes: np.ndarray) -> dict[str, np.ndarray]:
        """The float32 parameters whose vectors are those of `params` in other coordinates.

        Args:
            params: float32, as stored.
            axes: [width, width], an orthonormal axis in each column; cosines do not change.
        """
        tables = ("embedding", "feature_embedding")
        return {name: p @ axes if name in tables else p for name, p in params.items()}

    def as_int8(self, params: Mapping[str, np.ndarray]) -> tuple[StaticForm, dict[str, np.ndarray]]:
        """The form and its parameters in 8 bits.

        Row r of the result is q_r m_r / 127, where m_r is the largest element of the row and q_r
        are numbers from -127 to 127.

        Args:
            params: as stored.
        """
        rows, factors = self.tables(params)
        rows = rows.astype(np.float32) * factors[:, None]
        factors = np.abs(rows).max(axis=1) / 127
        rows = np.round(rows / np.maximum(factors, np.finfo(np.float32).tiny)[:, None])
        stored = {"rows": rows.astype(np.int8), "factor": factors.astype(np.float32)}
        return dataclasses.replace(self, storage="int8"), stored

    def sentence_rows(self, tokens: np.ndarray) -> np.ndarray:
        """The rows of one sentence of [length] int32 tokens; see `window_rows`."""
        parts = [tokens]
        for name in self.features:
            places = FEATURES[name]
            if (count := len(tokens) - places[-1]) > 0:
                parts.append(self._rows(name, [tokens[place : place + count] for place in places]))
        return np.concatenate(parts) if len(parts) > 1 else tokens

    def _rows(self, name: str, tokens: Sequence[np.ndarray]) -> np.ndarray:
        hashed = hash_feature(name, tokens) % np.uint32(self.feature_rows)
        return hashed.astype(np.int32) + np.int32(self.token_rows)

    def window_rows(self, tokens: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of sentences, in a table of token rows and then feature rows.

        Args:
            tokens: [sum of lengths] int32, without padding.
            offsets: [sentences + 1] int64, where each begins and the last ends.

        Returns:
            rows: [sum of counts] int32.
            ends: [sentences + 1] int64, where the rows of each begin and those of the last end.
        """
        if not self.features:
            return tokens, offsets
        lengths = np.diff(offsets)
        left = np.repeat(offsets[1:], lengths) - np.arange(len(tokens))  # from here to the end
        parts = [(lengths, tokens)]
        for name in self.features:
            places = FEATURES[name]
            starts = np.flatnonzero(left > places[-1])
            rows = self._rows(name, [tokens[starts + place] for place in places])
            parts.append((np.maximum(lengths - places[-1], 0), rows))
        ends = np.zeros_like(offsets)
        np.cumsum(sum(counts for counts, _ in parts), out=ends[1:])
        result = np.empty(ends[-1], np.int32)
        begins = ends[:-1].copy()
        for counts, rows in parts:
            before = np.cumsum(counts) - counts
            result[np.repeat(begins - before, counts) + np.arange(len(rows))] = rows
            begins += counts
        return result, ends


def hash_feature(name: str, tokens: Sequence[Any]) -> Any:
    """Hashes the tokens of features, in order: multiplications modulo 2**32, of whose bits the
    upper ones are mixed best.

    Args:
        name: key of `FEATURES`; each kind has hashes of its own.
        tokens: one array of ids, NumPy or JAX, for each token of the feature.

    Returns:
        uint32 below 2**25, in the shape of the arrays.
    """
    bits = np.uint32(0x9E3779B1 * (1 + [*FEATURES].index(name)) & 0xFFFFFFFF)
    for factor, ids in zip(_FACTORS, tokens):
        bits = (bits ^ ids.astype(np.uint32)) * factor
    return (bits ^ bits >> 15) * np.uint32(0x2C1B3C6D) >> 7
