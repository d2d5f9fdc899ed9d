"""`--config NAME:devices=N`: a recipe on N devices, with as few changes to its updates as possible.

A micro-batch is spread over all devices, so a published one may be too small for many.
Micro-batches then grow and an update takes fewer of them; its tokens stay the published ones as
long as one micro-batch is not more than a whole update. What cannot stay is logged: the pairs per
update, and the sentences that negatives are drawn from.
"""

import logging
import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from xling_jax import options
from xling_jax.train.batches import DataOptions
from xling_jax.train.terms import TERMS

_logger = logging.getLogger(__name__)

_USUAL_LENGTH = 32  # tokens of a usual sentence, to compare numbers of pairs


class Update(NamedTuple):
    """How an update is made: the number of `micro_batches`, and of one the `tokens` of a side.

    These include padding; 0 if it has a fixed number of pairs. `pairs` are those of sentences of a
    usual length, and `filled` is the share of `tokens` that rows use, mean over all lengths.
    """

    micro_batches: int
    tokens: int
    pairs: int
    filled: float


def spread_over_devices(config: dict[str, Any], devices: int) -> None:
    """Changes `data` and `mesh` of a complete config, and logs what changes by it.

    The devices are all of `mesh.data` x `mesh.fsdp`; ValueError if `mesh.fsdp` does not divide
    them.
    """
    data, fsdp = config["data"], config["mesh"]["fsdp"]
    if devices % fsdp:
        raise ValueError(f"devices={devices} must be a multiple of mesh.fsdp={fsdp}")
    published = options.make(DataOptions, data, "data")
    if published.batch_size:
        multiple = devices
        data |= {"batch_size": -(-published.batch_size // devices) * devices}
    else:
        multiple = math.lcm(published.batch_multiple, devices)
        # Whole micro-batches are joined, so that their tokens in an update stay the same.
        needed = -(-multiple * published.limit // published.max_tokens)
        steps = published.accumulation_steps
        joined = next((n for n in range(needed, steps + 1) if steps % n == 0), needed)
        data |= {"max_tokens": published.max_tokens * joined}
        data |= {"accumulation_steps": max(1, steps // joined)}
    data["batch_multiple"] = multiple
    config["mesh"]["data"] = devices // fsdp
    before, after = _update(published), _update(options.make(DataOptions, data, "data"))
    for line in _changes(before, after, devices, [*config["objective"]]):
        _logger.info("devices=%d: %s", devices, line)


def _update(data: DataOptions) -> Update:
    buckets = data.buckets(range(3, data.limit + 1))
    usual = next((b for b in buckets if b.length == _USUAL_LENGTH), buckets[-1])
    used = statistics.fmean(b.length * b.batch_size for b in buckets)
    filled = used / data.max_tokens if data.max_tokens else 1.0
    return Update(data.accumulation_steps, data.max_tokens, usual.batch_size, filled)


def _changes(before: Update, after: Update, devices: int, terms: Sequence[str]) -> list[str]:
    """Describes the changes, a line each: the shape of an update, its pairs, the negatives."""
    lines = []
    if after[:2] != before[:2]:
        lines.append(
            f"{after.micro_batches} x {after.tokens:,} tokens a side per update, not "
            f"{before.micro_batches} x {before.tokens:,}: a micro-batch is of one pair of "
            f"languages, and {after.tokens // devices:,} tokens of it are on each device"
        )
    if abs(after.filled - before.filled) > 0.005:
        lines.append(
            f"rows are a multiple of {devices}, so {after.filled:.0%} of these tokens are used, "
            f"not {before.filled:.0%}"
        )
    if (now := after.pairs * after.micro_batches) != (then := before.pairs * before.micro_batches):
        lines.append(
            f"{now:,} pairs per update, not {then:,} (sentences of {_USUAL_LENGTH} tokens)"
        )
    contrasts = [term for term in terms if term in TERMS and TERMS[term].contrasts]
    if after.pairs != before.pairs and contrasts:
        lines.append(
            f"negatives of {', '.join(contrasts)} come from the {after.pairs:,} sentences of a "
            f"micro-batch on all devices, not from {before.pairs:,} (of {_USUAL_LENGTH} tokens)"
        )
    return lines or ["updates are those of the config without devices="]
