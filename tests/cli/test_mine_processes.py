"""`xling mine` as several processes finds what one process finds."""

import os

import numpy as np
import pytest

from tests.cli import processes_for_cli as processes
from tests.cli.encoder_for_cli import made_up_sentences

pytestmark = pytest.mark.slow

WINDOW = 16
NUM_SOURCE, NUM_TARGET = 75, 67  # divisible by no number of processes or devices here


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Two texts that share some sentences but for a word; blank and repeated lines."""
    directory = tmp_path_factory.mktemp("texts")
    sentences = made_up_sentences(120)
    source = sentences[:NUM_SOURCE]
    target = [f"{sentence} bad" for sentence in sentences[40 : 40 + NUM_TARGET]]
    source[5], source[20], target[7] = "", source[3], " "
    for name, lines in (("source", source), ("target", target)):
        (directory / name).write_text("".join(f"{line}\n" for line in lines))
    return directory


@pytest.fixture(scope="module")
def vectors(model, texts):
    for name in ("source", "target"):
        processes.run(
            texts / "logs",
            1,
            ["embed", "--model", model, "--input", texts / name, "--output", texts / f"{name}.npy"],
        )
    return texts


def setup(number):
    """Few lines are enough for all processes; the uneven ones have several devices each."""
    import jax

    from xling_jax.align import knn_jax_tiles
    from xling_jax.encode.numpy_batches import NumpyBatches

    NumpyBatches.window_sentences = WINDOW
    knn_jax_tiles._MAX_TILE_KEYS = 7  # several blocks and tiles
    knn_jax_tiles._MAX_ROWS = dict.fromkeys(knn_jax_tiles._MAX_ROWS, 20)
    jax.config.update("jax_num_cpu_devices", 2)


def mine(texts, output, *options):
    files = ("--source", texts / "source", "--target", texts / "target")
    return ["mine", *files, "--output", output, *options]


def read(path):
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return {tuple(row[1:]): float(row[0]) for row in rows}, [float(row[0]) for row in rows]


def check_same(found, expected):
    """The pairs and their scores; scores that are equal but for rounding may change places."""
    (score_of, scores), (expected_score_of, expected_scores) = read(found), read(expected)
    assert score_of.keys() == expected_score_of.keys() and len(score_of) > 20
    assert score_of == pytest.approx(expected_score_of, abs=3e-6)
    np.testing.assert_allclose(scores, expected_scores, atol=3e-6)


@pytest.mark.parametrize("count", [2, 3])
def test_with_a_model(count, model, texts, tmp_path):
    options = ("--model", model, "--memory-mb", 0.01)
    for name, number in (("one", 1), ("several", count)):
        (tmp_path / name).mkdir()
        lists = ("--n-best", tmp_path / name / "n")
        arguments = mine(texts, tmp_path / name / "p", *options, *lists)
        processes.run(tmp_path / f"{name}.logs", number, arguments, setup)
    assert sorted(os.listdir(tmp_path / "several")) == ["n", "p"]
    for name in ("n", "p"):
        check_same(tmp_path / "several" / name, tmp_path / "one" / name)


def test_with_ready_vectors_and_given_pairs(vectors, tmp_path):
    sources, targets = ((vectors / n).read_text().splitlines() for n in ("source", "target"))
    pairs = tmp_path / "pairs"
    pairs.write_text("".join(f"{x}\t{y}\n" for x, y in zip(sources, reversed(targets))))
    options = []
    for name in ("source", "target"):
        options += [f"--{name}-embeddings", vectors / f"{name}.npy"]
    for name, number in (("one", 1), ("several", 2)):
        arguments = mine(vectors, tmp_path / name, *options, "--pairs", pairs)
        processes.run(tmp_path / f"{name}.logs", number, arguments, setup)
    check_same(tmp_path / "several", tmp_path / "one")


def fail(*_, **__):
    raise OSError("bad luck")


def no_luck_in_writing(number):
    from xling_jax.align import bitext
    from xling_jax.cli import distributed

    setup(number)
    distributed.HEARTBEAT_TIMEOUT_S = 5
    bitext.write_pairs = fail


def test_what_ends_one_ends_both_and_leaves_no_output(model, texts, tmp_path):
    (tmp_path / "out").mkdir()
    arguments = mine(texts, tmp_path / "out/p", "--model", model)
    started = processes.start(tmp_path / "logs", 2, arguments, no_luck_in_writing)
    statuses = processes.finish(started, 60)
    assert statuses[0] == 1 and statuses[1] not in (0, None), processes.said(tmp_path / "logs")
    assert "bad luck" in (tmp_path / "logs/0.txt").read_text()
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize(
    "option, complaint",
    [
        (("--backend", "numpy"), "several processes search with jax"),
        (("--output", "-"), "--output -: several processes need a file"),
    ],
)
def test_what_several_processes_cannot_do_is_refused(option, complaint, model, texts, tmp_path):
    arguments = mine(texts, tmp_path / "p", "--model", model, *option)
    assert processes.finish(processes.start(tmp_path / "logs", 2, arguments), 60) == [2, 2]
    for number in range(2):
        assert complaint in (tmp_path / f"logs/{number}.txt").read_text()
