"""LAWDR (Gong et al. 2021): document vectors from sentence vectors of a frozen encoder.

The sentences of a language determine which components identify it (`debias`) and which sentences
carry little meaning (`density`). Document vectors of several languages, each from its
own estimator, are then comparable.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from scipy import sparse

from xling_jax.align.rows import BLOCK_ROWS, Report, as_embeddings, row_blocks
from xling_jax.documents import debias
from xling_jax.documents.density import TophatDensity, check_bandwidth, sentence_weights
from xling_jax.files.whole import write_whole
from xling_jax.options import check_values
from xling_jax.registry import check_choice

WEIGHTINGS = ("kde", "none")
_FORMAT = "xling_jax.lawdr/1"
_DENSITY = {"mean": "mean", "axes": "axes", "points": "points", "counts": "fitted_counts"}


@dataclasses.dataclass(kw_only=True, eq=False)
class Lawdr:
    """Makes document vectors of one language.

        lawdr = Lawdr(rank=64).fit(vectors)
        documents = lawdr.transform(vectors, offsets)

    With weighting "kde", v_d = sum of w_s (v_s - U U^T v_s) over the sentences of a document, with
    w_s = b / (b + P(s)); with "none", the mean of v_s - U U^T v_s.

    Attributes:
        rank: components of the language to remove; None for no debiasing. The paper: 64 for
            mBERT, 32 for XLM, 256 for XLM-R; `debias.choose_rank` finds it for other encoders.
        center: subtract the mean vector too, see `debias.language_components`.
        weighting: "kde", the sum of sentences weighted by density; or "none", their mean.
        density_dim: number of principal components that the density is computed on.
        bandwidth: of the density; None to choose it by cross-validation.
        seed: of the cross-validation.

    Raises:
        ValueError: if an option is out of range.
    """

    rank: int | None = 64
    center: bool = False
    weighting: str = "kde"
    density_dim: int = 16
    bandwidth: float | None = None
    seed: int = 0

    def __post_init__(self):
        check_values(self)
        if self.rank is not None and self.rank < 1:
            raise ValueError(f"rank must be at least 1, or None for no debiasing; got {self.rank}")
        if self.center and self.rank is None:
            raise ValueError("center=True is part of debiasing; set rank as well")
        check_choice("weighting", self.weighting, WEIGHTINGS)
        if self.density_dim < 1:
            raise ValueError(f"density_dim must be at least 1; got {self.density_dim}")
        check_bandwidth(self.bandwidth)
        self.dim: int | None = None
        self.num_sentences = 0
        self.mean: np.ndarray | None = None
        self.components: np.ndarray | None = None
        self.density: TophatDensity | None = None

    @property
    def options(self) -> dict[str, bool | int | float | str | None]:
        """Values of the attributes by name."""
        return dataclasses.asdict(self)

    def fit(self, vectors: np.ndarray, report: Report | None = None) -> Lawdr:
        """Fits components and density to all sentences of a language; returns the estimator.

        Args:
            vectors: [n, dim] of any real number type; may be memory-mapped.
            report: called with the work done and the total while neighbors are counted, by far the
                longest step.

        Raises:
            ValueError: if there are no sentences, a value is not finite, or `rank` is so high that
                nothing would be left.
        """
        vectors = as_embeddings(vectors, "vectors")
        statistics = debias.gram_matrix(vectors)
        components, mean, density = None, None, None
        if self.rank is not None:
            components = debias.language_components(statistics, self.rank, self.center)
            mean = statistics.mean.astype(np.float32) if self.center else None
        if self.weighting == "kde":
            density = TophatDensity.fit(
                vectors,
                statistics,
                self.density_dim,
                self.bandwidth,
                self.seed,
                report,
            )
        # Assigned at the end, so that a failed fit changes nothing.
        self.components = None if components is None else components.astype(np.float32)
        self.mean, self.density = mean, density
        self.dim, self.num_sentences = vectors.shape[1], len(vectors)
        return self

    def transform(self, vectors: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Makes document vectors.

        Args:
            vectors: [n, dim], sentences in the order of their documents: the fitted ones, whose
                densities are known, or others. May be memory-mapped; read block by block.
            offsets: [docs + 1] int: document i holds the sentences offsets[i] to
                offsets[i + 1] - 1.

        Returns:
            [docs, dim] float32, not normalized; zero for a document without sentences.

        Raises:
            ValueError: if not fitted, shapes or offsets do not fit, or a value is not finite.
        """
        offsets = checked_offsets(offsets, len(vectors))
        weights = self.weights(vectors)
        if self.density is None:
            weights = None  # the mean
        documents = document_vectors(vectors, offsets, weights)
        if self.components is None:
            return documents
        # The projection is linear, and there are fewer documents than sentences.
        if weights is None:
            shares = (np.diff(offsets) > 0).astype(np.float64)
        else:
            shares = np.diff(np.concatenate([[0], np.cumsum(weights)])[offsets])
        for start in range(0, len(documents), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            if self.mean is not None:
                documents[rows] -= shares[rows, None].astype(np.float32) * self.mean
            documents[rows] = debias.remove_components(documents[rows], self.components)
        return documents

    def weights(self, vectors: np.ndarray) -> np.ndarray:
        """Weights [n] of sentences by their density among the fitted ones; all 1 with "none".

        float64 in (0, 1], 1/3 at the mean density of the fitted sentences. Arguments and errors as
        `transform`.
        """
        self._check_fitted()
        vectors = as_embeddings(vectors, "vectors", self.dim)
        if self.density is None:
            return np.ones(len(vectors))
        counts = self.density.counts(vectors)
        return sentence_weights(counts, float(self.density.fitted_counts.mean()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one safetensors file with the options as JSON in its header.

        The components take 4 bytes x dim x rank; with "kde", every fitted sentence takes 72 bytes
        (at 16 principal components), because densities are counts among them.

        Raises:
            ValueError: if the estimator is not fitted.
        """
        tensors, facts = self.state()
        write_whole(path, save(tensors, {"format": _FORMAT, "lawdr": json.dumps(facts)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Lawdr:
        """Reads a file written by `save`; executes nothing, and gives the same bits as saved.

        Raises:
            ValueError, OSError: if the file is damaged, holds something else, or cannot be read.
        """
        with reading_tensors(path, _FORMAT, "LAWDR estimator") as (tensors, metadata):
            return cls.from_state(tensors, json.loads(metadata["lawdr"]))

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Returns what a file holds: arrays by name; options and counts as plain values.

        Raises:
            ValueError: if the estimator is not fitted.
        """
        self._check_fitted()
        tensors = {"mean": self.mean, "components": self.components}
        facts = {"settings": self.options, "dim": self.dim, "num_sentences": self.num_sentences}
        if self.density is not None:
            facts["density"] = {"bandwidth": self.density.bandwidth}
            tensors |= {f"density.{k}": getattr(self.density, v) for k, v in _DENSITY.items()}
        return {k: np.ascontiguousarray(v) for k, v in tensors.items() if v is not None}, facts

    @classmethod
    def from_state(cls, tensors: dict[str, np.ndarray], facts: dict[str, Any]) -> Lawdr:
        """The estimator of a `state`.

        Raises:
            ValueError, TypeError, KeyError: if it is not one.
        """
        # Once an option, "raw" unless somebody asked for the other.
        if facts["settings"].pop("density_on", "raw") != "raw":
            raise ValueError("its densities are of debiased vectors; fit it again")
        lawdr = cls(**facts["settings"])
        lawdr.dim, lawdr.num_sentences = int(facts["dim"]), int(facts["num_sentences"])
        lawdr._check_tensors(tensors)
        lawdr.mean, lawdr.components = tensors.get("mean"), tensors.get("components")
        if lawdr.weighting == "kde":
            parts = {v: tensors[f"density.{k}"] for k, v in _DENSITY.items()}
            bandwidth = float(facts["density"]["bandwidth"])
            lawdr.density = TophatDensity(bandwidth=bandwidth, **parts)
        return lawdr

    def _check_tensors(self, tensors: dict[str, np.ndarray]) -> None:
        """Raises ValueError unless names, types and shapes are those that the options imply."""
        shapes: dict[str, tuple] = {}
        if self.rank is not None:
            shapes["components"] = (self.dim, self.rank)
        if self.center:
            shapes["mean"] = (self.dim,)
        if self.weighting == "kde":
            n, axes = (
                self.num_sentences,
                debias.num_axes(self.density_dim, self.dim, self.num_sentences),
            )
            sizes = {"mean": (self.dim,), "axes": (self.dim, axes), "points": (n, axes)}
            shapes |= {f"density.{k}": v for k, v in (sizes | {"counts": (n,)}).items()}
        if tensors.keys() != shapes.keys():
            raise ValueError(f"tensors must be {sorted(shapes)}; found {sorted(tensors)}")
        for name, tensor in tensors.items():
            dtype = np.int64 if name == "density.counts" else np.float32
            if tensor.shape != shapes[name] or tensor.dtype != dtype:
                found = f"{tensor.dtype} {tensor.shape}"
                raise ValueError(f"{name} must be {np.dtype(dtype)} {shapes[name]}; found {found}")

    def _check_fitted(self) -> None:
        if self.dim is None:
            raise ValueError("this Lawdr is not fitted; call fit(vectors) first")


def document_vectors(
    vectors: np.ndarray, offsets: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Sums or averages the sentence vectors of each document.

    Reads the vectors once, block by block, and sums in float64.

    Args:
        vectors: [n, dim], sentences in the order of their documents; may be memory-mapped.
        offsets: [docs + 1] int, from 0 to n: document i holds the sentences offsets[i] to
            offsets[i + 1] - 1.
        weights: [n]; None for the mean.

    Returns:
        [docs, dim] float32: the weighted sum, undivided, or the mean; zero without sentences.

    Raises:
        ValueError: if shapes or offsets do not fit, or a vector is not finite.
    """
    vectors = as_embeddings(vectors, "vectors")
    offsets = checked_offsets(offsets, len(vectors))
    if weights is None:
        # Divided first, so that no large sum is rounded to float32.
        lengths = np.diff(offsets)
        weights = np.repeat(1 / np.maximum(lengths, 1), lengths)
    weights = np.asarray(weights, np.float64)
    if weights.shape != (len(vectors),):
        raise ValueError(f"weights must have shape ({len(vectors)},); got {weights.shape}")
    documents = np.zeros((len(offsets) - 1, vectors.shape[1]), np.float32)
    for rows, block in row_blocks(vectors):
        first = np.searchsorted(offsets, rows.start, side="right") - 1
        last = np.searchsorted(offsets, rows.stop, side="left")
        starts = np.clip(offsets[first : last + 1], rows.start, rows.stop) - rows.start
        matrix = sparse.csr_array(
            (weights[rows], np.arange(len(block)), starts), shape=(last - first, len(block))
        )
        documents[first:last] += matrix @ block.astype(np.float64)
    return documents


def checked_offsets(offsets: np.ndarray, num_sentences: int) -> np.ndarray:
    """Returns offsets [docs + 1] as int64; ValueError unless they rise from 0 to the number."""
    offsets = np.asarray(offsets)
    if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu":
        given = f"{offsets.dtype} {offsets.shape}"
        raise ValueError(f"offsets must be integers of shape [docs + 1]; got {given}")
    offsets = offsets.astype(np.int64)
    decreasing = (np.diff(offsets) < 0).any()
    if offsets[0] != 0 or offsets[-1] != num_sentences or decreasing:
        raise ValueError(
            f"offsets must increase from 0 to the number of sentences, {num_sentences}; got "
            f"{offsets[0]} to {offsets[-1]}{', decreasing' if decreasing else ''}"
        )
    return offsets


@contextlib.contextmanager
def reading_tensors(
    path: str | os.PathLike[str], format: str, what: str
) -> Iterator[tuple[dict[str, np.ndarray], dict[str, str]]]:
    """Gives the tensors and the header of a safetensors file of a format.

    Raises:
        ValueError: if it is damaged or of another format, or the block raises ValueError, TypeError
            or KeyError; says that the file is not `what`.
        OSError: if it cannot be read.
    """
    with open(path, "rb"):  # the errors of safetensors do not name the file
        pass
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != format:
                raise ValueError(f"it holds {metadata.get('format', 'something else')!r}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        yield tensors, metadata
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: not a {what} of this version: {error}") from error
