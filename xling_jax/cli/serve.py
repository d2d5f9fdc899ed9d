"""Serves encoders over HTTP, in the API of OpenAI's embeddings.

Waiting requests are encoded together; vectors are those of Encoder.encode, of length 1. SIGTERM
finishes pending requests.
"""

import argparse
import errno
import logging
import os
import signal
import socket
from pathlib import Path
from typing import Any

from xling_jax.cli.arguments import MODEL_HELP, add_vector_options, load_encoder
from xling_jax.cli.options import add_options, options_from
from xling_jax.cli.search import add_corpus_options, check_corpus_options
from xling_jax.encode.encoder import Encoder
from xling_jax.options import OptionError
from xling_jax.registry import import_extra
from xling_jax.serve.batching import Limits
from xling_jax.serve.corpus import Corpus

_logger = logging.getLogger(__name__)

KEY_VARIABLE = "XLING_API_KEY"
# After SIGTERM; connections that are idle are closed at once.
_FINISHING_SECONDS = 60

EXAMPLES = """\
examples:
  xling serve --model mini --port 8000
  curl localhost:8000/v1/embeddings -H 'content-type: application/json' \\
      -d '{"model": "mini", "input": ["Good morning.", "Guten Morgen."]}'
  xling serve --model mini --text manual.txt
  xling serve --model mini news=runs/static/encoder --host 0.0.0.0

POST /v1/embeddings, GET /v1/models (OpenAI), POST /embed (text-embeddings-inference, by the first
model), GET /health, GET /metrics (Prometheus). With --text, the page at / and GET /search?q=QUERY
search it with the first model, see xling search. Needs pip install 'xling_jax[serve]'.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        required=True,
        nargs="+",
        action="extend",
        metavar="[NAME=]MODEL",
        help=f"{MODEL_HELP}; requests name it NAME, by default the last part of its path",
    )
    add_vector_options(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="0 for a free one (default: 8000)")
    parser.add_argument(
        "--api-key",
        metavar="KEY",
        help=f"refuse requests without it; better in ${KEY_VARIABLE}, which ps does not show",
    )
    add_corpus_options(parser, required=False)
    add_options(parser, Limits)


def run(args: argparse.Namespace) -> None:
    for package in ("starlette", "uvicorn", "orjson"):
        import_extra(package, "serve", "xling serve")
    import uvicorn

    from xling_jax.serve.app import make_app

    limits = options_from(args, Limits)
    api_key = args.api_key or os.environ.get(KEY_VARIABLE)
    names = _names(args.model)
    check_corpus_options(args)
    with _listening(args.host, args.port) as listener:
        encoders = {name: _load(path, args) for name, path in names.items()}
        corpus = None
        if args.text:
            first = next(iter(encoders.values()))
            corpus = Corpus(args.text, first, index=args.index, debias=args.debias)
        app = make_app(encoders, limits, api_key, corpus)
        host, port = listener.getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        described = ", ".join(f"{name} ({e.dim} dimensions)" for name, e in encoders.items())
        _logger.info("%s serves %s", url, described)
        quiet = {"log_config": None, "access_log": False, "lifespan": "off"}
        config = uvicorn.Config(app, timeout_graceful_shutdown=_FINISHING_SECONDS, **quiet)
        # uvicorn sends itself the signal again once it has finished.
        signal.signal(signal.SIGTERM, lambda *_: None)
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        uvicorn.Server(config).run(sockets=[listener])


def _names(models: list[str]) -> dict[str, str]:
    """Name -> path of each model."""
    names: dict[str, str] = {}
    for model in models:
        name, is_named, path = model.partition("=")
        if not is_named or os.path.exists(model):
            place, path = Path(os.path.abspath(model)), model
            name = (place.parent if place.name == "encoder" else place).name  # of a workdir
        if not name or name in names:
            raise OptionError(f"--model {model}: the name {name!r} is taken; write OTHER={path}")
        names[name] = path
    return names


def _load(path: str, args: argparse.Namespace) -> Encoder:
    encoder = load_encoder(path, args)
    encoder.warm_up()
    encoder.encode(["warm up"] * 16)  # imports what only many sentences need
    return encoder


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens; refuses what is in use before a model is loaded."""
    if not 0 <= port < 1 << 16:
        raise OptionError(f"--port {port}: must be from 0 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reasons: dict[Any, str] = {
            errno.EADDRINUSE: f"--port {port}: is in use on {host}; choose another, or 0",
            errno.EACCES: f"--port {port}: needs root; choose one above 1023",
        }
        unusable = (
            f"--host {host}: {error.strerror.partition(' (')[0]}; use an address of this machine"
        )
        raise OptionError(reasons.get(error.errno, unusable)) from error
