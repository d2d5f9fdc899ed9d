"""The options of static encoders, and what they sum up: rows of tables, by a sentence's tokens.

Needs NumPy only: `models.static` and `encode.backends` ask here which rows a sentence has. A
feature has one if its hash is among the keys of the table, the hashes of the most frequent features
of the training text (`choose_keys`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from xling_jax.models.numpy_layers import padded_vocab_size
from xling_jax.models.row_storage import STORAGES, Table, quantized, storage_of
from xling_jax.options import check_number
from xling_jax.registry import check_choice

# Feature -> distances of its tokens from the first.
FEATURES = {"pairs": (0, 1), "skips": (0, 2), "triples": (0, 1, 2)}
# What has rows -> its table of float32 parameters.
_TABLES = {"token": "embedding", "feature": "feature_embedding"}
NOT_TRAINED = ("feature_keys",)
# Hashes are below 2**24: exact in float32, as which they are stored with the parameters.
NO_KEY = 1 << 24
# No two keys share these lower bits, so that a lookup takes one step.
_SLOTS = 1 << 20
HASH_FACTORS, LAST_HASH_FACTOR = (0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F), 0x2C1B3C6D
_MASK = 0xFFFFFFFF
HASH_SEEDS = {name: 0x9E3779B1 * (i + 1) & _MASK for i, name in enumerate(FEATURES)}
# Tokens of a sentence whose features are found one by one.
_SHORT = 64


@dataclasses.dataclass
class StaticOptions:
    """Options of static encoders.

    Attributes:
        vocab_size: token ids are below it; the table is padded to a multiple of `vocab_multiple`.
        features: what has vectors besides single tokens: `pairs` of neighbors, `skips` (pairs with
            one token between them), `triples` of neighbors.
        feature_rows: how many of all features have a row, the most frequent ones.
        normalize: whether vectors are scaled to length 1.
        feature_width: dimensions of the vectors of features, which add to the first ones of a
            sentence; 0 for all.
    """

    vocab_size: int
    width: int = 512
    features: tuple[str, ...] = ()
    feature_rows: int = 65_536
    pad_id: int = 0
    vocab_multiple: int = 128
    normalize: bool = False
    feature_width: int = 0

    specials = ((), ())

    def __post_init__(self):
        self.features = tuple(self.features)  # JSON has lists
        for name in self.features:
            check_choice("encoder.features", name, FEATURES)
        for name in ("vocab_size", "width", "feature_rows", "vocab_multiple"):
            check_number(getattr(self, name), f"encoder.{name}", 1)
        if not 0 <= self.feature_width <= self.width:
            raise ValueError(
                f"encoder.feature_width={self.feature_width} must be from 0 to {self.width}, the "
                "encoder's width; 0 is all of it"
            )

    @property
    def dim(self) -> int:
        return self.width

    @property
    def token_rows(self) -> int:
        return padded_vocab_size(self.vocab_size, self.vocab_multiple)

    @property
    def feature_dims(self) -> int:
        """Elements of a feature's vector."""
        return self.feature_width or self.width

    def table_shapes(self) -> dict[str, tuple[int, int]]:
        """Rows and dimensions of the tables: `token`, and `feature` with features."""
        shapes = {"token": (self.token_rows, self.width)}
        if self.features:
            shapes["feature"] = (self.feature_rows, self.feature_dims)
        return shapes

    def trained_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of the parameters of `static.StaticEncoder`."""
        shapes = {}
        for kind, shape in self.table_shapes().items():
            shapes |= {_TABLES[kind]: shape, f"{kind}_weight": shape[:1]}
        return shapes | {"feature_keys": (self.feature_rows,)} if self.features else shapes


@dataclasses.dataclass
class NumpyStatic(StaticOptions):
    """A static encoder as a model directory holds it.

    Attributes (see also `StaticOptions`):
        storage: of the parameters, see `row_storage.STORAGES`: `float32` as trained; otherwise
            `rows` holds the numbers of tokens and then of features, which are in `narrow_rows` if
            they are shorter or have fewer bits, and `factor` those of all rows, with their weights.
    """

    storage: str = "float32"

    def __post_init__(self):
        super().__post_init__()
        check_choice("encoder.storage", self.storage, STORAGES)
        if self.storage == "mixed" and not self.features:
            raise ValueError("encoder.storage=mixed is for encoders with features; use int8")
        for name, dims, kind in (
            ("width", self.width, "token"),
            ("feature_width", self.feature_width, "feature"),
            ("width", self.feature_dims, "feature"),
        ):
            if dims % 2 and storage_of(self.storage, kind) == "int4":
                raise ValueError(
                    f"encoder.{name}={dims} must be even with encoder.storage={self.storage}; "
                    "use int8"
                )

    @property
    def parameters(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name -> shape and dtype of the stored parameters."""
        if self.storage == "float32":
            return {name: (shape, "float32") for name, shape in self.trained_shapes().items()}
        sizes = self.table_shapes()
        rows = sum(count for count, _ in sizes.values())
        tables = {"rows": ((rows, self.width), "token")}
        if self._has_narrow_rows:
            tables = {
                "rows": (sizes["token"], "token"),
                "narrow_rows": (sizes["feature"], "feature"),
            }
        stored = {}
        for name, ((count, dims), kind) in tables.items():
            is_packed = storage_of(self.storage, kind) == "int4"
            stored[name] = ((count, dims // 2), "uint8") if is_packed else ((count, dims), "int8")
        stored["factor"] = ((rows,), "float32")
        if self.features:
            stored["feature_keys"] = ((self.feature_rows,), "float32")
        return stored

    @property
    def _has_narrow_rows(self) -> bool:
        """True if the integers of features are in a table of their own."""
        return bool(self.features) and (self.feature_dims < self.width or self.storage == "mixed")

    def tables(self, stored: Mapping[str, np.ndarray]) -> list[Table]:
        """The table of tokens, then that of features if it has some, of parameters as stored."""
        if self.storage == "float32":
            return [
                Table(np.asarray(stored[_TABLES[kind]]), np.asarray(stored[f"{kind}_weight"]))
                for kind in self.table_shapes()
            ]
        if not self.features:
            return [Table(stored["rows"], stored["factor"])]
        rows = stored["rows"][: self.token_rows]
        narrow = stored["narrow_rows" if self._has_narrow_rows else "rows"][-self.feature_rows :]
        of_tokens, of_features = np.split(stored["factor"], [self.token_rows])
        return [Table(rows, of_tokens), Table(narrow, of_features)]

    def trainable(self, stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The float32 parameters of `models.static.StaticEncoder` with the stored vectors."""
        if self.storage == "float32":
            return dict(stored)
        vectors = [table.vectors() for table in self.tables(stored)]
        return parameters_of_vectors(vectors, stored.get("feature_keys"))

    def truncated(
        self, params: Mapping[str, np.ndarray], width: int
    ) -> tuple[NumpyStatic, dict[str, np.ndarray]]:
        """The encoder and its float32 parameters with only the first `width` dimensions."""
        feature_width = min(self.feature_width, width)
        narrower = dataclasses.replace(self, width=width, feature_width=feature_width)
        dims = {"embedding": width, "feature_embedding": narrower.feature_dims}
        return narrower, {
            name: np.ascontiguousarray(value[:, : dims[name]]) if name in dims else value
            for name, value in params.items()
        }

    def quantized(
        self, params: Mapping[str, np.ndarray], storage: str
    ) -> tuple[NumpyStatic, dict[str, np.ndarray]]:
        """The encoder and its parameters with fewer bits, see `row_storage.quantized`."""
        smaller = dataclasses.replace(self, storage=storage)
        tables = [
            quantized(table.vectors(), storage_of(storage, kind))
            for kind, table in zip(_TABLES, self.tables(params))
        ]
        rows = [table.rows for table in tables]
        if not smaller._has_narrow_rows:
            rows = [np.concatenate(rows)]
        stored = dict(zip(("rows", "narrow_rows"), rows))
        stored["factor"] = np.concatenate([table.factors for table in tables])
        if self.features:
            stored["feature_keys"] = params["feature_keys"]
        return smaller, stored


def parameters_of_vectors(
    tables: Sequence[np.ndarray], keys: np.ndarray | None
) -> dict[str, np.ndarray]:
    """The float32 parameters with these vectors, of tokens and then of features, weights of 1."""
    params = {} if keys is None else {"feature_keys": keys}
    for kind, rows in zip(_TABLES, tables):
        params |= {_TABLES[kind]: rows, f"{kind}_weight": np.ones(len(rows), np.float32)}
    return params


class FeatureFinder:
    """Finds the features of sentences that have a row, by `keys` [feature_rows] int32.

    These are hashes; `slots` [2**20] int32 is the row of a feature by the lower bits of its hash,
    if its key is the hash. ValueError if a key is no hash, or two of them cannot be told apart.
    """

    def __init__(self, options: StaticOptions, keys: np.ndarray):
        self.features = options.features
        self.keys = keys.astype(np.int32)
        known = np.flatnonzero(self.keys != NO_KEY).astype(np.int32)
        ascends = (np.diff(self.keys[known]) > 0).all() and (
            self.keys[len(known) :] == NO_KEY
        ).all()
        slots = self.keys[known] & (_SLOTS - 1)
        # An empty slot leads to row 0, whose key is another.
        self.slots = np.zeros(_SLOTS, np.int32)
        self.slots[slots] = known
        if not (ascends and (self.slots[slots] == known).all() and (self.keys >= 0).all()):
            raise ValueError("feature_keys: must be different hashes, ascending, from choose_keys")

    def sentence(self, tokens: np.ndarray) -> np.ndarray:
        """The rows of the features of one sentence of [length] int32 tokens; see `window`."""
        if len(tokens) > _SHORT:
            return self.window(tokens, np.array([0, len(tokens)]))[0]
        # Of a few tokens, Python is done before NumPy has begun.
        ids, mask = tokens.tolist(), _SLOTS - 1
        # Python reads a number of a memoryview several times as fast as one of an array.
        keys, slots = memoryview(self.keys), memoryview(self.slots)
        rows = [
            row
            for name in self.features
            for key in _hash_ids(name, ids)
            if keys[row := slots[key & mask]] == key
        ]
        return np.array(rows, np.int32)

    def window(self, tokens: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the features of sentences.

        `tokens` [sum of lengths] int32 are without padding; `offsets` [sentences + 1] int64 say
        where each sentence begins and the last ends. Returns rows [sum of counts] int32, and
        [sentences + 1] int64 likewise.
        """
        lengths = np.diff(offsets)
        sentence = np.repeat(np.arange(len(lengths)), lengths)
        left = np.repeat(offsets[1:], lengths) - np.arange(len(tokens))  # from here to the end
        parts = []
        for name in self.features:
            shifts = FEATURES[name]
            starts = np.flatnonzero(left > shifts[-1])
            hashes = hash_feature(name, [tokens[starts + shift] for shift in shifts])
            hashes = hashes.view(np.int32)
            rows = self.slots[hashes & (_SLOTS - 1)]
            known = self.keys[rows] == hashes
            counts = np.bincount(sentence[starts[known]], minlength=len(lengths))
            parts.append((counts, rows[known]))
        ends = np.zeros_like(offsets)
        np.cumsum(sum(counts for counts, _ in parts), out=ends[1:])
        result = np.empty(ends[-1], np.int32)
        begins = ends[:-1].copy()
        for counts, rows in parts:
            before = np.cumsum(counts) - counts
            result[np.repeat(begins - before, counts) + np.arange(len(rows))] = rows
            begins += counts
        return result, ends


def choose_keys(
    options: StaticOptions, texts: Iterable[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, float]:
    """The hashes of the most frequent features of tokenized text, as for `FeatureFinder.window`.

    Returns keys [feature_rows] float32, ascending, `NO_KEY` for rows without a feature; and of all
    features in the text, the share that has a row.
    """
    counts = np.zeros(NO_KEY, np.int64)
    for tokens, offsets in texts:
        left = np.repeat(offsets[1:], np.diff(offsets)) - np.arange(len(tokens))
        for name in options.features:
            starts = np.flatnonzero(left > FEATURES[name][-1])
            hashes = hash_feature(name, [tokens[starts + shift] for shift in FEATURES[name]])
            counts += np.bincount(hashes, minlength=NO_KEY)
    candidates = np.flatnonzero(counts)
    candidates = candidates[np.argsort(-counts[candidates], kind="stable")]
    first = np.unique(candidates & (_SLOTS - 1), return_index=True)[1]  # the most frequent of each
    chosen = candidates[np.sort(first)[: options.feature_rows]]
    keys = np.full(options.feature_rows, NO_KEY, np.float32)
    keys[: len(chosen)] = np.sort(chosen)
    return keys, float(counts[chosen].sum() / max(counts.sum(), 1))


def hash_feature(name: str, tokens: Sequence[Any]) -> Any:
    """Hashes the tokens of features, one array of ids for each, in order: uint32 below 2**24.

    Multiplications modulo 2**32, of whose bits the upper ones are mixed best. Each kind of feature,
    a key of `FEATURES`, has hashes of its own; arrays are of NumPy or JAX.
    """
    bits = np.uint32(HASH_SEEDS[name])
    for factor, ids in zip(HASH_FACTORS, tokens):
        bits = (bits ^ ids.astype(np.uint32)) * np.uint32(factor)
    return (bits ^ bits >> 15) * np.uint32(LAST_HASH_FACTOR) >> 8


def _hash_ids(name: str, ids: Sequence[int]) -> list[int]:
    """`hash_feature` of all features of a sentence, in Python's integers."""
    # Bits above the mask change none below it, so they are cut only before a shift. One pass over
    # the ids is a quarter faster than one for each token of the feature.
    seed, (one, two, three) = HASH_SEEDS[name], HASH_FACTORS
    others = [ids[shift:] for shift in FEATURES[name][1:]]
    if len(others) == 1:
        hashes = [((seed ^ a) * one ^ b) * two & _MASK for a, b in zip(ids, *others)]
    else:
        hashes = [
            (((seed ^ a) * one ^ b) * two ^ c) * three & _MASK for a, b, c in zip(ids, *others)
        ]
    return [((bits ^ bits >> 15) * LAST_HASH_FACTOR & _MASK) >> 8 for bits in hashes]
