"""What a new run is initialized from: features of its text, word vectors, a model."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ml_collections import ConfigDict

from xling_jax.runs.encoder import encoder_arguments
from xling_jax.train.options import COOCCURRENCE

if TYPE_CHECKING:
    from xling_jax.corpora.shards import PairTokens
    from xling_jax.text.vocabularies import Vocabulary

_logger = logging.getLogger(__name__)


def begin_with(config: ConfigDict, vocab: Vocabulary, directory: Path, params: Any) -> Any:
    """Fresh parameters with what the training text and the `train` section put into them."""
    model = None
    if config.train.model_init:
        from xling_jax.encode.model_directory import find_model_directory, load_model

        model_directory = find_model_directory(config.train.model_init)
        model = load_model(model_directory)
        if model.vocab.fingerprint != vocab.fingerprint:
            raise ValueError(
                f"train.model_init: {model_directory} has another vocabulary; give it to "
                "--config.vocab.model and prepare with it"
            )
    if config.encoder.get("features") and not (model and "feature_keys" in model.params):
        from xling_jax.models.registry import build_encoder
        from xling_jax.train.warm_start import put_feature_keys

        family, arguments, _ = encoder_arguments(config)
        form = build_encoder(family, vocab_size=vocab.size, **arguments).form
        tokens = _pair_tokens(config, vocab, directory)
        params, share = put_feature_keys(params, form, tokens)
        _logger.info("%.1f %% of the features in the text have a row", 100 * share)
    if config.train.word_vectors:
        from xling_jax.text.word_vectors import coverage
        from xling_jax.train.warm_start import put_word_vectors

        vectors, found = _word_vectors(config, vocab, directory)
        covered = coverage(vocab.pieces(), found)
        _logger.info(
            "word vectors for %.1f %% of the pieces, %.1f %% of those that are words",
            *(100 * covered["pieces"], 100 * covered["words"]),
        )
        params = put_word_vectors(params, vectors, found)
    if model:
        import jax

        from xling_jax.train.warm_start import put_encoder

        params, taken = put_encoder(params, model.params, vocab.size)
        count = len(jax.tree.leaves(params["encoder"]))
        _logger.info("%d of the encoder's %d arrays are those of %s", taken, count, model_directory)
    return params


def _pair_tokens(config: ConfigDict, vocab: Vocabulary, directory: Path) -> list[PairTokens]:
    """The token shards of each pair of languages."""
    from xling_jax.corpora.shards import PairTokens, pair_name
    from xling_jax.text.languages import parse_pair

    names = sorted({pair_name(*parse_pair(pair, allow_same=True)) for pair in config.data.pairs})
    return [PairTokens(directory / name, vocab.size) for name in names]


def _word_vectors(
    config: ConfigDict, vocab: Vocabulary, directory: Path
) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of `train.word_vectors`, and which pieces have one."""
    from xling_jax.text.vocab import Vocab

    width = config.encoder.get("embedding_width", config.encoder.width)
    if config.train.word_vectors != COOCCURRENCE:
        from xling_jax.text.word_vectors import read_word_vectors

        if not isinstance(vocab, Vocab):
            raise ValueError("train.word_vectors: needs a vocabulary of SentencePiece pieces")
        return read_word_vectors(
            config.train.word_vectors, vocab.pieces(), config.languages, width, vocab.lowercase
        )
    from jax.experimental.multihost_utils import broadcast_one_to_all

    from xling_jax.train.warm_start import cooccurrence_of_pairs

    _logger.info("initial vectors from co-occurrence; two minutes for two million pairs")
    vectors = cooccurrence_of_pairs(_pair_tokens(config, vocab, directory), vocab.size, width)
    # The last bits depend on the machine; all processes must begin with the same.
    vectors = np.asarray(broadcast_one_to_all(vectors))
    return vectors, vectors.any(axis=1)
