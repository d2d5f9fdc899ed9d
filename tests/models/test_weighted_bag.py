"""Sums of table rows: the plain form's values and gradients, on one device and on eight."""

import json
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np

from xling_jax.models.layers import weighted_bag

RANDOM = np.random.default_rng(0)
TABLE, WEIGHTS, PROBE = (
    RANDOM.normal(size=shape).astype(np.float32) for shape in ((9, 4), (8, 5), (8, 4))
)
TOKENS = RANDOM.integers(0, 9, (8, 5)).astype(np.int32)


def value(table, weights, tokens, probe, form=weighted_bag):
    return (form(table, weights, tokens) * probe).sum()


def plain(table, weights, tokens):
    return jnp.einsum("bl,blw->bw", weights, table[tokens])


def test_sums_and_gradients_are_those_of_the_plain_form():
    arrays = (TABLE, WEIGHTS, TOKENS)
    np.testing.assert_allclose(jax.jit(weighted_bag)(*arrays), plain(*arrays), rtol=1e-5, atol=1e-6)
    ours = jax.jit(jax.grad(value, (0, 1)))(*arrays, PROBE)
    expected = jax.grad(lambda *arrays: value(*arrays, form=plain), (0, 1))(*arrays, PROBE)
    for found, wanted in zip(ours, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_eight_devices_add_up_the_tables_gradient_once(request):
    """Not once a position, in the loop: that would be a whole table for every token."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.models.test_weighted_bag"],
        cwd=request.config.rootpath,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    facts = json.loads(finished.stdout)
    assert facts["devices"] == 8 and facts["largest"] < 1e-5
    assert facts["all_reduces"] == [["ENTRY"]]


def print_facts() -> None:
    """Gradients of a row a device against all on one, and where devices add up, as JSON."""
    jax.config.update("jax_num_cpu_devices", 8)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    everywhere, rows = jax.NamedSharding(mesh, jax.P()), jax.NamedSharding(mesh, jax.P("data"))
    split = [jax.device_put(array, rows) for array in (WEIGHTS, TOKENS, PROBE)]
    arguments = (jax.device_put(TABLE, everywhere), *split)
    gradient = jax.jit(jax.grad(value, (0, 1)), out_shardings=(everywhere, rows))
    pairs = zip(gradient(*arguments), jax.grad(value, (0, 1))(TABLE, WEIGHTS, TOKENS, PROBE))
    program = gradient.lower(*arguments).compile().as_text()
    computations = [part for part in re.split(r"\n\n", program) if " all-reduce(" in part]
    facts = {
        "devices": len(split[0].sharding.device_set),
        "largest": max(float(np.abs(a - b).max()) for a, b in pairs),
        "all_reduces": [[part.split()[0]] * part.count(" all-reduce(") for part in computations],
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    print_facts()
