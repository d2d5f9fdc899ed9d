"""How the cleaning of corpora is divided."""

import numpy as np
import pytest

from xling_jax.corpora.prepare_jobs import is_in, shares_of


@pytest.mark.parametrize(
    "sizes, count",
    [
        ([7], 1),
        ([7], 5),
        ([1, 1, 1], 3),
        ([3, 10**12, 5, 1], 4),
        (list(np.random.default_rng(0).integers(1, 10**9, 40).tolist()), 7),
    ],
)
def test_every_chunk_is_of_one_process_and_all_have_as_much(sizes, count):
    shares = [shares_of(sizes, index, count) for index in range(count)]
    for corpus in range(len(sizes)):
        for number in range(1000):
            owners = [i for i in range(count) if is_in(number, shares[i][corpus])]
            assert len(owners) == 1
        begins = [i for i in range(count) if shares[i][corpus][0] == 0 < shares[i][corpus][1]]
        assert len(begins) == 1
    for own in shares:
        part = sum(s * (end - begin) for s, (begin, end) in zip(sizes, own, strict=True))
        np.testing.assert_allclose(part, sum(sizes) / count, rtol=1e-9)
    readings = sum(begin < end for own in shares for begin, end in own)
    assert readings <= len(sizes) + count - 1


def test_chunks_in_a_row_are_spread():
    """Any 32 chunks of a corpus hold as many of each fourth, give or take two."""
    for start in range(0, 300, 7):
        for index in range(4):
            (share,) = shares_of([1], index, 4)
            assert abs(sum(is_in(n, share) for n in range(start, start + 32)) - 8) <= 2
