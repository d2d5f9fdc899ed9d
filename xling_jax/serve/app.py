"""Encoders over HTTP: OpenAI's API of embeddings, TEI's `/embed`, health, metrics and a search.

Starlette only; nothing here knows which server runs it. Texts are encoded in the micro-batches of
`batching`. Whatever a client sends, the answer to it is one line in OpenAI's form.
"""

import asyncio
import base64
import bisect
import collections
import functools
import hmac
import importlib.resources
import logging
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xling_jax.align.rows import l2_normalize
from xling_jax.encode.encoder import Encoder
from xling_jax.files.untrusted import one_line
from xling_jax.registry import did_you_mean
from xling_jax.serve.batching import Batcher, Limits, QueueFull
from xling_jax.serve.corpus import Corpus, Hit
from xling_jax.version import __version__

_logger = logging.getLogger(__name__)

_MOST_BODY_BYTES = 64 << 20
_MOST_HITS = 1000
_CLIENT_GONE = 499  # for the metrics only: nobody reads it
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Upper bounds of the histogram of response times.
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Refusal(HTTPException):
    """An answer other than 200: its status, one line, the parameter at fault and a code."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str = ""):
        super().__init__(status, message)
        self.param, self.code = param, code


def _wrong(where: str, rule: str, status: int = 400) -> Refusal:
    """The refusal of a parameter `NAME`, or of a text in it, `NAME[I]`."""
    return Refusal(status, f"{where}: {rule}", where.partition("[")[0])


def make_app(
    encoders: Mapping[str, Encoder],
    limits: Limits,
    api_key: str | None = None,
    corpus: Corpus | None = None,
) -> ASGIApp:
    """Makes the application for encoders by the names that requests give as `model`.

    Requests must bear the key, except those for health, metrics and the page; the page at the root
    searches the corpus with the first encoder.
    """
    service = _Service(encoders, limits, api_key)
    routes = [
        Route("/v1/embeddings", service.embeddings, methods=["POST"]),
        Route("/v1/models", service.models),
        Route("/v1/models/{name:path}", service.models),
        Route("/embed", service.embed, methods=["POST"]),
        Route("/health", service.health),
        Route("/metrics", service.show_metrics),
    ]
    if corpus is not None:
        page = importlib.resources.files("xling_jax.serve").joinpath("page.html").read_bytes()
        routes.append(Route("/", lambda request: Response(page, media_type="text/html")))
        routes.append(Route("/search", functools.partial(service.search, corpus=corpus)))
    handlers = {HTTPException: _refused, ClientDisconnect: _gone, Exception: _failed}
    return service.measured(Starlette(routes=routes, exception_handlers=handlers))


class _Metrics:
    """Counts of responses and their times by path, in the text format of Prometheus."""

    def __init__(self):
        self._responses: collections.Counter[tuple[str, int]] = collections.Counter()
        self._below: dict[str, list[int]] = {}
        self._seconds: collections.Counter[str] = collections.Counter()

    def add(self, path: str, status: int, seconds: float) -> None:
        """Counts a response."""
        self._responses[path, status] += 1
        self._seconds[path] += seconds
        below = self._below.setdefault(path, [0] * (len(_SECONDS) + 1))
        below[bisect.bisect_left(_SECONDS, seconds)] += 1

    def text(self, batchers: Mapping[str, Batcher]) -> str:
        """All metrics, with those of each model."""
        lines = ["# TYPE xling_requests_total counter"]
        for (path, status), count in sorted(self._responses.items()):
            lines.append(f'xling_requests_total{{path="{path}",status="{status}"}} {count}')
        lines.append("# TYPE xling_request_seconds histogram")
        for path, counts in sorted(self._below.items()):
            total = 0
            for bound, count in zip((*_SECONDS, "+Inf"), counts, strict=True):
                total += count
                lines.append(f'xling_request_seconds_bucket{{path="{path}",le="{bound}"}} {total}')
            lines.append(f'xling_request_seconds_sum{{path="{path}"}} {self._seconds[path]:.6f}')
            lines.append(f'xling_request_seconds_count{{path="{path}"}} {total}')
        for name, kind, attribute in (
            ("xling_texts_total", "counter", "num_texts"),
            ("xling_tokens_total", "counter", "num_tokens"),
            ("xling_batches_total", "counter", "num_batches"),
            ("xling_waiting_texts", "gauge", "num_waiting"),
        ):
            lines.append(f"# TYPE {name} {kind}")
            for model, batcher in batchers.items():
                label = model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
                lines.append(f'{name}{{model="{label}"}} {getattr(batcher, attribute)}')
        return "\n".join(lines) + "\n"


class _Service:
    """What the routes of one application share."""

    def __init__(self, encoders: Mapping[str, Encoder], limits: Limits, api_key: str | None):
        self._encoders, self._limits = encoders, limits
        self._key = None if api_key is None else f"Bearer {api_key}".encode()
        self._metrics = _Metrics()
        self._batchers = {name: Batcher(encoder, limits) for name, encoder in encoders.items()}

    async def embeddings(self, request: Request) -> Response:
        """OpenAI's `POST /v1/embeddings`; vectors have length 1, as theirs."""
        values = await self._values(
            request, "input", "model", "encoding_format", "dimensions", "user", "prompt_name"
        )
        if "model" not in values and len(self._encoders) > 1:
            raise _wrong("model", f"is missing; choose from {', '.join(self._encoders)}")
        name = values.get("model", next(iter(self._encoders)))
        encoder = self._encoder(name)
        texts = self._texts(values, "input")
        form = values.get("encoding_format", "float")
        if form not in ("float", "base64"):
            raise _wrong("encoding_format", f"must be float or base64; got {form!r:.40}")
        dim = _dimensions(values, encoder)
        prompt = _prompt(values, encoder)
        vectors, num_tokens = await self._encode(request, name, texts, prompt)
        vectors = l2_normalize(vectors[:, :dim])
        rows: Sequence[Any] = vectors
        if form == "base64":
            rows = [base64.b64encode(row).decode() for row in vectors.astype("<f4", copy=False)]
        data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
        usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
        return _json({"object": "list", "data": data, "model": name, "usage": usage})

    async def embed(self, request: Request) -> Response:
        """`POST /embed` of Hugging Face's text-embeddings-inference, by the first model."""
        known = ("inputs", "normalize", "truncate", "dimensions", "prompt_name")
        values = await self._values(request, *known)
        name, encoder = next(iter(self._encoders.items()))
        texts = self._texts(values, "inputs")
        dim, prompt = _dimensions(values, encoder), _prompt(values, encoder)
        is_unit = values.get("normalize", True)
        if not isinstance(is_unit, bool):
            raise _wrong("normalize", f"must be true or false; got {is_unit!r:.40}")
        vectors, _ = await self._encode(request, name, texts, prompt)
        vectors = vectors[:, :dim]
        return _json([*(l2_normalize(vectors) if is_unit else np.ascontiguousarray(vectors))])

    async def models(self, request: Request) -> Response:
        """OpenAI's `GET /v1/models`, and one of them by its name."""
        self._check_key(request)
        listed = {
            name: {
                "id": name,
                "object": "model",
                "created": 0,
                "owned_by": "xling_jax",
                "dimensions": encoder.dim,
                "max_length_tokens": encoder.max_length_tokens,
                "languages": encoder.languages,
                "fingerprint": encoder.fingerprint,
            }
            for name, encoder in self._encoders.items()
        }
        if (name := request.path_params.get("name")) is not None:
            self._encoder(name)
            return _json(listed[name])
        return _json({"object": "list", "data": [*listed.values()]})

    async def health(self, request: Request) -> Response:
        """`GET /health`: models are loaded before the server listens."""
        return _json({"status": "ok", "version": __version__})

    async def show_metrics(self, request: Request) -> Response:
        """`GET /metrics` for Prometheus."""
        return PlainTextResponse(self._metrics.text(self._batchers), media_type=_METRICS_TYPE)

    async def search(self, request: Request, corpus: Corpus) -> Response:
        """`GET /search?q=QUERY&k=10`: the nearest lines of the corpus."""
        self._check_key(request)
        name, encoder = next(iter(self._encoders.items()))
        query, k = request.query_params.get("q", ""), request.query_params.get("k", "10")
        if not (k.isascii() and k.isdigit() and len(k) < 9 and 1 <= int(k) <= _MOST_HITS):
            raise _wrong("k", f"must be from 1 to {_MOST_HITS}; got {k!r:.40}")
        hits: list[Hit] = []
        if query.strip():
            texts = self._texts({"q": query}, "q")
            vectors, _ = await self._encode(request, name, texts, encoder.prompts.get("query", ""))
            (hits,) = await asyncio.to_thread(corpus.nearest, vectors, int(k))
        about = {"text": corpus.path.name, "lines": len(corpus.lines), "model": name}
        about["languages"] = encoder.languages
        return _json(about | {"hits": [hit._asdict() for hit in hits]})

    def measured(self, app: Starlette) -> ASGIApp:
        """The application, whose responses are counted and timed."""
        known = {route.path for route in app.routes}

        async def measure(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            started, status = time.perf_counter(), _CLIENT_GONE

            async def note(message: Message) -> None:
                nonlocal status
                status = message.get("status", status)
                await send(message)

            try:
                await app(scope, receive, note)
            finally:
                path = scope["path"] if scope["path"] in known else "other"
                self._metrics.add(path, status, time.perf_counter() - started)

        return measure

    def _check_key(self, request: Request) -> None:
        given = request.headers.get("authorization", "").encode("latin-1")
        if self._key is not None and not hmac.compare_digest(given, self._key):
            message = "the header Authorization must be Bearer and the API key of this server"
            raise Refusal(401, message, code="invalid_api_key")

    async def _values(self, request: Request, *known: str) -> dict[str, Any]:
        """The JSON object of a request, without nulls; refuses keys that are not known."""
        self._check_key(request)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BODY_BYTES:
                raise Refusal(413, f"the request is longer than {_MOST_BODY_BYTES >> 20} MiB")
        try:
            values = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise Refusal(400, f"the request is not JSON: {one_line(error, 200)}") from None
        if not isinstance(values, dict):
            raise Refusal(400, f"the request must be a JSON object; got {values!r:.40}")
        for name in values.keys() - {*known}:
            hint = did_you_mean(name[:40], known)
            message = f"{name[:40]!r} is unknown; {hint or 'known are ' + ', '.join(known)}"
            raise Refusal(400, message, name[:40])
        return {name: value for name, value in values.items() if value is not None}

    def _encoder(self, name: Any) -> Encoder:
        if not isinstance(name, str) or name not in self._encoders:
            message = f"model: {name!r:.80} is unknown; known are {', '.join(self._encoders)}"
            raise Refusal(404, message, "model", "model_not_found")
        return self._encoders[name]

    def _texts(self, values: Mapping[str, Any], param: str) -> list[str]:
        texts = values.get(param)
        if isinstance(texts, str):
            texts = [texts]
        if not isinstance(texts, list) or not texts:
            raise _wrong(param, f"must be a text or a list of texts; got {texts!r:.40}")
        if len(texts) > (most := self._limits.max_texts):
            raise _wrong(param, f"has {len(texts)} texts; at most {most} are taken", 413)
        for i, text in enumerate(texts):
            if isinstance(text, (int, list)) and not isinstance(text, bool):
                message = "token ids are those of another tokenizer; send text (LangChain's "
                message += "OpenAIEmbeddings: check_embedding_ctx_length=False)"
                raise _wrong(param, message)
            where = f"{param}[{i}]"
            if not isinstance(text, str):
                raise _wrong(where, f"must be a text; got {text!r:.40}")
            if len(text) > (most := self._limits.max_characters):
                raise _wrong(where, f"has {len(text)} characters; at most {most} are taken", 413)
        return texts

    async def _encode(
        self, request: Request, name: str, texts: list[str], prompt: str
    ) -> tuple[np.ndarray, int]:
        if prompt:
            texts = [prompt + text for text in texts]
        try:
            return await _unless_gone(request, self._batchers[name].encode(texts))
        except QueueFull as error:
            raise Refusal(429, str(error), code="rate_limit_exceeded") from None


async def _unless_gone(request: Request, work: Awaitable[Any]) -> Any:
    """The result of work, which is cancelled when the client goes away."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refusal(_CLIENT_GONE, "the client has closed the connection")
        return working.result()
    finally:
        working.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    """Waits until the client has gone away; what it has still to say is not read by others."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _dimensions(values: Mapping[str, Any], encoder: Encoder) -> int:
    dim = values.get("dimensions", encoder.dim)
    if type(dim) is not int or not 1 <= dim <= encoder.dim:
        raise _wrong("dimensions", f"must be from 1 to {encoder.dim}; got {dim!r:.40}")
    return dim


def _prompt(values: Mapping[str, Any], encoder: Encoder) -> str:
    """The text before each input: that of `prompt_name`, or else the model's default."""
    name = values.get("prompt_name", encoder.default_prompt)
    if name is None:
        return ""
    if not isinstance(name, str) or name not in encoder.prompts:
        known = ", ".join(encoder.prompts) or "none"
        raise _wrong(
            "prompt_name", f"must be one of the model's prompts ({known}); got {name!r:.40}"
        )
    return encoder.prompts[name]


def _json(value: Any, status: int = 200) -> Response:
    content = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, status, media_type="application/json")


def _error(status: int, message: str, param: str | None = None, code: str = "") -> Response:
    """OpenAI's form of an error, which its client raises as the exception of the status."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    # Lone surrogates of what is quoted have no UTF-8.
    message = message.encode("utf-8", "backslashreplace").decode()
    error = {"message": message, "type": kind, "param": param, "code": code or None}
    return _json({"error": error}, status)


async def _refused(request: Request, error: HTTPException) -> Response:
    if isinstance(error, Refusal):
        return _error(error.status_code, error.detail, error.param, error.code)
    response = _error(error.status_code, f"{request.method} {request.url.path}: {error.detail}")
    response.headers.update(error.headers or {})
    return response


async def _gone(request: Request, error: ClientDisconnect) -> Response:
    return _error(_CLIENT_GONE, "the client has closed the connection")


async def _failed(request: Request, error: Exception) -> Response:
    _logger.error("%s failed: %s: %s", request.url.path, type(error).__name__, one_line(error))
    return _error(500, f"{type(error).__name__}: {one_line(error, 200)}")
