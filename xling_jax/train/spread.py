"""`--config NAME:devices=N`: a recipe on N devices, with as few changes to its updates as possible.

A micro-batch is spread over all devices, so a published one may be too small for many.
Micro-batches then grow and an update takes fewer of them; its tokens stay the published ones as
long as one micro-batch is not more than a whole update. What cannot stay is logged: the pairs per
update, and the sentences that negatives are drawn from.
"""

import logging
import math

from xling_jax import options
from xling_jax.train.batches import DataOptions
from xling_jax.train.terms import TERMS

_logger = logging.getLogger(__name__)

_USUAL_LENGTH = 32  # tokens of a usual sentence, to compare numbers of pairs


def spread_over_devices(config: dict, devices: int) -> None:
    """Changes `data` and `mesh` of a complete config, and logs what changes by it.

    The devices are all of `mesh.data` x `mesh.fsdp`; ValueError if `mesh.fsdp` does not divide
    them.
    """
    data, fsdp = config["data"], config["mesh"]["fsdp"]
    if devices % fsdp:
        raise ValueError(f"devices={devices} must be a multiple of mesh.fsdp={fsdp}")
    before = options.make(DataOptions, data, "data")
    if before.batch_size:
        data |= {"batch_size": -(-before.batch_size // devices) * devices}
        data["batch_multiple"] = devices
    else:
        data["batch_multiple"] = multiple = math.lcm(before.batch_multiple, devices)
        # Whole micro-batches are joined, so that their tokens in an update stay the same.
        needed = -(-multiple * before.limit // before.max_tokens)
        steps = before.accumulation_steps
        joined = next((n for n in range(needed, steps + 1) if steps % n == 0), needed)
        data |= {"max_tokens": before.max_tokens * joined}
        data |= {"accumulation_steps": max(1, steps // joined)}
    config["mesh"]["data"] = devices // fsdp
    after = options.make(DataOptions, data, "data")
    then, now = (_usual_pairs(each) for each in (before, after))
    shapes = [f"{d.accumulation_steps} x {d.max_tokens:,}" for d in (after, before)]
    if shapes[0] != shapes[1]:
        line = "devices=%d: %s tokens a side per update, not %s"
        _logger.info(line, devices, *shapes)
    updates = [now * after.accumulation_steps, then * before.accumulation_steps]
    if updates[0] != updates[1]:
        line = "devices=%d: %s pairs per update, not %s (sentences of %d tokens)"
        _logger.info(line, devices, *(f"{n:,}" for n in updates), _USUAL_LENGTH)
    contrasts = [name for name in config["objective"] if name in TERMS and TERMS[name].contrasts]
    if now != then and contrasts:
        line = (
            "devices=%d: negatives of %s come from the %s sentences of a micro-batch, not from %s"
        )
        _logger.info(line, devices, ", ".join(contrasts), f"{now:,}", f"{then:,}")


def _usual_pairs(data: DataOptions) -> int:
    """Rows of a micro-batch of usual sentences."""
    return data.buckets((min(_USUAL_LENGTH, data.limit),))[0].batch_size
