"""LoRA adapters (Hu et al., 2021) of the `peft` library, added to the weights they were made for.

    adapter_config.json          ranks, scales, and the name of the base model
    adapter_model.safetensors    two factors for each matrix

W ← W + s B A, where s is α / r, or α / √r with `use_rslora`. Other kinds of adapters are refused.
"""

import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_jax.formats.huggingface_config import CONFIG_FILE, read_settings, read_size
from xling_jax.formats.huggingface_tensors import Tensors

ADAPTER_FILE = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_PREFIX = "base_model.model."
_MODEL_PREFIXES = ("bert.", "roberta.", "distilbert.", "mpnet.", "transformer.", "model.")

# Key of adapter_config.json -> its supported values, or nothing if it is read below or does not
# change the merged weights. Other keys must be null, false or empty.
_KEYS: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    # Other ways to begin change the weights of the base.
    "init_lora_weights": (True, False, "gaussian", "orthogonal", "eva", None),
    **dict.fromkeys(("r", "lora_alpha", "use_rslora", "base_model_name_or_path", "revision"), ()),
    **dict.fromkeys(("target_modules", "exclude_modules", "layers_to_transform"), ()),
    **dict.fromkeys(("layers_pattern", "task_type", "inference_mode", "lora_dropout"), ()),
    **dict.fromkeys(("peft_version", "auto_mapping", "megatron_config", "megatron_core"), ()),
    **dict.fromkeys(("eva_config", "runtime_config", "qalora_group_size"), ()),
}


class Adapter(NamedTuple):
    """An adapter and where its base is.

    Attributes:
        base: directory of the model that it was made for.
        factors: name of a matrix, without `.weight` -> B [outputs, rank] and A [rank, inputs].
        scale: of their product.
    """

    base: Path
    factors: dict[str, tuple[np.ndarray, np.ndarray]]
    scale: float

    def apply(self, tensors: Tensors) -> None:
        """Adds the products to the matrices of the base, when these are read.

        Raises:
            ValueError: if the base lacks one of them.
        """
        added = {}
        for name, factors in self.factors.items():
            names = (name, *(name.removeprefix(prefix) for prefix in _MODEL_PREFIXES))
            names += tuple(f"{prefix}{name}" for prefix in _MODEL_PREFIXES)
            found = next((f"{n}.weight" for n in names if f"{n}.weight" in tensors.names), None)
            if found is None:
                raise ValueError(
                    f"{tensors.path}: has no {name}.weight, for which the adapter is; it is not "
                    "the base of the adapter"
                )
            added[found] = factors
        tensors.added = {name: (b, self.scale * a) for name, (b, a) in added.items()}


def read_adapter(directory: Path, base: str | os.PathLike[str] | None) -> Adapter | None:
    """Reads the adapter in a directory; None if there is none.

    Args:
        directory: of the adapter.
        base: of the model that it was made for; None looks where the adapter says.

    Raises:
        ValueError: if a file is broken, the adapter is of another kind, or its base is not here.
    """
    path = directory / ADAPTER_FILE
    if not path.is_file():
        if base is not None:
            raise ValueError(f"base={os.fspath(base)!r}: {directory} has no {ADAPTER_FILE}")
        return None
    settings = read_settings(path)
    for key, value in settings.items():
        known = _KEYS.get(key, (None, False, [], {}, ""))
        if known and value not in known:
            wanted = repr(known[0]) if key in _KEYS else "null or false"
            raise ValueError(f"{path}: {key} must be {wanted}; found {value!r:.60}")
    rank, alpha = read_size(path, settings, "r"), settings.get("lora_alpha")
    if type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise ValueError(f"{path}: lora_alpha must be a number; found {alpha!r:.60}")
    named = str(settings.get("base_model_name_or_path"))
    found = Path(base) if base is not None else Path(named)
    if not (found / CONFIG_FILE).is_file():
        raise ValueError(
            f"{path}: is an adapter of {named:.80}, which is no model directory here; get it and "
            "name its directory with --base"
        )
    weights = next((directory / name for name in _WEIGHTS if (directory / name).is_file()), None)
    tensors = Tensors(directory, weights or directory / _WEIGHTS[0])
    factors: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name in sorted(tensors.names):
        matrix, _, factor = name.removeprefix(_PREFIX).rpartition(".lora_")
        if factor not in ("A.weight", "B.weight"):
            raise ValueError(f"{tensors.path}: tensor {name:.80} is not of LoRA's two factors")
        if factor == "A.weight":
            second = name.removesuffix("A.weight") + "B.weight"
            factors[matrix] = (tensors.table(second), tensors.table(name))
            if factors[matrix][0].shape[1:] != (rank,) or len(factors[matrix][1]) != rank:
                raise ValueError(f"{tensors.path}: tensor {name:.80} must have rank {rank}")
    scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    return Adapter(found, factors, scale)
