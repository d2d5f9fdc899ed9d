"""A LASER encoder as the files of LASER's own code: the inverse of `convert.laser_checkpoint`.

encoder.pt                      params, model and dictionary
encoder.spm                     SentencePiece model, or
encoder.fcodes, encoder.fvocab  of fastBPE
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from xling_jax.encode.model_directory import ModelSpec, load_model
from xling_jax.formats.output import export_directory
from xling_jax.formats.torch_file import import_torch
from xling_jax.text.laser_vocab import CODES_FILE, VOCABULARY_FILE, LaserVocab
from xling_jax.text.vocab import SENTENCEPIECE_FILE

CHECKPOINT_FILE = "encoder.pt"

_SUFFIXES = {SENTENCEPIECE_FILE: ".spm", CODES_FILE: ".fcodes", VOCABULARY_FILE: ".fvocab"}


def export_laser(
    model_directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes an encoder as the checkpoint and vocabulary files of LASER.

    Args:
        model_directory: of the encoder.
        output: the directory to write.
        overwrite: replace an earlier export.

    Returns:
        Facts: `files`.

    Raises:
        ImportError: without PyTorch.
        ValueError: if the model is broken, or LASER's code would compute other vectors.
        OSError: if a file cannot be written.
    """
    spec = load_model(model_directory)
    _check(spec, os.fspath(model_directory))
    torch = import_torch("--to laser writes a PyTorch file, which")
    module, params = spec.module, spec.params
    tensors = {"embed_tokens.weight": params["embedding"]}
    bidirectional = module.unidirectional_layers == 0
    for number in range(module.layers):
        layer = params[f"layers_{number}"]
        for place, suffix in enumerate(("", "_reverse")[: 1 + bidirectional]):
            end = f"_l{number}{suffix}"
            tensors[f"lstm.weight_ih{end}"] = layer["input_kernel"][place].T
            tensors[f"lstm.weight_hh{end}"] = layer["recurrent_kernel"][place].T
            bias, second = layer["bias"][place], layer.get("recurrent_bias")
            tensors[f"lstm.bias_ih{end}"] = bias
            tensors[f"lstm.bias_hh{end}"] = bias * 0 if second is None else second[place]
    state = {
        "params": {
            "num_embeddings": len(params["embedding"]),
            "padding_idx": module.pad_id,
            "embed_dim": module.embedding_width,
            "hidden_size": module.width // (1 + bidirectional),
            "num_layers": module.layers,
            "bidirectional": bidirectional,
        },
        "model": {
            name: torch.from_numpy(np.array(value, np.float32, order="C"))
            for name, value in tensors.items()
        },
        "dictionary": dict(spec.vocab.dictionary),
    }
    with export_directory(output, CHECKPOINT_FILE, overwrite) as fresh:
        torch.save(state, fresh / CHECKPOINT_FILE)
        for name, suffix in _SUFFIXES.items():
            if name in spec.vocab.files:
                path = (fresh / CHECKPOINT_FILE).with_suffix(suffix)
                path.write_bytes(spec.vocab.files[name])
        files = sorted(path.name for path in fresh.iterdir())
    return {"files": files}


def _check(spec: ModelSpec, where: str) -> None:
    """Raises ValueError for an encoder that LASER's code has no form for."""
    family = spec.config["family"]
    if family != "laser":
        raise ValueError(f"{where}: is of family {family}; --to laser writes those of family laser")
    if not isinstance(spec.vocab, LaserVocab):
        raise ValueError(
            f"{where}: LASER's code prepares text in its own way and looks pieces up in its own "
            "dictionary, which gives other tokens than this vocabulary; use --to onnx"
        )
    if spec.truncate_dim is not None:
        raise ValueError(
            f"{where}: keeps truncate_dim={spec.truncate_dim} dimensions, and LASER's code keeps "
            "all; use --to onnx"
        )
    if prompt := spec.prompts.get(spec.default_prompt):
        raise ValueError(
            f"{where}: puts {prompt!r:.60} in front of a text, and LASER's code has no prompts; "
            "use --to onnx"
        )
    module = spec.module
    if module.pooling != "max":
        raise ValueError(
            f"{where}: encoder.pooling={module.pooling!r} must be 'max', LASER's only one; use "
            "--to onnx"
        )
    if module.unidirectional_layers not in (0, module.layers):
        raise ValueError(
            f"{where}: encoder.unidirectional_layers={module.unidirectional_layers} of "
            f"{module.layers}: LASER's layers are all bidirectional or none is; use --to onnx"
        )
