"""Losses and sums of table rows, split over eight devices: what one computes."""

import functools
import json
import re

import jax
import numpy as np
import pytest

from tests.losses import test_contrastive as contrastive
from tests.losses import test_token_distribution as distribution
from tests.models import test_weighted_bag as bag
from xling_jax.losses.contrastive import equal_sentences


@pytest.mark.slow
def test_eight_devices_compute_what_one_does(output_of):
    facts = json.loads(output_of("-m", "tests.losses.test_eight_devices"))
    # Not once a position, in the loop: that would be a whole table for every token.
    assert facts.pop("all_reduces") == [["ENTRY"]]
    assert facts.pop("equal_sentences") and not facts.pop("loops") and facts.pop("masked") == 0
    assert max(facts.values()) < 1e-5


def difference(function, arrays, split):
    """The largest one between results on one device and on eight, relative to large values."""
    pairs = zip(*(jax.tree.leaves(jax.device_get(function(*each))) for each in (arrays, split)))
    relative = lambda a, b: (
        np.abs(np.subtract(a, b, dtype=np.float64)).max() / max(np.abs(a).max(), 1)
    )
    return max(float(relative(*pair)) for pair in pairs)


def print_facts():
    """Differences by name, and where devices add up the gradient of a table, as JSON."""
    jax.config.update("jax_num_cpu_devices", 8)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    everywhere, rows = jax.NamedSharding(mesh, jax.P()), jax.NamedSharding(mesh, jax.P("data"))
    split = functools.partial(jax.device_put, device=rows)
    assert len(split(np.zeros(8)).sharding.device_set) == 8

    arrays = [array.astype(np.float32) for array in contrastive.draw_embeddings()]
    arrays.append(contrastive.VALID)
    facts = {"contrastive": difference(contrastive.compute, arrays, [*map(split, arrays)])}
    tokens = np.random.default_rng(0).integers(0, 2, (2, contrastive.BATCH, 2))
    equal = jax.jit(functools.partial(equal_sentences, pad_id=0))
    facts["equal_sentences"] = bool((equal(*tokens) == equal(*map(split, tokens))).all())
    # One column at a time, devices would exchange all rows once a column.
    facts["loops"] = " while(" in equal.lower(*map(split, tokens)).compile().as_text()

    pairs = distribution.SOURCE[:8], distribution.TARGET[:8]
    facts["masked"] = difference(distribution.mask_pairs, pairs, [*map(split, pairs)])
    hidden, table, ids, label_weights, bias = arrays = distribution.draw_arrays(16)
    of_rows = [*map(split, (hidden, ids, label_weights))]
    on_eight = (of_rows[0], table, *of_rows[1:], bias)
    # Whole, and in two chunks, of a row from each device.
    for limit in (0, 8 * distribution.ROWS):
        loss = distribution.with_gradients(**({"max_logits": limit} if limit else {}))
        facts[f"distribution {limit}"] = difference(loss, arrays, on_eight)

    gradient = jax.jit(jax.grad(bag.value, (0, 1)), out_shardings=(everywhere, rows))
    arrays = bag.TABLE, bag.WEIGHTS, bag.TOKENS, bag.PROBE
    on_eight = jax.device_put(bag.TABLE, everywhere), *map(split, arrays[1:])
    expected = jax.grad(bag.value, (0, 1))(*arrays)
    facts["bag"] = difference(lambda *found: found, expected, gradient(*on_eight))
    program = gradient.lower(*on_eight).compile().as_text()
    computations = [text for text in re.split(r"\n\n", program) if " all-reduce(" in text]
    facts["all_reduces"] = [[text.split()[0]] * text.count(" all-reduce(") for text in computations]
    print(json.dumps(facts))


if __name__ == "__main__":
    print_facts()
