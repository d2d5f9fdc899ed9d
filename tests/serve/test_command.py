"""`xling serve` as a process, with the clients that people have."""

import concurrent.futures
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys

import httpx2 as httpx
import numpy as np
import pytest

import xling_jax


@contextlib.contextmanager
def serving(*arguments, **environment):
    """Starts a server on a free port; yields the process and the URL."""
    command = [sys.executable, "-m", "xling_jax.cli.main", "serve", "--port", "0", *arguments]
    environment = os.environ | environment
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        urls = (re.search(r"http://\S+", line) for line in server.stderr)
        yield server, next(filter(None, urls))[0]
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


@pytest.fixture(scope="module")
def server():
    with serving("--model", "mini", "other=mini", XLING_API_KEY="secret") as (_, url):
        yield url


def test_the_client_of_openai(server):
    openai = pytest.importorskip("openai")
    texts = ["Good morning.", "Guten Morgen."]
    expected = xling_jax.load("mini").encode(texts, normalize=True)
    with openai.OpenAI(base_url=f"{server}/v1", api_key="secret", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["mini", "other"]
        for form in ({}, {"encoding_format": "float"}):
            found = client.embeddings.create(model="mini", input=texts, **form)
            vectors = [item.embedding for item in found.data]
            np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-6)
        assert found.usage.total_tokens == found.usage.prompt_tokens > 0
        short = client.embeddings.create(model="other", input=texts[0], dimensions=64)
        assert len(short.data[0].embedding) == 64
        with pytest.raises(openai.BadRequestError, match="token ids"):
            client.embeddings.create(model="mini", input=[[1, 2]])
        with pytest.raises(openai.NotFoundError, match="known are mini, other"):
            client.embeddings.create(model="text-embedding-3-small", input="a")
    with (
        openai.OpenAI(base_url=f"{server}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()


@pytest.mark.slow
def test_sigterm_finishes_what_was_asked_before():
    texts = ["a house by the river"] * 300
    with serving("--model", "mini", "--batch-tokens", "500") as (server, url):

        def texts_received() -> int:
            metrics = httpx.get(f"{url}/metrics", timeout=60).text
            answered = re.search(r'path="/embed",status="200"} (\d+)', metrics)
            waiting = re.search(r'xling_waiting_texts{model="mini"} (\d+)', metrics)
            return int(waiting[1]) + len(texts) * int(answered[1] if answered else 0)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            ask = lambda _: httpx.post(f"{url}/embed", json={"inputs": texts}, timeout=60)
            answers = [pool.submit(ask, i) for i in range(8)]
            while texts_received() < 8 * len(texts):
                pass
            server.send_signal(signal.SIGTERM)
            for answer in answers:
                assert len(answer.result().json()) == len(texts)
        assert server.wait(timeout=30) == 0


def test_wrong_use_is_one_line(capsys):
    from xling_jax.cli.main import main

    def refused(*arguments):
        assert main(["serve", *map(str, arguments)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port {port}: is in use" in refused("--model", "mini", "--port", port)
    assert "--port 70000: must be" in refused("--model", "mini", "--port", 70000)
    ignored = ("--model", "mini", "--debias", 4, "--port", 70000)
    assert "--debias 4: requires --text" in refused(*ignored)
    assert "use an address of this machine" in refused("--model", "mini", "--host", "192.0.2.1")
    assert "the name 'mini' is taken; write OTHER=mini" in refused("--model", "mini", "mini")
    assert "none: no such directory" in refused("--model", "none", "--port", 0)
    assert "--max-texts=0 must be positive" in refused("--model", "mini", "--max-texts", 0)
