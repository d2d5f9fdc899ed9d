"""Mining in stages: killed anywhere, it goes on and ends with the same numbers."""

import logging
import resource
from pathlib import Path

import numpy as np
import pytest

from xling_jax.align import mining, stages
from xling_jax.align.rows import UnitRows
from xling_jax.files.embeddings import JoinedRows


class Killed(BaseException):
    pass


@pytest.fixture(autouse=True)
def small_spans(monkeypatch):
    """Every chunk is recorded, and a span is one tile of 8 source rows."""
    monkeypatch.setattr(stages, "_RECORD_EVERY_S", -1)
    monkeypatch.setattr(stages, "SPAN_ROWS", 8)
    monkeypatch.setattr(stages, "_SPAN_PRODUCTS", {"numpy": 1, "jax": 1})


def sides(n=61, m=83, dim=7, seed=0):
    """Rows with copies, whose order must not depend on the spans."""
    rng = np.random.default_rng(seed)
    source, target = rng.standard_normal((n, dim)), rng.standard_normal((m, dim))
    source[40:50], target[60:80] = source[3], target[1]
    return source.astype(np.float32), target.astype(np.float32)


def die_after(function, calls):
    """As a function, until it is called once too often."""
    left = [calls]

    def dying(*args, **kwargs):
        if not left[0]:
            raise Killed
        left[0] -= 1
        return function(*args, **kwargs)

    return dying


def same(found, expected):
    for name in ("forward_cosines", "forward", "backward_cosines", "backward"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("k", [1, 4, 70])
def test_neighbors_in_spans_are_those_of_one_search(tmp_path, k):
    source, target = sides()
    found = stages.stage_candidates(tmp_path, {}, source, target, k)
    expected = mining.find_candidates(UnitRows(source), UnitRows(target), k)
    np.testing.assert_array_equal(found.forward, expected.forward)
    np.testing.assert_allclose(found.forward_cosines, expected.forward_cosines, atol=1e-6)
    np.testing.assert_allclose(found.backward_cosines, expected.backward_cosines, atol=1e-6)
    assert found.backward.shape == expected.backward.shape


@pytest.mark.parametrize("step", ["find_candidates", "whole_file", "keep_best"])
def test_a_search_killed_at_any_step_ends_with_the_same_bits(tmp_path, monkeypatch, step, caplog):
    source, target = sides()
    whole_directory = tmp_path / "whole"
    whole_directory.mkdir()
    expected = stages.stage_candidates(whole_directory, {}, source, target, 4)
    killed = tmp_path / "killed"
    killed.mkdir()
    module = mining if step == "find_candidates" else stages
    whole = getattr(module, step)
    caplog.set_level(logging.INFO)
    attempts = 0
    while True:
        attempts += 1
        monkeypatch.setattr(module, step, die_after(whole, 2 + attempts % 2))
        try:
            found = stages.stage_candidates(killed, {}, source, target, 4)
            break
        except Killed:
            continue
    same(found, expected)
    assert attempts > 2 and "continues with source text" in caplog.text
    assert [path.name for path in killed.iterdir()] == ["neighbors.npz"]


def test_vectors_continue_where_they_are_recorded(tmp_path, caplog):
    vectors, _ = sides()
    asked = []

    def encode(first, up_to=None):
        asked.append(first)
        for start in range(first, len(vectors), 10):
            if start == up_to:
                raise Killed
            yield vectors[start : start + 10]

    for up_to in (20, 20, 50):
        with pytest.raises(Killed):
            stages.stage_vectors(
                tmp_path, "source", {"a": (1,)}, lambda n, u=up_to: encode(n, u), vectors.shape
            )
        with open(tmp_path / "source.f32", "ab") as file:
            file.write(b"half a row")  # what was not recorded is not believed
    caplog.set_level(logging.INFO)
    found = stages.stage_vectors(tmp_path, "source", {"a": (1,)}, encode, vectors.shape)
    np.testing.assert_array_equal(found, vectors)
    assert asked == [0, 20, 20, 50] and "source: continues with text 51 of 61" in caplog.text
    del found
    found = stages.stage_vectors(tmp_path, "source", {"a": (1,)}, pytest.fail, vectors.shape)
    np.testing.assert_array_equal(found, vectors)
    stages.stage_vectors(tmp_path, "source", {"a": (2,)}, encode, vectors.shape)
    assert asked[-1] == 0


def test_a_full_disk_names_the_file(tmp_path):
    vectors, _ = sides()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            stages.stage_vectors(tmp_path, "source", {}, lambda first: [vectors], vectors.shape)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(tmp_path / "source.f32")


@pytest.mark.parametrize("ends", ["fails", "is killed"])
def test_vectors_made_for_other_settings_in_between_are_not_trusted(tmp_path, ends):
    vectors, _ = sides()
    encode = lambda first: [vectors[first:]]
    stages.stage_vectors(tmp_path, "source", {"model": "a"}, encode, vectors.shape)

    def fail(first):
        raise ValueError if ends == "fails" else Killed
        yield

    with pytest.raises((ValueError, Killed)):
        stages.stage_vectors(tmp_path, "source", {"model": "b"}, fail, vectors.shape)
    found = stages.stage_vectors(tmp_path, "source", {"model": "a"}, encode, vectors.shape)
    np.testing.assert_array_equal(found, vectors)


@pytest.mark.parametrize("step", ["find_candidates", "whole_file"])
def test_neighbors_found_with_other_settings_in_between_are_not_trusted(
    tmp_path, monkeypatch, step
):
    source, target = sides()
    expected = stages.stage_candidates(tmp_path, {"model": "a"}, source, target, 4)
    module = mining if step == "find_candidates" else stages
    with monkeypatch.context() as patch:
        patch.setattr(module, step, die_after(getattr(module, step), 0))
        with pytest.raises(Killed):
            stages.stage_candidates(tmp_path, {"model": "b"}, source[::-1], target, 4)
    same(stages.stage_candidates(tmp_path, {"model": "a"}, source, target, 4), expected)


def test_files_shorter_than_recorded_are_made_again(tmp_path):
    source, target = sides()
    encode = lambda first: [source[first:]]
    stages.stage_vectors(tmp_path, "source", {}, encode, source.shape)
    with open(tmp_path / "source.f32", "r+b") as file:
        file.truncate(source.nbytes - 4)
    found = stages.stage_vectors(tmp_path, "source", {}, encode, source.shape)
    np.testing.assert_array_equal(found, source)
    expected = stages.stage_candidates(tmp_path, {}, source, target, 4)
    half = (tmp_path / "neighbors.npz").read_bytes()[:500]
    for damage in (
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(half),
        Path.unlink,
    ):
        damage(tmp_path / "neighbors.npz")
        same(stages.stage_candidates(tmp_path, {}, source, target, 4), expected)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0)])
def test_an_empty_side_has_no_neighbors(tmp_path, sizes):
    found = stages.stage_candidates(tmp_path, {}, *(np.ones((size, 2)) for size in sizes), 4)
    assert found.forward.shape == (sizes[0], 0) and found.backward.shape == (sizes[1], 0)


def test_joined_rows_are_those_of_one_array():
    rows, _ = sides()
    joined = JoinedRows([rows[:10], rows[10:10], rows[10:33], rows[33:]])
    assert joined.shape == rows.shape and len(joined) == 61
    np.testing.assert_array_equal(joined[5:40], rows[5:40])
    np.testing.assert_array_equal(joined[55:100], rows[55:])
    chosen = np.array([60, 0, 10, 9, 33, 32, 10])
    np.testing.assert_array_equal(joined[chosen], rows[chosen])
    unit = UnitRows(joined, chosen)
    np.testing.assert_array_equal(unit.span(slice(2, 5))[0:3], UnitRows(rows)[chosen[2:5]])
    np.testing.assert_array_equal(UnitRows(rows).span(slice(7, 9))[:], UnitRows(rows)[7:9])
