"""Shares of `xling embed` and `xling mine`, joined: the bytes of one process."""

import shutil

import numpy as np
import pytest

from tests.cli.encoder_for_cli import made_up_sentences, write_encoder
from xling_jax.align import stages
from xling_jax.cli.main import main
from xling_jax.cli.shards import Shard
from xling_jax.encode.backends import NumpyBackend

WINDOW = 16


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """Few lines are enough for all shares."""
    monkeypatch.setattr(NumpyBackend, "window_sentences", WINDOW)
    monkeypatch.setattr(stages, "SPAN_ROWS", 8)


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def run(*words):
    assert main([*map(str, words)]) == 0


@pytest.fixture
def fails(fails):
    """Runs a command that must fail in one line; returns the line."""
    return lambda status, *words: fails(main([*map(str, words)]), status)


@pytest.mark.parametrize("count, total, multiple", [(1, 7, 1), (3, 7, 1), (4, 50, 16), (5, 0, 8)])
def test_shares_cover_all_rows_once_and_begin_at_multiples(count, total, multiple):
    found = [Shard(number, count).rows(total, multiple) for number in range(1, count + 1)]
    assert [row for part in found for row in range(total)[part]] == [*range(total)]
    assert all(part.start % multiple == 0 or part.start == total for part in found)
    assert max(part.stop - part.start for part in found) <= -(-total // count) + multiple


@pytest.mark.parametrize(
    "count, num_lines, options",
    [
        (2, 5 * WINDOW + 3, ()),
        (3, 5 * WINDOW + 3, ("--normalize",)),
        (3, 2, ("--precision", "float16")),  # shares without lines
        (2, 0, ()),
    ],
)
def test_vectors_of_shares_are_those_of_one_process(count, num_lines, options, model, tmp_path):
    lines = made_up_sentences(num_lines)
    lines[3::7] = [" "] * len(lines[3::7])
    text = write_lines(tmp_path / "text", lines)
    embed = ("embed", "--model", model, "--input", text, *options)
    run(*embed, "--output", tmp_path / "one.npy")
    for number in range(1, count + 1):
        run(*embed, "--output", tmp_path / "e.npy", "--shard", f"{number}/{count}")
    run("embed", "--join", tmp_path / f"e-*-of-{count:05}.npy", "--output", tmp_path / "all.npy")
    assert (tmp_path / "all.npy").read_bytes() == (tmp_path / "one.npy").read_bytes()


def test_documents_of_shares_and_parts_of_laser(model, tmp_path):
    text = write_lines(tmp_path / "text", [". ".join(made_up_sentences(3, i)) for i in range(7)])
    embed = ("embed", "--model", model, "--input", text, "--documents", "--format", "laser")
    run(*embed, "--output", tmp_path / "one.bin")
    for number in (1, 2):
        run(*embed, "--output", tmp_path / "e.bin", "--shard", f"{number}/2")
    parts = [(tmp_path / f"e-0000{number}-of-00002.bin").read_bytes() for number in (1, 2)]
    found, expected = (
        np.frombuffer(data, "<f4")
        for data in (b"".join(parts), (tmp_path / "one.bin").read_bytes())
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.fixture
def texts(tmp_path):
    """Two texts that share some sentences but for a word; blank and repeated lines."""
    sentences = made_up_sentences(120)
    source, target = sentences[:75], [f"{sentence} bad" for sentence in sentences[40:107]]
    source[5], source[20], target[7] = "", source[3], " "
    files = [write_lines(tmp_path / "source", source), write_lines(tmp_path / "target", target)]
    write_lines(tmp_path / "pairs", map("\t".join, zip(sentences[40:60], target)))
    return ("--source", files[0], "--target", files[1])


@pytest.mark.parametrize(
    "count, options, of_join",
    [
        (2, ("--k", 3), ("--retrieval", "intersect", "--margin", "distance")),
        (12, (), ("--top", 9, "--retrieval", "fwd")),  # more shares than spans
        (2, ("--backend", "jax"), ("--retrieval", "bwd")),
        (2, ("--pairs", "pairs"), ()),  # scored in their order
    ],
)
def test_pairs_of_shares_are_those_of_one_process(
    count, options, of_join, model, texts, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    mine = ("mine", "--model", model, *texts, *options)
    run(*mine, *of_join, "--output", tmp_path / "one.tsv")
    for number in range(1, count + 1):
        run(*mine, "--output", tmp_path / "p.npz", "--shard", f"{number}/{count}")
    run(*mine, *of_join, "--output", tmp_path / "all.tsv", "--join", tmp_path / "p-*.npz")
    found, expected = (
        [line.split("\t") for line in (tmp_path / name).read_text().splitlines()]
        for name in ("all.tsv", "one.tsv")
    )
    assert len(found) >= 9 and sorted(row[1:] for row in found) == sorted(r[1:] for r in expected)
    scores = [np.array([float(row[0]) for row in rows]) for rows in (found, expected)]
    np.testing.assert_allclose(*scores, atol=2e-6)
    assert "--pairs" not in options or found == expected


def test_shares_of_ready_vectors_may_be_found_on_other_machines(model, texts, tmp_path):
    """Each with copies of its own, at other paths."""
    vectors = {}
    for side in ("source", "target"):
        embed = ("embed", "--model", model, "--input", tmp_path / side, "--output")
        run(*embed, tmp_path / f"{side}.npy")
        for machine in ("a", "b"):
            (tmp_path / machine).mkdir(exist_ok=True)
            shutil.copy(tmp_path / f"{side}.npy", tmp_path / machine)
    for machine in (".", "a", "b"):
        sides = (tmp_path / machine / f"{side}.npy" for side in ("source", "target"))
        names = ("--source-embeddings", "--target-embeddings")
        vectors[machine] = [word for pair in zip(names, sides) for word in pair]
    for share, machine in (("1/2", "a"), ("2/2", "b")):
        run("mine", *texts, *vectors[machine], "--output", tmp_path / "p.npz", "--shard", share)
    mine = ("mine", *texts, *vectors["."])
    run(*mine, "--output", tmp_path / "all.tsv", "--join", tmp_path / "p-*.npz")
    run(*mine, "--output", tmp_path / "one.tsv")
    assert (tmp_path / "all.tsv").read_text() == (tmp_path / "one.tsv").read_text()


def test_parts_that_are_missing_or_of_something_else_are_refused(model, texts, fails, tmp_path):
    embed = ("embed", "--model", model, "--input", tmp_path / "source", "--output")
    run(*embed, tmp_path / "e.npy", "--shard", "1/2")
    join = ("embed", "--output", tmp_path / "all.npy", "--join", tmp_path / "e-*-of-00002.npy")
    assert "e-00002-of-00002.npy is missing; run --shard 2/2 first" in fails(2, *join)
    run(*embed, tmp_path / "e.npy", "--shard", "2/2", "--precision", "float16")
    assert "e-00002-of-00002.npy: differs from" in fails(1, *join)
    again = (*embed, tmp_path / "e.npy", "--overwrite", "--shard", "2/2")
    for other in (("--model", write_encoder(tmp_path, seed=1)), ("--normalize",)):
        run(*again, *other)
        line = fails(1, *join)
        assert line.endswith("in model, options, dimensions or type; redo its share"), line
    run(*again)
    run(*join)
    assert b"#" not in (tmp_path / "all.npy").read_bytes()[:128]
    (tmp_path / "all.npy").unlink()
    run(*embed, tmp_path / "f.npy", "--shard", "1/2")
    wrong = tmp_path / "f-00001-of-00002.npy"
    assert f"{wrong}: is not of the same output as {tmp_path}/e-00001" in fails(2, *join, wrong)
    assert "is named twice" in fails(2, *join, tmp_path / "e-00001-of-00002.npy")
    assert "--model and --join exclude each other" in fails(2, *join, "--model", model)
    assert "g-*: matches no file" in fails(2, *join[:-1], tmp_path / "g-*")
    assert "must be named as --shard names it" in fails(2, *join[:-1], tmp_path / "source")
    assert "--output" in fails(2, *embed, tmp_path / "e.npy", "--shard", "1/2")  # exists
    mine = ("mine", "--model", model, *texts)
    run(*mine, "--output", tmp_path / "p.npz", "--shard", "1/1")
    join = ("--join", tmp_path / "p-00001-of-00001.npz", "--output", tmp_path / "p.tsv")
    assert "made from other texts, model or options; run its share" in fails(
        1, *mine, *join, "--k", 2
    )
    (tmp_path / "p-00001-of-00001.npz").write_bytes(b"PK")
    assert "p-00001-of-00001.npz: " in fails(1, *mine, *join)


@pytest.mark.parametrize(
    "words, message",
    [
        (("embed", "--output", "-", "--shard", "1/2"), "--shard: a part needs a file"),
        (("embed", "--output", "e", "--input", "-", "--shard", "1/2"), "is read twice; write it"),
        (("embed", "--output", "e", "--shard", "1/2", "--join", "x"), "exclude each other"),
        (("embed", "--output", "e"), "--input is required, except with --join"),
        (("mine", "--output", "p.tsv", "--pairs", "p", "--shard", "1/2"), "name --output FILE.npz"),
        (
            ("mine", "--output", "p.npz", "--pairs", __file__, "--shard", "1/2", "--top", "3"),
            "--top 3: is for --join; a share has no pairs yet",
        ),
    ],
)
def test_wrong_use(words, message, fails):
    assert message in fails(2, *words, "--model", "mini")
