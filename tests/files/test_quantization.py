"""Codes by hand, ranges over chunks, what does not fit."""

import numpy as np
import pytest

from xling_jax.files.quantization import check_ranges, learn_ranges, quantize


def test_int8_codes_are_steps_of_the_range():
    # Steps of 1 from 0 to 255, and a dimension without a range.
    ranges = check_ranges("int8", [[0, 0.25], [255, 0.25]], 2)
    values = np.array([-5, 0, 0.9, 1, 254.9, 255, 300])
    codes = quantize(np.stack([values, np.full(7, 0.25)], axis=1), "int8", ranges)
    assert codes.dtype == np.int8
    assert codes[:, 0].tolist() == [-128, -128, -128, -127, 126, 127, 127]
    assert codes[:, 1].tolist() == [-128] * 7


def test_signs_are_packed_in_bytes_by_hand():
    vectors = np.array([[0, 1e-9, -1, 5, 0, 0, 0, 2, -3, 7]])
    assert quantize(vectors, "ubinary").tolist() == [[0b01010001, 0b01000000]]
    assert quantize(vectors, "binary").tolist() == [[0b01010001 - 128, 0b01000000 - 128]]


def test_ranges_are_those_of_all_chunks():
    chunks = np.array([[[1, 5]], [[-2, 7]], [[0, 6]]])
    assert learn_ranges([chunks[0], np.empty((0, 2)), *chunks[1:]]).tolist() == [[-2, 5], [1, 7]]
    assert learn_ranges(chunks[::-1]).tolist() == [[-2, 5], [1, 7]]
    for few in ([], chunks[:1]):
        with pytest.raises(ValueError, match=f"at least 2; found {len(few)}"):
            learn_ranges(few)


def test_what_does_not_fit_is_refused():
    for ranges in ([[0], [np.inf]], [[np.nan], [np.nan]], [[1], [0]]):
        with pytest.raises(ValueError, match="the smallest and the largest .* all finite"):
            check_ranges("int8", ranges, 1)
    with pytest.raises(ValueError, match="ranges must be given for precision='int8' and only then"):
        check_ranges("float16", [[0], [1]], 1)
