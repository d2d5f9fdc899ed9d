"""Peaks of devices, and the model FLOPs utilization of an update.

    MFU = FLOPs of forward and backward passes (no recomputation) / (seconds · devices · peak)

Padding counts; without it, the model does about MFU · padding_efficiency of real work.
"""

import dataclasses
import re
from typing import Any

import jax

# Dense peaks of one device in TFLOP/s for products in bfloat16, float16 and float32, from data
# sheets; None where it has no units for them. At JAX's default precision, float32 products are
# computed in bfloat16 on a TPU and in TF32 on NVIDIA GPUs since A100. Products of float16
# are summed in float32, which a Titan does at half its rate.
_PEAKS: dict[str, tuple[float | None, float | None, float]] = {
    "TPU v4": (275, None, 275),
    "TPU v5 lite": (197, None, 197),
    "TPU v5e": (197, None, 197),
    "TPU v5p": (459, None, 459),
    "TPU v5": (459, None, 459),
    "TPU v6 lite": (918, None, 918),
    "A100": (312, 312, 156),
    "H100 PCIe": (756, 756, 378),
    "H100": (989, 989, 495),
    "H200": (989, 989, 495),
    "L4": (121, 121, 60),
    "Tesla T4": (None, 65, 8.1),
    "Tesla V100-SXM2": (None, 125, 15.7),
    "Tesla V100-PCIE": (None, 112, 14),
    "TITAN RTX": (None, 65, 16.3),
}


def peak_flops(device: jax.Device, dtype: str = "float32") -> float:
    """Peak of one device in FLOP/s for products in a dtype, from data sheets; 0 if unknown."""
    column = ("bfloat16", "float16", "float32").index(dtype)
    for name, peaks in _PEAKS.items():
        if re.match(rf"(NVIDIA )?{name}\b", device.device_kind):
            return (peaks[column] or 0) * 1e12
    return 0.0


def without_remat(objective: Any) -> Any:
    """An objective without what the backward pass computes again, for counting FLOPs."""
    model = objective.context.model
    if getattr(model.encoder, "remat", False):
        model = model.clone(encoder=model.encoder.clone(remat=False))
    # Pieces of a batch are encoded again in the backward pass.
    context = dataclasses.replace(objective.context, model=model, encode_chunks=1)
    return dataclasses.replace(objective, context=context)
