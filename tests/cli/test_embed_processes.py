"""`xling embed` as several processes writes what one process writes."""

import json
import os
import signal
import time

import numpy as np
import pytest

from tests.cli import processes_for_cli as processes
from tests.cli.encoder_for_cli import made_up_sentences
from tests.train.processes import wait_for

pytestmark = pytest.mark.slow

WINDOW = 16


def small_windows(number):
    """So that few lines are enough for all processes."""
    from xling_jax.encode.numpy_batches import NumpyBatches

    NumpyBatches.window_sentences = WINDOW


def embed(model, text, output, *options):
    return ["embed", "--model", model, "--input", text, "--output", output, *options]


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize(
    "count, num_lines, options",
    [
        (2, 5 * WINDOW + 3, ()),
        (3, 5 * WINDOW + 3, ("--format", "laser", "--normalize", "--batch-size", 4)),
        (3, 2, ()),  # fewer lines than processes
        (2, 0, ()),
    ],
)
def test_several_processes_write_the_same_bytes(count, num_lines, options, model, tmp_path):
    lines = made_up_sentences(num_lines)
    lines[3::7] = [" "] * len(lines[3::7])
    text = write_lines(tmp_path / "text", lines)
    for name, number in (("one", 1), ("several", count)):
        (tmp_path / name).mkdir()
        for left in ("..e.part-7.1.tmp", ".e.0123abcd.tmp"):  # by one that was killed
            (tmp_path / name / left).touch()
        arguments = embed(model, text, tmp_path / name / "e", *options)
        processes.run(tmp_path / f"{name}.logs", number, arguments, small_windows)
    assert (tmp_path / "several/e").read_bytes() == (tmp_path / "one/e").read_bytes()
    assert os.listdir(tmp_path / "several") == ["e"]
    windows = [len(lines[start : start + WINDOW]) for start in range(0, num_lines, WINDOW)]
    said = (tmp_path / "several.logs/1.txt").read_text()
    here = sum(windows[1::count])
    assert f"{num_lines} rows of 16, computed in float32; of them here {here} sentences" in said


@pytest.mark.parametrize("mode", ["sentences", "packed"])
def test_documents_of_several_processes_are_those_of_one(mode, model, tmp_path):
    sentences, random = made_up_sentences(200), np.random.default_rng(0)
    documents = [{"sentences": list(random.choice(sentences, 5))} for _ in range(7)]
    documents += [{"text": ". ".join(random.choice(sentences, 9))} for _ in range(6)]
    lines = [json.dumps(document) for document in documents]
    text = write_lines(tmp_path / "text.jsonl", [*lines[:4], "", *lines[4:]])
    options = ("--documents", "--document-mode", mode)
    for name, number in (("one", 1), ("several", 2)):
        arguments = embed(model, text, tmp_path / f"{name}.npy", *options)
        processes.run(tmp_path / f"{name}.logs", number, arguments, small_windows)
    found, expected = np.load(tmp_path / "several.npy"), np.load(tmp_path / "one.npy")
    assert found.shape == (14, 16)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def heartbeats_of_5_seconds(number):
    from xling_jax.cli import distributed

    small_windows(number)
    distributed.HEARTBEAT_TIMEOUT_S = 5


def no_room_in_the_second(number):
    import resource

    heartbeats_of_5_seconds(number)
    if number == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def no_room_for_the_whole(number):
    """The parts of both have room."""
    import resource

    heartbeats_of_5_seconds(number)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))


def broken_line_in_the_second(number):
    from xling_jax.encode.encoder import Encoder

    heartbeats_of_5_seconds(number)
    if number == 1:
        Encoder.encode_stream = lambda *_, **__: iter([np.zeros((1, 3), np.float32)])


def killed_while_it_encodes(number):
    from xling_jax.encode.encoder import Encoder

    heartbeats_of_5_seconds(number)
    if number == 1:
        Encoder.encode_stream = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    "setup, number, status, complaint",
    [
        (no_room_in_the_second, 1, 1, "e.npy.part-1: File too large"),
        (no_room_for_the_whole, 0, 1, "e.npy: File too large"),
        (broken_line_in_the_second, 1, 1, "must have shape [any, 16]"),
        (killed_while_it_encodes, 1, -signal.SIGKILL, ""),
    ],
)
def test_what_ends_one_ends_both_and_leaves_no_output(
    setup, number, status, complaint, model, tmp_path
):
    text = write_lines(tmp_path / "text", made_up_sentences(5 * WINDOW + 3))
    arguments = embed(model, text, tmp_path / "out" / "e.npy")
    (tmp_path / "out").mkdir()
    started = processes.start(tmp_path / "logs", 2, arguments, setup)
    processes.check_that_all_end(started, number, status, complaint, tmp_path / "logs")
    assert not (tmp_path / "out/e.npy").exists()


def encode_for_ever(number):
    from xling_jax.encode.encoder import Encoder

    def encode_stream(*_, **__):
        print("encoding", flush=True)
        time.sleep(100)

    Encoder.encode_stream = encode_stream


def test_sigterm_ends_them_as_it_ends_one(model, tmp_path):
    text = write_lines(tmp_path / "text", ["a"])
    arguments = embed(model, text, tmp_path / "e.npy")
    started = processes.start(tmp_path / "logs", 2, arguments, encode_for_ever)
    assert wait_for(lambda: processes.said(tmp_path / "logs").count("encoding") == 2)
    for process in started:
        process.terminate()
    assert set(processes.finish(started, 20)) <= {-signal.SIGTERM, -signal.SIGABRT}
    assert not (tmp_path / "e.npy").exists()


@pytest.mark.parametrize("option, other", [("--input", "--output"), ("--output", "--input")])
def test_pipes_are_refused(option, other, model, tmp_path):
    text = write_lines(tmp_path / "text", ["a"])
    arguments = ["embed", "--model", model, option, "-", other, text, "--overwrite"]
    started = processes.start(tmp_path / "logs", 2, arguments)
    assert processes.finish(started, 60) == [2, 2], processes.said(tmp_path / "logs")
    for number in range(2):
        said = (tmp_path / f"logs/{number}.txt").read_text()
        assert f"{option} -: several processes need a file" in said
