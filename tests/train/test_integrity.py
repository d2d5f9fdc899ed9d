"""What is read from a checkpoint is what was saved, or the checkpoint before it is taken."""

import functools
import json
import random
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train.synthetic import smoke_experiment
from xling_jax.sharding import make_mesh
from xling_jax.train.checkpoint import Checkpoints, kept_steps, read_params
from xling_jax.train.identity import identity
from xling_jax.train.integrity import array_hashes, seal, unseal
from xling_jax.train.options import TrainOptions
from xling_jax.train.step import TrainState, sharded_shapes
from xling_jax.train.training import resolve

METRIC = "dev/score"
SCORES = {1: 0.25, 2: 0.75, 3: 0.5}
of_run = functools.cache(lambda: identity(resolve(smoke_experiment()), "float32", "vocab", "data"))


def test_any_changed_bit_and_any_exchange_of_numbers_changes_the_hash():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    arrays = [array, array.T, array[::-1], 0 * array, -0.0 * array]
    for number, bit in np.ndindex(6, 32):
        changed = array.copy()
        changed.view(np.uint32).flat[number] ^= np.uint32(1 << bit)
        arrays.append(changed)
    hashes = array_hashes([jnp.asarray(each) for each in arrays])
    assert len({*hashes.values()}) == len(arrays)


_EIGHT_DEVICES = """
import jax
from jax.sharding import NamedSharding, PartitionSpec as P
from xling_jax.train.integrity import array_hashes
from xling_jax.sharding import make_mesh
from xling_jax.train.options import TrainOptions
jax.config.update("jax_num_cpu_devices", 8)
array = jax.random.normal(jax.random.key(0), (16, 24, 8))
mesh = make_mesh(2, 4)
specs = P(), P("fsdp"), P(None, "fsdp"), P("data", "fsdp"), P(None, None, ("data", "fsdp"))
places = [jax.devices()[0], *(NamedSharding(mesh, spec) for spec in specs)]
print(*array_hashes([jax.device_put(array, place) for place in places]).values())
"""


def test_the_hash_does_not_depend_on_how_an_array_is_split_over_devices(output_of):
    hashes = output_of("-c", _EIGHT_DEVICES).split()
    array = jax.random.normal(jax.random.key(0), (16, 24, 8))
    assert hashes == 6 * [*array_hashes([array]).values()]


def test_a_sealed_record_is_read_back_and_any_changed_byte_is_found():
    content = {"progress": {"dev": {METRIC: 0.25}, "loss": float("nan")}, "pairs": ("a", "b")}
    text = json.dumps(seal(content))
    found = unseal(text)
    assert found["pairs"] == ["a", "b"]
    assert found["progress"]["dev"] == content["progress"]["dev"]
    for position in range(len(text)):
        damaged = text[:position] + chr(ord(text[position]) ^ 1) + text[position + 1 :]
        with pytest.raises(ValueError):
            unseal(damaged)
    with pytest.raises(ValueError, match="it has no fingerprint"):
        unseal('{"version": "0.2.0"}')


@pytest.fixture(scope="module")
def shapes() -> TrainState:
    return sharded_shapes(make_mesh(), jax.eval_shape(lambda: make_state(0)))


def make_state(step: int) -> TrainState:
    values = jnp.sin(jnp.arange(40 * 50) + step).reshape(40, 50)
    params = {"encoder": {"kernel": values, "bias": values[0]}}
    opt_state = {"mu": jax.tree.map(jnp.square, params), "count": jnp.int32(step)}
    return TrainState(jnp.int32(step), params, opt_state)


def open_checkpoints(directory: Path) -> Checkpoints:
    return Checkpoints(directory, of_run(), TrainOptions(keep_last=3, best_metric=METRIC))


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A directory with checkpoints of steps 1, 2 and 3."""
    directory = tmp_path_factory.mktemp("run") / "checkpoints"
    with open_checkpoints(directory) as checkpoints:
        for step, score in SCORES.items():
            checkpoints.save(make_state(step), step, {METRIC: score}, {"dev": {METRIC: score}})
    return directory


def damages(content: bytes, seed: str):
    """Versions of a file with one bit flipped, at its ends and in between, and cut short."""
    generator = random.Random(seed)
    positions = [0, len(content) - 1, *(generator.randrange(len(content)) for _ in range(3))]
    for position in positions:
        flipped = bytearray(content)
        flipped[position] ^= 1 << generator.randrange(8)
        yield f"bit flipped in byte {position}", bytes(flipped)
    yield "cut in half", content[: len(content) // 2]
    yield "emptied", b""


def check_state(found: TrainState, step: int) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(make_state(step)), strict=True):
        np.testing.assert_array_equal(np.asarray(a).view(np.uint32), np.asarray(b).view(np.uint32))


@pytest.mark.slow
def test_damage_to_any_file_is_found_or_has_no_effect(saved, shapes, tmp_path, caplog):
    newest = saved / "00000003"
    by_hash = 0
    files = sorted(path.relative_to(newest) for path in newest.rglob("*") if path.is_file())
    for file in files:
        for what, content in damages((newest / file).read_bytes(), str(file)):
            directory = tmp_path / "checkpoints"
            shutil.copytree(saved, directory)
            (directory / "00000003" / file).write_bytes(content)
            caplog.clear()
            with open_checkpoints(directory) as checkpoints:
                state, step, progress = checkpoints.restore(shapes)
            check_state(state, step)
            assert progress == {"dev": {METRIC: SCORES[step]}}, f"{file}: {what}"
            said = [r.getMessage() for r in caplog.records if r.name.startswith("xling_jax")]
            broken = (directory / "broken-00000003").exists()
            assert (step, len(said), broken) in ((3, 0, False), (2, 1, True)), f"{file}: {what}"
            assert all("checkpoint 3 in" in line and "\n" not in line for line in said)
            by_hash += "do not match their hashes" in "".join(said)
            shutil.rmtree(directory)
    assert by_hash, "the data that orbax itself does not check were not damaged"


def flip_data(checkpoint: Path) -> None:
    """Flips a bit in each file of data, in the larger ones in the middle of an array."""
    for path in (checkpoint / "state").rglob("d/*"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 16
        path.write_bytes(content)


def test_a_damaged_best_checkpoint_is_not_exported(saved, shapes, tmp_path, caplog):
    directory = shutil.copytree(saved, tmp_path / "checkpoints")
    with open_checkpoints(directory) as checkpoints:
        step, params = checkpoints.restore_best(shapes)
        assert step == checkpoints.best_steps()[0] == 2
        expected = make_state(2).params["encoder"]["kernel"]
        np.testing.assert_array_equal(params["encoder"]["kernel"], expected)
        flip_data(directory / "00000002")
        assert checkpoints.restore_best(shapes)[0] == checkpoints.best_steps()[0] == 3
    assert caplog.text.count("checkpoint 2 in") == 1 and "is damaged" in caplog.text
    assert (directory / "broken-00000002").is_dir()


@pytest.mark.parametrize("keep_best, kept", [(0, [1, 3]), (1, [1, 2, 3])])
def test_the_newest_the_best_and_those_of_earlier_runs_for_good_are_kept(tmp_path, keep_best, kept):
    settings = {"total_steps": 1, "keep_last": 1, "keep_best": keep_best, "best_metric": METRIC}
    for keep_every, steps in ((1, [1]), (0, [2, 3])):
        options = TrainOptions(**settings, keep_every_steps=keep_every)
        with Checkpoints(tmp_path / "c", {}, options) as checkpoints:
            for step in steps:
                checkpoints.save(make_state(step), step, {METRIC: SCORES[step]}, {})
    assert kept_steps(tmp_path / "c") == kept


def test_a_damaged_checkpoint_is_set_aside_once_the_one_before_is_restored(saved, shapes, tmp_path):
    directory = shutil.copytree(saved, tmp_path / "checkpoints")
    flip_data(directory / "00000003")
    with open_checkpoints(directory) as checkpoints:
        state, step, _ = checkpoints.restore(shapes)
        assert step == checkpoints.latest_step() == 2
    check_state(state, 2)
    assert (directory / "broken-00000003").is_dir() and kept_steps(directory) == [1, 2]


def test_an_evaluation_is_added_to_what_was_saved(saved, shapes, tmp_path):
    directory = shutil.copytree(saved, tmp_path / "checkpoints")
    with open_checkpoints(directory) as checkpoints:
        checkpoints.add_evaluation(3, {METRIC: 1.0}, {"evaluated": True})
    with open_checkpoints(directory) as checkpoints:
        assert checkpoints.best_steps()[0] == 3
        state, step, progress = checkpoints.restore(shapes)
    check_state(state, 3)
    assert step == 3 and progress == {"dev": {METRIC: SCORES[3]}, "evaluated": True}


def test_parameters_of_one_checkpoint_are_verified(saved, shapes, tmp_path):
    directory = shutil.copytree(saved, tmp_path / "checkpoints")
    params = read_params(directory, 2, shapes, "vocab")
    expected = make_state(2).params["encoder"]["kernel"]
    np.testing.assert_array_equal(params["encoder"]["kernel"], expected)
    with pytest.raises(ValueError, match="prepared with a different vocabulary"):
        read_params(directory, 2, shapes, "another")
    file = directory / "00000002/identity/metadata"
    record = unseal(file.read_text())
    record["arrays"] = array_hashes(make_state(1))
    file.write_text(json.dumps(seal(record)))
    with pytest.raises(ValueError, match="00000002: damaged .*; choose another checkpoint"):
        read_params(directory, 2, shapes, "vocab")


def test_if_none_is_intact_nothing_is_set_aside_and_no_run_begins_anew(saved, shapes, tmp_path):
    directory = shutil.copytree(saved, tmp_path / "checkpoints")
    for step in SCORES:
        flip_data(directory / f"{step:08d}")
    for _ in range(2):
        with (
            open_checkpoints(directory) as checkpoints,
            pytest.raises(ValueError, match=r"none of the checkpoints \[3, 2, 1\] is intact"),
        ):
            checkpoints.restore(shapes)
    for step in SCORES:
        (directory / f"{step:08d}" / "identity" / "metadata").write_text("{")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"none of the checkpoints \[1, 2, 3\] is intact"):
            open_checkpoints(directory)
