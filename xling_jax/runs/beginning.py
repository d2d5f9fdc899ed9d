"""The initial parameters of a new run: from features of its text, word vectors, a model."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.multihost_utils import broadcast_one_to_all

from xling_jax.corpora.shards import PairTokens
from xling_jax.corpora.specs import local_name
from xling_jax.encode.model_directory import ModelSpec, find_model_directory, load_model
from xling_jax.options import OptionError, require_file, wrong_use
from xling_jax.text.vocab import Vocab
from xling_jax.text.vocabularies import Vocabulary
from xling_jax.text.word_vectors import coverage, read_word_vectors
from xling_jax.train.experiment import Experiment
from xling_jax.train.options import COOCCURRENCE

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Beginning:
    """The initial parameters of a new run, from `train.model_init` and `train.word_vectors`.

    Both are on this machine; the model directory is None without one.
    """

    experiment: Experiment
    model_directory: Path | None
    word_vectors: str

    @classmethod
    def of(cls, experiment: Experiment) -> Beginning:
        """Copies what the experiment names at URLs here; OptionError for what is missing."""
        train, vectors, directory = experiment.train, experiment.train.word_vectors, None
        if vectors not in ("", COOCCURRENCE):
            vectors = local_name(vectors)
            require_file(vectors, "--config.train.word_vectors")
        if train.model_init and vectors:
            raise OptionError(
                f"--config.train.word_vectors {train.word_vectors}: the vectors of "
                "train.model_init would replace them; leave one of the two empty"
            )
        if train.model_init:
            with wrong_use("--config.train.model_init"):
                directory = find_model_directory(local_name(train.model_init))
        return cls(experiment, directory, vectors)

    def __call__(self, vocab: Vocabulary, data: Path, params: Any) -> Any:
        """Fresh parameters with what the training text and the `train` section put into them."""
        from xling_jax.train import warm_start  # with scikit-learn, which takes a second

        model = self._model(vocab) if self.model_directory else None
        names = self.experiment.preparation.pairs
        # Opened only where they are read: that checks their hashes.
        pairs = lambda: [PairTokens(data / name, vocab.size) for name in names]
        encoder = self.experiment.model.encoder
        if getattr(encoder, "features", 0) and not (model and "feature_keys" in model.params):
            encoder = encoder.clone(vocab_size=vocab.size)
            params, share = warm_start.put_feature_keys(params, encoder, pairs())
            _logger.info("%.1f %% of the features in the text have a row", 100 * share)
        if self.word_vectors:
            vectors, found = self._word_vectors(vocab, pairs)
            covered = coverage(vocab.pieces(), found)
            _logger.info(
                "word vectors for %.1f %% of the pieces, %.1f %% of those that are words",
                *(100 * covered["pieces"], 100 * covered["words"]),
            )
            params = warm_start.put_word_vectors(params, vectors, found)
        if model:
            trained = model.params
            if vocab.size > model.vocab.size:
                trained = warm_start.add_rows(trained, model.vocab, vocab, pairs())
            params, taken = warm_start.put_encoder(params, trained, vocab.size)
            count = len(jax.tree.leaves(params["encoder"]))
            line = "%d of the encoder's %d arrays taken from %s"
            _logger.info(line, taken, count, self.model_directory)
        return params

    def _model(self, vocab: Vocabulary) -> ModelSpec:
        """The model to begin with; ValueError unless the vocabulary is its own or extends it."""
        model, options = load_model(self.model_directory), self.experiment.preparation.vocab
        size = model.vocab.size
        extends = options.extend and options.size == size < vocab.size
        if model.vocab.fingerprint != vocab.fingerprint and not (
            extends and vocab.pieces()[:size] == model.vocab.pieces()
        ):
            raise ValueError(
                f"train.model_init: {self.model_directory} has another vocabulary; give it to "
                "--config.vocab.model and prepare with it"
            )
        default = model.prompts.get(model.default_prompt, "")
        if default != (prompt := self.experiment.data.prompt):
            _logger.warning(
                "%s: data.prompt=%r replaces its default prompt %r in training and export",
                *(self.model_directory, prompt, default),
            )
        return model

    def _word_vectors(
        self, vocab: Vocabulary, pairs: Callable[[], list[PairTokens]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The vectors of `train.word_vectors`, and which pieces have one."""
        encoder, languages = self.experiment.model.encoder, self.experiment.languages
        width = getattr(encoder, "embedding_width", encoder.width)
        if self.word_vectors != COOCCURRENCE:
            if not isinstance(vocab, Vocab):
                raise ValueError("train.word_vectors: needs a vocabulary of SentencePiece pieces")
            given = self.word_vectors, vocab.pieces(), languages, width, vocab.lowercase
            return read_word_vectors(*given)
        from xling_jax.train.warm_start import cooccurrence_of_pairs

        _logger.info("initial vectors from co-occurrence; two minutes for two million pairs")
        vectors = cooccurrence_of_pairs(pairs(), vocab.size, width)
        # The last bits depend on the machine; all processes must begin with the same.
        vectors = np.asarray(broadcast_one_to_all(vectors))
        return vectors, vectors.any(axis=1)
