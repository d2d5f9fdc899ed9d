"""One of several processes of embed and mine killed or stalled at random moments: all end.

Nothing is half-done: the same command then writes what an unbroken run writes, and leaves nothing
else.
"""

import contextlib
import os
import random
import signal
import time

import pytest

from tests.cli import processes_for_cli as processes
from tests.cli.encoder_for_cli import made_up_sentences

pytestmark = pytest.mark.slow

# Processes that are stopped keep the others waiting until they are missed.
KILLS = {signal.SIGKILL: 2, signal.SIGSTOP: 1}


def setup(number):
    """Small windows and blocks, so that there are many moments; the dead are missed soon."""
    from xling_jax.align import knn_jax_tiles
    from xling_jax.cli import distributed
    from xling_jax.encode.numpy_batches import NumpyBatches

    NumpyBatches.window_sentences = 16
    knn_jax_tiles._MAX_TILE_KEYS = 7  # several blocks and tiles
    knn_jax_tiles._MAX_ROWS = dict.fromkeys(knn_jax_tiles._MAX_ROWS, 20)
    distributed.HEARTBEAT_TIMEOUT_S = 5
    # One that is killed before it has joined is waited for this long.
    distributed.JOIN_WITHIN_S = 30


@pytest.mark.parametrize(
    "command, count, sent",
    [
        ("embed", 2, signal.SIGKILL),
        ("mine", 3, signal.SIGSTOP),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in [
                ("embed", 3, signal.SIGSTOP),
                ("embed", 4, signal.SIGKILL),
                ("mine", 2, signal.SIGKILL),
                ("mine", 4, signal.SIGKILL),
            ]
        ),
    ],
)
def test_a_process_lost_at_a_random_moment_ends_all(command, count, sent, model, tmp_path):
    rng = random.Random(count)
    sentences = made_up_sentences(400)
    texts = {"source": sentences[:300], "target": [f"{line} bad" for line in sentences[90:]]}
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "out").mkdir()
    output = tmp_path / "out/result"
    inputs = ("--input", tmp_path / "source")
    if command == "mine":
        inputs = ("--source", tmp_path / "source", "--target", tmp_path / "target")
    arguments = [command, "--model", model, *inputs, "--output", output]
    logs = lambda name: tmp_path / f"logs.{name}"

    begun = time.monotonic()
    processes.run(logs("whole"), count, arguments, setup)
    seconds, whole = time.monotonic() - begun, output.read_bytes()
    assert len(whole) > 1000
    output.unlink()
    lost = 0
    while lost < KILLS[sent]:
        started = processes.start(logs("broken"), count, arguments, setup)
        time.sleep(seconds * rng.uniform(0.1, 0.95))
        victim = rng.choice(started)
        if victim.is_alive():
            lost += 1
            with contextlib.suppress(ProcessLookupError):  # it was faster
                os.kill(victim.pid, sent)
        else:  # the first run took longer
            seconds /= 2
        others = [process for process in started if process is not victim]
        assert None not in processes.finish(others, 90), processes.said(logs("broken"))
        if victim.is_alive():  # stalled: it goes on, without the others
            os.kill(victim.pid, signal.SIGCONT)
        assert None not in processes.finish([victim], 90), processes.said(logs("broken"))
        if output.exists():  # it was done, or not needed any more
            assert output.read_bytes() == whole
            output.unlink()
    processes.run(logs("again"), count, arguments, setup)
    assert output.read_bytes() == whole
    assert os.listdir(tmp_path / "out") == ["result"]
