"""The encoder of a run: without parameters for evaluation, with them as a model directory."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xling_jax import options
from xling_jax.corpora.specs import local_name
from xling_jax.encode.encoder import Encoder
from xling_jax.encode.model_card import LICENSE
from xling_jax.encode.model_directory import find_model_directory, read_config, save_model
from xling_jax.runs.workdir import open_run
from xling_jax.text.vocabularies import Vocabulary

if TYPE_CHECKING:
    from xling_jax.train.experiment import Experiment


def vocab_arguments(family: str, vocab: Vocabulary) -> dict[str, int]:
    """Constructor arguments that the vocabulary gives: its size, and padding if not as usual."""
    from xling_jax.models.registry import ENCODERS

    usual = options.defaults(ENCODERS[family])["pad_id"]
    padding = {} if vocab.pad_id == usual else {"pad_id": vocab.pad_id}
    return {"vocab_size": vocab.size, **padding}


def make_encoder(experiment: Experiment, vocab: Vocabulary) -> Encoder:
    """The encoder to measure while training, without parameters."""
    from xling_jax.encode.jax_backend import JaxBackend
    from xling_jax.models.registry import build_encoder

    family = experiment.family
    arguments = {**vocab_arguments(family, vocab), **experiment.encoder_arguments}
    module = build_encoder(family, **arguments)
    return Encoder(
        JaxBackend(module, {}, vocab.pad_id),
        vocab,
        specials=module.specials,
        max_length_tokens=experiment.max_length_tokens,
        languages=experiment.languages,
        fingerprint="",
        dim=module.dim,
    ).with_prompt(experiment.data.prompt)


def export_checkpoint(
    workdir: str, step: int, directory: str | Path, *, overwrite: bool = False
) -> None:
    """Writes the encoder of a checkpoint as a model directory; ValueError if it is damaged."""
    import jax

    from xling_jax.sharding import make_mesh
    from xling_jax.train.checkpoint import read_params, recorded_dtype
    from xling_jax.train.lora import merged
    from xling_jax.train.step import sharded_shapes
    from xling_jax.train.training import VocabFacts, resolve

    experiment, vocab = open_run(workdir)
    mesh = make_mesh(devices=jax.devices()[:1])  # whatever the run was trained on
    checkpoints = Path(workdir, "checkpoints")
    # The optimizer's state depends on it, and this may be another device.
    dtype = recorded_dtype(checkpoints, step) or experiment.compute_dtype
    trained = dataclasses.replace(experiment, compute_dtype=dtype)
    training = resolve(trained, VocabFacts.of(vocab))
    targets = sharded_shapes(mesh, training.shapes)
    params = read_params(checkpoints, step, targets, vocab.fingerprint)
    export_encoder(
        experiment,
        vocab,
        jax.device_get(merged(params)["encoder"]),
        directory,
        training={"exported_step": step},
        results={},
        overwrite=overwrite,
    )


def export_encoder(
    experiment: Experiment,
    vocab: Vocabulary,
    params: Any,
    directory: str | os.PathLike,
    *,
    training: Mapping[str, Any],
    results: Mapping[str, float],
    overwrite: bool = False,
) -> None:
    """Writes a trained encoder as a model directory; `results` are dev metrics.

    `params` are host arrays; `training` has facts about the run, for the record.
    """
    family, config = experiment.family, experiment.config
    begun = experiment.train.model_init
    use, origin = _of_beginning(begun, experiment.model.encoder.dim, experiment.data.prompt)
    rates = {name: rate for name, rate in config["encoder"].items() if name.endswith("dropout")}
    save_model(
        directory,
        family=family,
        encoder_args={**vocab_arguments(family, vocab), **experiment.encoder_arguments},
        params=params,
        vocab=vocab,
        languages=experiment.languages,
        max_length_tokens=experiment.max_length_tokens,
        **use,
        training={
            **origin,
            **training,
            **({"model_init": begun} if begun else {}),
            "pairs": list(experiment.data.pairs),
            "objective": config["objective"],
            "encoder": rates,
        },
        results=results,
        overwrite=overwrite,
    )


def _of_beginning(model: str, dim: int, prompt: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is kept of the model that a run began with: prompts and width, and its origin.

    Both are empty where there is none, or it is gone, but for the prompt of training.
    """
    recorded: dict[str, Any] = {}
    if model:
        with contextlib.suppress(OSError, ValueError):
            recorded = read_config(find_model_directory(local_name(model)))
    prompts, dim_kept = recorded.get("prompts") or {}, recorded.get("truncate_dim")
    if prompt and prompt not in prompts.values():
        prompts = {**prompts, "training": prompt}
    default = recorded.get("default_prompt")
    if prompts.get(default, "") != prompt:
        default = next((name for name, text in prompts.items() if text == prompt), None)
    use = {
        "prompts": prompts,
        "default_prompt": default,
        "truncate_dim": dim_kept if dim_kept and dim_kept < dim else None,
    }
    before = recorded.get("training") or {}
    return use, {name: before[name] for name in ("source", *LICENSE) if name in before}
