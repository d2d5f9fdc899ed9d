"""Requests to an ASGI application in this process."""

import asyncio
import json


async def ask(app, path, body=None, *, method=None, headers=(), goes_away=False):
    """Sends a request; returns status and body of the answer, read as JSON if it is that.

    Args:
        app: the application.
        path: with a query if need be.
        body: bytes, or a value that is sent as JSON; None for GET.
        method: by default POST with a body.
        headers: pairs of strings.
        goes_away: the client closes the connection when it has sent its request.
    """
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
        "method": method or ("GET" if body is None else "POST"),
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode("latin-1"),
        "server": ("test", 80),
        "headers": [(k.encode(), v.encode()) for k, v in headers],
    }
    content = (
        body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    )
    requests = iter([{"type": "http.request", "body": content}])
    answered, sent = asyncio.Event(), []

    async def receive():
        if (message := next(requests, None)) is not None:
            return message
        if not goes_away:
            await answered.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    answered.set()
    start, *parts = sent
    answer = b"".join(part.get("body", b"") for part in parts)
    is_json = dict(start["headers"]).get(b"content-type") == b"application/json"
    return start["status"], json.loads(answer) if is_json else answer.decode()
