"""Encoders of runs as model directories."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from xling_jax.runs.encoder import encoder_arguments, vocab_arguments
from xling_jax.runs.workdir import open_run

if TYPE_CHECKING:
    from xling_jax.text.vocabularies import Vocabulary


def export_checkpoint(
    workdir: str, step: int, directory: str | Path, *, overwrite: bool = False
) -> None:
    """Writes the encoder of a checkpoint as a model directory.

    Raises:
        ValueError: if the workdir or the checkpoint is damaged.
        OSError: if the workdir lacks a file, or writing fails.
    """
    import jax

    from xling_jax.train.build import VocabFacts, build
    from xling_jax.train.checkpoint import read_params, recorded_dtype
    from xling_jax.train.mesh import make_mesh
    from xling_jax.train.state import sharded_shapes

    config, vocab = open_run(workdir)
    mesh = make_mesh(devices=jax.devices()[:1])  # whatever the run was trained on
    checkpoints = Path(workdir, "checkpoints")
    trained = config.copy_and_resolve_references()
    with trained.unlocked():  # the optimizer's state depends on it, and this may be another device
        trained.compute_dtype = recorded_dtype(checkpoints, step) or config.compute_dtype
    targets = sharded_shapes(mesh, build(trained, VocabFacts.of(vocab)).shapes)
    params = read_params(checkpoints, step, targets, vocab.fingerprint)
    export_encoder(
        config,
        vocab,
        jax.device_get(params["encoder"]),
        directory,
        training={"exported_step": step},
        results={},
        overwrite=overwrite,
    )


def export_encoder(
    config: ConfigDict,
    vocab: Vocabulary,
    params: Any,
    directory: str | os.PathLike,
    *,
    training: Mapping[str, Any],
    results: Mapping[str, float],
    overwrite: bool = False,
) -> None:
    """Writes a trained encoder as a model directory.

    Args:
        config: of its run.
        vocab: of its run.
        params: of the encoder, host arrays.
        directory: where to write.
        training: facts about the run, for the record.
        results: dev metrics.
        overwrite: replace an existing model directory.
    """
    from xling_jax.encode.model_directory import save_model

    family, arguments, limit = encoder_arguments(config)
    begun = {"model_init": str(config.train.model_init)} if config.train.model_init else {}
    rates = {name: rate for name, rate in config.encoder.items() if name.endswith("dropout")}
    save_model(
        directory,
        family=family,
        encoder_args={**vocab_arguments(family, vocab), **arguments},
        params=params,
        vocab=vocab,
        languages=config.languages,
        max_length_tokens=limit,
        training={
            **training,
            **begun,
            "pairs": list(config.data.pairs),
            "objective": config.objective.to_dict(),
            "encoder": rates,
        },
        results=results,
        overwrite=overwrite,
    )
