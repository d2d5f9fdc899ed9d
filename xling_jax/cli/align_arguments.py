"""Arguments of document alignment, for `xling align` and `xling evaluate alignment`.

They come from the command line, else from a config such as `configs/lawdr_wmt16.py`, whose keys are
their names, else from `_DEFAULTS`.
"""

from __future__ import annotations

import argparse
from typing import Any

from xling_jax.cli.common import UsageError, load_config
from xling_jax.cli.embed import DOCUMENT_MODES
from xling_jax.text.splitting import SPLITTERS, check_splitter

AUTO = "auto"
_CHOICES: dict[str, tuple[str, ...]] = {
    "weighting": ("kde", "none"),
    "density_on": ("raw", "debiased"),
    "similarity": ("margin", "cosine"),
    "document_mode": DOCUMENT_MODES,
    "splitter": SPLITTERS,
}
# An argument whose value is None was not given.
_DEFAULTS: dict[str, Any] = {name: values[0] for name, values in _CHOICES.items()} | {
    "debias": AUTO,
    "center": False,
    "k": 4,
    "domain": "",
    "url_matching": False,
}
_HELP = {
    "weighting": "kde: sentences weigh less where vectors of others are dense (default); none: "
    "mean of sentences",
    "similarity": "what scores pairs of documents (margin)",
    "density_on": "vectors whose density weighs (raw)",
    "document_mode": "what of a document is encoded at once: a sentence (default), as many as the "
    "model takes, or all of it, cut where the model ends",
    "splitter": "what finds sentences in 'text': rule, punctuation (default), or sentencex, by the "
    "language (pip install sentencex)",
}


def add_choice(parser: argparse.ArgumentParser, name: str) -> None:
    """Adds an argument that names one of a few ways."""
    option = f"--{name.replace('_', '-')}"
    parser.add_argument(option, choices=_CHOICES[name], help=_HELP[name])


def add_method_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what both commands share."""
    parser.add_argument(
        "--config",
        metavar="FILE[:ARG]",
        help="settings for what is not given here, such as configs/lawdr_wmt16.py:encoder=xlm; "
        "--config.KEY=VALUE changes one",
    )
    parser.add_argument(
        "--debias",
        type=_rank,
        metavar="N",
        help="components of each language to remove; 0 for none; auto (default): the fewest, of "
        "powers of two, after which a linear classifier cannot tell the languages",
    )
    parser.add_argument(
        "--center",
        action=argparse.BooleanOptionalAction,
        help="remove the mean of each language as well",
    )
    for name in ("density_on", "document_mode", "splitter"):
        add_choice(parser, name)
    parser.add_argument("--k", type=int, help="neighbors of the margin (4)")
    parser.add_argument(
        "--candidates",
        type=int,
        metavar="N",
        help="nearest documents of each that are scored; by default all pairs of domains of at "
        "most 16.8 million, else 16",
    )
    parser.add_argument(
        "--domain", metavar="FIELD", help="align only documents of equal values of this field"
    )
    parser.add_argument(
        "--url-matching",
        action=argparse.BooleanOptionalAction,
        help="accept first the pairs whose URLs differ in the name of the language only (WMT16)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the cross-validation (0)")
    parser.add_argument(
        "--memory-mb", type=float, default=512, help="memory to search in, beyond vectors (512)"
    )
    parser.add_argument(
        "--backend",
        choices=("auto", "numpy", "jax", "faiss"),
        default="auto",
        help="what searches; auto: JAX where it has an accelerator, else NumPy",
    )


def complete(args: argparse.Namespace) -> None:
    """Fills in what was not given, and refuses values out of range.

    Raises:
        UsageError: for such a value; it is named.
    """
    if args.config_overrides and not args.config:
        raise UsageError(f"{args.config_overrides[0]}: goes with --config FILE")
    config = load_config(args.config, args.config_overrides, training=False) if args.config else {}
    for name, default in _DEFAULTS.items():
        if getattr(args, name, None) is None:
            value = config.get(name)
            setattr(args, name, default if value is None else value)
    for name, known in _CHOICES.items():
        if getattr(args, name) not in known:
            raise UsageError(
                f"--config {args.config}: {name} must be one of {', '.join(known)}; "
                f"got {getattr(args, name)!r}"
            )
    check_splitter(args.splitter)
    for name in ("k", "candidates"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} {value} must be at least 1")
    if not args.memory_mb > 0:
        raise UsageError(f"--memory-mb {args.memory_mb:g} must be positive")
    try:
        args.debias = _rank(str(args.debias))
    except argparse.ArgumentTypeError as error:  # From a config.
        raise UsageError(f"--debias: {error}") from error
    if args.center and args.debias == 0:
        raise UsageError("--center: goes with debiasing; leave it out, or --debias 0")
    if args.density_on == "debiased" and args.debias == 0:
        raise UsageError("--density-on debiased: goes with debiasing; leave it out")


def _rank(text: str) -> int | str:
    """The argparse type of `--debias`."""
    if text == AUTO:
        return text
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be auto or at least 0; got {text!r}")
    return value
