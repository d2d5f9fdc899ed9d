"""Codes by hand, what reads as numbers again, ranges over chunks, what does not fit."""

import numpy as np
import pytest

from xling_jax.files.quantization import QuantizedRows, Quantizer, learn_ranges, quantized_rows


def test_int8_codes_are_steps_of_the_range_and_read_as_their_middle():
    # Steps of 1 from 0 to 255, and a dimension without a range.
    quantizer = Quantizer("int8", 2, [[0, 0.25], [255, 0.25]])
    values = np.array([-5, 0, 0.9, 1, 254.9, 255, 300])
    codes = quantizer.quantize(np.stack([values, np.full(7, 0.25)], axis=1))
    assert codes.dtype == np.int8
    assert codes[:, 0].tolist() == [-128, -128, -128, -127, 126, 127, 127]
    assert codes[:, 1].tolist() == [-128] * 7
    expected = [[0.5, 0.25], [0.5, 0.25], [0.5, 0.25], [1.5, 0.25], [254.5, 0.25]]
    assert quantizer.dequantize(codes)[:5].tolist() == expected


def test_signs_are_packed_in_bytes_by_hand():
    vectors = np.array([[0, 1e-9, -1, 5, 0, 0, 0, 2, -3, 7]])
    unsigned, signed = Quantizer("ubinary", 10), Quantizer("binary", 10)
    assert unsigned.quantize(vectors).tolist() == [[0b01010001, 0b01000000]]
    assert signed.quantize(vectors).tolist() == [[0b01010001 - 128, 0b01000000 - 128]]
    for quantizer in (unsigned, signed):
        read = quantizer.dequantize(quantizer.quantize(vectors))
        assert read.tolist() == [[-1, 1, -1, 1, -1, -1, -1, 1, -1, 1]] and read.dtype == np.float32


def test_ranges_are_those_of_all_chunks():
    chunks = np.array([[[1, 5]], [[-2, 7]], [[0, 6]]])
    assert learn_ranges([chunks[0], np.empty((0, 2)), *chunks[1:]]).tolist() == [[-2, 5], [1, 7]]
    assert learn_ranges(chunks[::-1]).tolist() == [[-2, 5], [1, 7]]
    for few in ([], chunks[:1]):
        with pytest.raises(ValueError, match=f"at least 2; found {len(few)}"):
            learn_ranges(few)


def test_codes_without_ranges_are_numbers():
    codes = np.array([[-128, 0, 127]], np.int8)
    assert quantized_rows(codes, "int8")[:].tolist() == codes.tolist()


def test_what_does_not_fit_is_refused():
    for ranges in ([[0], [np.inf]], [[np.nan], [np.nan]], [[1], [0]]):
        with pytest.raises(ValueError, match="the smallest and the largest .* all finite"):
            Quantizer("int8", 1, ranges)
    with pytest.raises(ValueError, match=r"binary must be int8 \[n, 1\].*found uint8 \[2, 1\]"):
        QuantizedRows(np.zeros((2, 1), np.uint8), Quantizer("binary", 8))
