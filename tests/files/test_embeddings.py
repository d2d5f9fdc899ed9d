import io
import sys
import types

import numpy as np
import pytest

from xling_jax.files.embeddings import JoinedRows, read_embeddings, write_embeddings


@pytest.fixture
def embeddings():
    return np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)


def chunks_of(array, size):
    return (array[start : start + size] for start in range(0, len(array), size))


@pytest.mark.parametrize("format", ["npy", "laser"])
@pytest.mark.parametrize("rows", [0, 7])
def test_what_is_written_in_chunks_is_read(tmp_path, embeddings, format, rows):
    path = tmp_path / "e"
    written = write_embeddings(path, chunks_of(embeddings[:rows], 3), dim=5, format=format)
    assert written == rows
    found = read_embeddings(path, dim=5)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, embeddings[:rows])


def test_npy_is_what_numpy_reads_and_laser_is_bare_floats(tmp_path, embeddings):
    write_embeddings(tmp_path / "e.npy", chunks_of(embeddings, 2), dim=5)
    np.testing.assert_array_equal(np.load(tmp_path / "e.npy", mmap_mode="r"), embeddings)
    np.save(tmp_path / "numpy.npy", embeddings)
    assert (tmp_path / "e.npy").read_bytes() == (tmp_path / "numpy.npy").read_bytes()
    write_embeddings(tmp_path / "c.npy", [embeddings], dim=5, comment=f"# {'f' * 16}")
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy", mmap_mode="r"), embeddings)
    write_embeddings(tmp_path / "e.bin", [embeddings.astype(np.float64)], dim=5, format="laser")
    assert (tmp_path / "e.bin").read_bytes() == embeddings.astype("<f4").tobytes()


def test_an_existing_file_is_replaced_only_on_request(tmp_path, embeddings):
    write_embeddings(tmp_path / "e.npy", [embeddings], dim=5)
    with pytest.raises(FileExistsError, match="already exists"):
        write_embeddings(tmp_path / "e.npy", [embeddings[:1]], dim=5)
    write_embeddings(tmp_path / "e.npy", [embeddings[:1]], dim=5, overwrite=True)
    assert len(read_embeddings(tmp_path / "e.npy")) == 1
    with pytest.raises(ValueError, match="is a directory"):
        write_embeddings(tmp_path, [embeddings], dim=5, overwrite=True)


def test_half_floats_are_written_and_read(tmp_path, embeddings):
    write_embeddings(tmp_path / "e.npy", chunks_of(embeddings, 3), dim=5, precision="float16")
    assert np.load(tmp_path / "e.npy").dtype == np.float16
    found = read_embeddings(tmp_path / "e.npy")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, embeddings.astype(np.float16))


def test_joined_rows_are_those_of_each_array(embeddings):
    parts = [embeddings[:2], embeddings[:0], embeddings[2:3], embeddings[3:]]
    joined = JoinedRows(parts)
    assert joined.shape == (7, 5) and len(joined) == 7
    np.testing.assert_array_equal(joined[1:6], embeddings[1:6])
    picked = np.array([6, 2, 1, 3, 2, 0])
    np.testing.assert_array_equal(joined[picked], embeddings[picked])


def test_stdout_gets_the_whole_file(tmp_path, embeddings, monkeypatch):
    stdout = types.SimpleNamespace(buffer=io.BytesIO())
    monkeypatch.setattr(sys, "stdout", stdout)
    assert write_embeddings("-", chunks_of(embeddings, 3), dim=5) == 7
    stdout.buffer.seek(0)
    np.testing.assert_array_equal(np.load(stdout.buffer), embeddings)


@pytest.mark.parametrize(
    "chunks, format, message",
    [
        ([np.zeros((2, 4))], "npy", r"must have shape \[any, 5\]"),
        ([np.zeros(5)], "npy", r"must have shape \[any, 5\]"),
        ([], "bin", "format='bin' must be one of npy, laser"),
    ],
)
def test_chunks_of_another_size_and_unknown_formats_are_refused(tmp_path, chunks, format, message):
    with pytest.raises(ValueError, match=message):
        write_embeddings(tmp_path / "e", chunks, dim=5, format=format)


def test_wrong_sizes_are_named(tmp_path, embeddings):
    npy, laser = tmp_path / "e.npy", tmp_path / "e.bin"
    write_embeddings(npy, [embeddings], dim=5)
    write_embeddings(laser, [embeddings], dim=5, format="laser")
    whole, bare = npy.read_bytes(), laser.read_bytes()
    for path, content, dim, message in (
        (npy, whole, 4, "must have 4 dimensions; found 5"),
        (laser, bare, 4, "140 bytes is not a whole number of rows of 4"),
        (laser, bare, None, "give dim"),
        (npy, whole + b"1234", None, "140 bytes; found 144"),
        (npy, whole[:-1], None, "damaged .npy"),
        (npy, whole[:20], None, "damaged .npy"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_embeddings(path, dim=dim)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, np.float32),
        np.zeros((2, 3), np.float32, order="F"),
        np.zeros((2, 3), np.int8),
        np.array([[None, "x"]], dtype=object),
    ],
)
def test_other_arrays_are_refused(tmp_path, array):
    np.save(tmp_path / "e.npy", array)
    with pytest.raises(ValueError, match=r"must be floats \[n, dim\]|Python objects in dtype"):
        read_embeddings(tmp_path / "e.npy")
