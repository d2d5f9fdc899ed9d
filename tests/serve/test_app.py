"""What clients send and get, in this process."""

import asyncio
import base64
import copy
import json
import random

import numpy as np
import pytest

import xling_jax
from tests.serve.asking import ask
from xling_jax.serve.app import make_app
from xling_jax.serve.batching import Limits
from xling_jax.serve.corpus import Corpus

TEXTS = ["Good morning.", "Guten Morgen.", "", "日本", "a" * 300]


@pytest.fixture(scope="module")
def encoder():
    encoder = copy.copy(xling_jax.load("mini"))
    encoder.prompts = {"query": "query: "}
    return encoder


@pytest.fixture(scope="module")
def app(encoder):
    limits = Limits(max_texts=50, max_characters=1000)
    return make_app({"mini": encoder, "small": encoder.truncated(64)}, limits)


def answer(app, path, body=None, **options):
    return asyncio.run(ask(app, path, body, **options))


def vectors_of(app, **body):
    status, found = answer(app, "/v1/embeddings", {"model": "mini"} | body)
    assert status == 200, found
    assert [item["index"] for item in found["data"]] == [*range(len(found["data"]))]
    return [item["embedding"] for item in found["data"]], found


def test_vectors_are_those_of_encode_with_length_1(app, encoder):
    vectors, found = vectors_of(app, input=TEXTS)
    np.testing.assert_allclose(vectors, encoder.encode(TEXTS, normalize=True), rtol=0, atol=1e-6)
    tokens = sum(map(len, encoder.vocab.encode(TEXTS)))
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert (found["model"], found["object"]) == ("mini", "list")
    packed, _ = vectors_of(app, input=TEXTS, encoding_format="base64")
    unpacked = [np.frombuffer(base64.b64decode(row), "<f4") for row in packed]
    np.testing.assert_array_equal(np.float32(vectors), unpacked)
    (one,), _ = vectors_of(app, input=TEXTS[0])
    np.testing.assert_allclose(one, vectors[0], atol=1e-6)


def test_dimensions_prompt_and_model(app, encoder):
    short = encoder.encode(TEXTS, normalize=True, truncate_dim=64)
    by_argument, _ = vectors_of(app, input=TEXTS, dimensions=64)
    by_model, _ = vectors_of(app, input=TEXTS, model="small")
    np.testing.assert_allclose(by_argument, short, rtol=0, atol=1e-6)
    np.testing.assert_allclose(by_model, short, rtol=0, atol=1e-6)
    prompted, _ = vectors_of(app, input=TEXTS, prompt_name="query")
    expected = encoder.encode(TEXTS, normalize=True, prompt_name="query")
    np.testing.assert_allclose(prompted, expected, rtol=0, atol=1e-6)


def test_embed_of_text_embeddings_inference(app, encoder):
    _, unit = answer(app, "/embed", {"inputs": TEXTS})
    np.testing.assert_allclose(unit, encoder.encode(TEXTS, normalize=True), rtol=0, atol=1e-6)
    _, raw = answer(app, "/embed", {"inputs": TEXTS[0], "normalize": False, "dimensions": 8})
    np.testing.assert_allclose(raw, encoder.encode(TEXTS[:1])[:, :8], rtol=0, atol=1e-5)


def test_models_and_health(app):
    _, found = answer(app, "/v1/models")
    assert [(m["id"], m["dimensions"]) for m in found["data"]] == [("mini", 256), ("small", 64)]
    assert answer(app, "/v1/models/small")[1] == found["data"][1]
    assert answer(app, "/v1/models/other")[0] == 404
    assert answer(app, "/health")[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"model": "mini", "input": "\\ud800"}', 400, "not JSON"),
        ([], 400, "JSON object"),
        ({"input": "a"}, 400, "model: is missing; choose from mini, small"),
        ({"model": "none", "input": "a"}, 404, "model: 'none' is unknown; known are mini, small"),
        ({"model": "mini", "input": []}, 400, "input: must be a text or a list of texts"),
        ({"model": "mini", "input": [[1, 2]]}, 400, "check_embedding_ctx_length=False"),
        ({"model": "mini", "input": ["a", None]}, 400, "input[1]: must be a text; got None"),
        ({"model": "mini", "input": ["a"] * 51}, 413, "has 51 texts; at most 50"),
        ({"model": "mini", "input": ["a", "b" * 1001]}, 413, "input[1]: has 1001 characters"),
        ({"model": "mini", "input": "a", "dimensions": 257}, 400, "from 1 to 256; got 257"),
        ({"model": "mini", "input": "a", "dimensions": True}, 400, "dimensions"),
        ({"model": "mini", "input": "a", "dimension": 8}, 400, "did you mean dimensions?"),
        ({"model": "mini", "input": "a", "prompt_name": "q"}, 400, "prompts (query); got 'q'"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(app, body, status, message):
    found, answered = answer(app, "/v1/embeddings", body)
    assert found == status
    error = answered["error"]
    assert message in error["message"]
    assert "\n" not in error["message"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"


def test_long_requests_and_other_paths_are_refused(app, monkeypatch):
    assert answer(app, "/v1/embeddings", method="GET")[0] == 405
    assert answer(app, "/nothing")[0] == 404
    monkeypatch.setattr("xling_jax.serve.app._MOST_BODY_BYTES", 1 << 20)
    assert answer(app, "/v1/embeddings", b" " * (1 << 20) + b"{")[0] == 413


def test_2000_malformed_requests_get_an_answer_but_never_500(app):
    chooser = random.Random(0)
    values = [None, True, 0, -1, 1e308, "", "mini", "query", "float", [], {}, [[]], ["a"], [0]]
    values += ["\x00\x1b[2J", "𝒳" * 900, 10**30, ["a", {}], {"a": "b"}, [["a"]], "base64", 8]
    keys = ["model", "input", "inputs", "encoding_format", "dimensions", "user", "normalize"]
    keys += ["truncate", "prompt_name", "", "__class__", "é" * 100]

    def broken(content):
        at = chooser.randrange(len(content) + 1)
        kind = chooser.randrange(3)
        if kind == 0:
            return content[:at]
        noise = chooser.randbytes(chooser.randrange(1, 9))
        return content[:at] + noise + content[at + (kind == 1) * len(noise) :]

    async def run():
        statuses = {}
        for _ in range(2000):
            body = {key: chooser.choice(values) for key in chooser.sample(keys, 4)}
            if chooser.random() < 0.7:
                body = {"model": "mini", "input": "a"} | body
            if chooser.random() < 0.4:
                body = broken(json.dumps(body).encode())
            path = chooser.choice(
                ["/v1/embeddings", "/embed", "/v1/models/" + chooser.choice(keys)]
            )
            status, found = await ask(app, path, body)
            statuses[status] = statuses.get(status, 0) + 1
            if status != 200:
                assert "\n" not in found["error"]["message"]
        return statuses

    statuses = asyncio.run(run())
    assert statuses.keys() <= {200, 400, 404, 405, 413}
    assert statuses[400] > 1000


def test_the_key_is_asked_for_but_not_by_health_and_metrics(encoder):
    app = make_app({"mini": encoder}, Limits(), api_key="sécret")
    body = {"input": "a"}
    for given in ((), (("authorization", "Bearer wrong"),), (("authorization", "sécret"),)):
        for path, sent in (("/v1/embeddings", body), ("/v1/models", None), ("/embed", body)):
            status, found = answer(app, path, sent, headers=given)
            assert (status, found["error"]["code"]) == (401, "invalid_api_key")
    right = [("authorization", "Bearer sécret")]
    assert answer(app, "/v1/embeddings", body, headers=right)[0] == 200
    assert answer(app, "/health")[0] == answer(app, "/metrics")[0] == 200


def test_who_waits_too_many_is_told_429_and_who_is_gone_is_counted(encoder):
    app = make_app({"mini": encoder}, Limits(max_waiting=4))

    async def run():
        asked = [ask(app, "/embed", {"inputs": ["a"] * 3}) for _ in range(3)]
        gone = ask(app, "/embed", {"inputs": "gone"}, goes_away=True)
        first, *others, _ = await asyncio.gather(*asked, gone)
        return first, others, (await ask(app, "/metrics"))[1]

    (status, _), others, metrics = asyncio.run(run())
    assert status == 200
    assert [status for status, _ in others] == [429, 429]
    assert "3 texts are waiting" in others[0][1]["error"]["message"]
    assert 'xling_requests_total{path="/embed",status="499"} 1' in metrics
    assert 'xling_request_seconds_count{path="/embed"} 4' in metrics
    assert 'xling_waiting_texts{model="mini"} 0' in metrics


def test_the_page_and_its_search(encoder, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(["Das Haus ist rot.", "Wo ist der Bahnhof?"]))
    app = make_app({"mini": encoder}, Limits(), corpus=Corpus(text, encoder))
    assert "<title>Search by meaning</title>" in answer(app, "/")[1]
    status, found = answer(app, "/search?q=where%20is%20the%20station&k=1")
    assert (status, [hit["line"] for hit in found["hits"]]) == (200, [2])
    assert (found["text"], found["lines"], found["model"]) == ("text.txt", 2, "mini")
    assert answer(app, "/search")[1]["hits"] == []
    for k in ("0", "1001", "x", "1e3", "²", "0000000011111", "1" * 5000):
        assert answer(app, f"/search?q=a&k={k}")[0] == 400
    assert answer(app, f"/search?q={'a' * 100_001}")[0] == 413
