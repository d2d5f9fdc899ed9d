"""An encoder as a scikit-learn transformer: texts in, sentence vectors out.

    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from xling_jax.sklearn import SentenceEmbedder

    classifier = make_pipeline(SentenceEmbedder("runs/quickstart"), LogisticRegression())
    classifier.fit(english_texts, labels).predict(german_texts)

Pickles hold the path of the model, never its weights.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from xling_jax.encode.encoder import Encoder
from xling_jax.encode.model_directory import find_model_directory
from xling_jax.options import check_number
from xling_jax.text.splitting import check_texts

__all__ = ["SentenceEmbedder"]

# Models kept in memory, so that the folds of a grid search do not load theirs again and again.
_MODELS_KEPT = 2


class SentenceEmbedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Embeds texts with a frozen encoder; `fit` learns nothing.

    Clones share the model. One that was given as an `Encoder` cannot be pickled.

    Args:
        model: a model directory, a workdir, the name of a packaged encoder, or an `Encoder`.
        normalize: scale every vector to length 1.
        documents: each text is a document; its vector is the mean of its sentences' vectors.
        batch_size: see `Encoder.encode`.
        dtype: see `xling_jax.load`; an `Encoder` keeps its own.
        truncate_dim: keep only the first dimensions of the vectors, see `Encoder.truncated`.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Encoder,
        *,
        normalize: bool = False,
        documents: bool = False,
        batch_size: int | None = None,
        dtype: str | None = None,
        truncate_dim: int | None = None,
    ):
        self.model = model
        self.normalize = normalize
        self.documents = documents
        self.batch_size = batch_size
        self.dtype = dtype
        self.truncate_dim = truncate_dim

    def fit(self, X: Sequence[str], y: Any = None) -> SentenceEmbedder:
        """Checks that the texts are texts and that the model loads; raises as `transform`."""
        _check_texts(X)
        self._encoder()
        check_number(self.batch_size, "batch_size", at_least=1)
        return self

    def transform(self, X: Sequence[str]) -> np.ndarray:
        """Embeds n texts, a list, an array or a column of a data frame, to float32 [n, dim]."""
        texts = _check_texts(X)
        encoder = self._encoder()
        encode = encoder.encode_documents if self.documents else encoder.encode
        return encode(texts, batch_size=self.batch_size, normalize=self.normalize)

    def _encoder(self) -> Encoder:
        encoder = self.model
        if isinstance(encoder, (str, os.PathLike)):
            directory = find_model_directory(encoder)
            # A model that is trained again must not be answered from memory.
            changed = max((file.stat().st_mtime_ns for file in directory.iterdir()), default=0)
            encoder = _load(os.path.abspath(directory), changed, self.dtype)
        elif not hasattr(encoder, "encode_documents"):
            raise ValueError(f"model must be a name, a path or an Encoder; got {encoder!r:.40}")
        return encoder if self.truncate_dim is None else encoder.truncated(self.truncate_dim)

    @property
    def _n_features_out(self) -> int:
        return self._encoder().dim

    def __sklearn_clone__(self) -> SentenceEmbedder:
        # scikit-learn would copy the weights of an `Encoder`, which nothing ever changes.
        return type(self)(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        return tags

    def __getstate__(self) -> dict[str, Any]:
        if not isinstance(self.model, (str, os.PathLike)):
            raise ValueError(
                "a SentenceEmbedder is pickled as the path of its model; "
                f"found an {type(self.model).__name__}; give the path as model"
            )
        return super().__getstate__()


def _check_texts(texts: Any) -> list[str]:
    """The texts as a list of strings."""
    if isinstance(texts, Iterator):
        raise ValueError(f"X must be a list of texts, which can be read twice; got {texts!r:.40}")
    return check_texts(texts, "X")


@functools.lru_cache(maxsize=_MODELS_KEPT)
def _load(directory: str, changed: int, dtype: str | None) -> Encoder:
    """The model of a directory, in the state of the time `changed`."""
    del changed
    return Encoder.from_directory(directory, dtype)
