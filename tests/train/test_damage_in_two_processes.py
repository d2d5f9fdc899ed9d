"""Two processes agree on which checkpoint is damaged, even if only one of them cannot read it."""

import numpy as np
import pytest

from tests.train import processes
from tests.train.two_processes import SETTINGS, TOTAL, finish_all

pytestmark = pytest.mark.exhaustive


def step_4_is_the_best_and_the_second_cannot_read_it(number, step):
    import orbax.checkpoint as ocp

    from xling_jax.train.checkpoint import Checkpoints

    def fail(*_, **__):
        raise ValueError("cannot be read here")

    Checkpoints.best_step = lambda self: 4 if 4 in self._manager.all_steps() else TOTAL
    if number == 1:
        ocp.StandardCheckpointHandler.restore = fail


def test_both_take_the_checkpoint_before_the_damaged_one(corpus, tmp_path):
    workdir, checkpoints = tmp_path / "w", tmp_path / "w" / "checkpoints"
    settings = SETTINGS | {"mesh.fsdp": 8, "train.export": "best"}  # each has half of an array
    options = {"cache": tmp_path / "cache", "num_devices": 4}
    pair = processes.start_several(
        *(2, workdir, corpus, settings),
        **options,
        at_step=step_4_is_the_best_and_the_second_cannot_read_it,
    )
    assert finish_all(pair) == [0, 0], processes.log_texts(workdir)
    for number in (0, 1):
        said = processes.log_text(workdir, number)
        assert f"checkpoint 4 in {checkpoints} is damaged (cannot be read here)" in said
    assert (checkpoints / "broken-00000004").is_dir()
    with np.load(workdir / "final.npz") as file:
        final = dict(file)

    for path in (checkpoints / f"{TOTAL:08d}" / "state" / "d").iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    pair = processes.start_several(2, workdir, corpus, settings, **options)
    assert finish_all(pair) == [0, 0], processes.log_texts(workdir)
    for number in (0, 1):
        said = processes.log_text(workdir, number)
        assert f"checkpoint {TOTAL} in {checkpoints} is damaged" in said
        assert f"resuming from checkpoint {TOTAL - 2}" in said
    with np.load(workdir / "final.npz") as file:
        for name in final:
            np.testing.assert_array_equal(file[name], final[name])
