"""Functions mapped over chunks by several processes."""

import os

import pytest

from xling_jax.files.workers import map_in_order


def _square(value: int) -> int:
    return value * value


def _fail_at_three(value: int) -> int:
    if value == 3:
        raise ValueError("three")
    return value


def _exit(value: int) -> int:
    os._exit(9)


def test_map_in_order_keeps_order_and_errors_of_processes():
    assert list(map_in_order(_square, range(20), 2)) == [i * i for i in range(20)]
    with pytest.raises(ValueError, match="three"):
        list(map_in_order(_fail_at_three, range(20), 2))
    with pytest.raises(OSError, match="again with num_workers=1"):
        list(map_in_order(_exit, range(20), 2))
