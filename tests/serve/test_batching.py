"""Requests that wait share batches, and none of them can tell."""

import asyncio

import numpy as np
import pytest

import xling_jax
from xling_jax.serve.batching import Batcher, Limits, QueueFull

WORDS = ["one", "two", "three", "red", "blue", "house", "tree", "river", "sings", "sleeps"]


@pytest.fixture(scope="module")
def encoder():
    return xling_jax.load("mini")


def texts_of(seed, count):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(0, 40))) for _ in range(count)]


def test_concurrent_requests_get_their_vectors_and_share_batches(encoder):
    requests = [texts_of(i, size) for i, size in enumerate([1, 3, 200, 2, 1, 64, 5, 1, 17] * 4)]

    async def run():
        batcher = Batcher(encoder, Limits(batch_tokens=400))
        results = await asyncio.gather(*map(batcher.encode, requests))
        assert batcher.num_waiting == 0
        return batcher, results

    batcher, results = asyncio.run(run())
    for texts, (vectors, num_tokens) in zip(requests, results, strict=True):
        np.testing.assert_allclose(vectors, encoder.encode(texts), rtol=0, atol=1e-5)
        assert num_tokens == encoder.vocab.encode_flat(texts)[1].sum()
    assert batcher.num_texts == sum(map(len, requests))
    # 200 texts of 20 words are several batches; most of the requests of one text share one.
    tokens = batcher.num_tokens
    assert tokens / 400 < batcher.num_batches < len(requests) + tokens / 200


def test_what_nobody_waits_for_is_not_encoded(encoder):
    async def run():
        batcher = Batcher(encoder, Limits())
        first = asyncio.create_task(batcher.encode(["first"]))
        await asyncio.sleep(0)  # it is being computed
        gone = asyncio.create_task(batcher.encode(["gone"] * 100))
        last = asyncio.create_task(batcher.encode(["last"]))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(first, last)
        assert (batcher.num_texts, batcher.num_waiting) == (2, 0)

    asyncio.run(run())


def test_a_full_queue_refuses_but_an_empty_one_takes_any_request(encoder):
    async def run():
        batcher = Batcher(encoder, Limits(max_waiting=10))
        large = asyncio.create_task(batcher.encode(["large"] * 50))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match="50 texts are waiting"):
            await batcher.encode(["one more"])
        assert len((await large)[0]) == 50
        await batcher.encode(["one more"])

    asyncio.run(run())


def test_an_error_is_of_the_request_at_fault_alone(encoder):
    async def run():
        batcher = Batcher(encoder, Limits())
        requests = [["a"], [b""], ["b", "c"]]  # one batch
        first, failed, last = await asyncio.gather(
            *map(batcher.encode, requests), return_exceptions=True
        )
        assert isinstance(failed, ValueError)
        for (vectors, _), texts in ((first, requests[0]), (last, requests[2])):
            np.testing.assert_allclose(vectors, encoder.encode(texts), rtol=0, atol=1e-5)
        await batcher.encode(["next"])
        assert (batcher.num_texts, batcher.num_waiting) == (4, 0)

    asyncio.run(run())


def test_a_prompt_of_the_model_is_left_to_the_caller(encoder):
    prompted = encoder.with_prompt("query: ")

    async def run():
        return await Batcher(prompted, Limits()).encode(["query: red house"])

    vectors, _ = asyncio.run(run())
    np.testing.assert_allclose(vectors[0], prompted.encode("red house"), rtol=0, atol=1e-6)
