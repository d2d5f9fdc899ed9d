"""Writes a checkpoint as a model directory, and a model in another format.

An encoder of family static may also be written smaller.
"""

import argparse
import dataclasses
import logging
from typing import Any

from xling_jax.cli.arguments import MODEL_HELP, add_output, choose_checkpoints, refuse_existing
from xling_jax.encode.model_directory import find_model_directory, load_model, save_changed
from xling_jax.formats.registry import EXPORTERS
from xling_jax.models.row_storage import STORAGES
from xling_jax.options import OptionError, wrong_use
from xling_jax.runs.export import export_checkpoint

_logger = logging.getLogger(__name__)

EXAMPLES = """\
examples:
  xling export --workdir runs/t_laser --checkpoint 42000 --output models/t_laser
  xling export --model runs/static --storage int8 --output models/static
  xling export --to onnx --model mini --output onnx/mini
  xling export --to web --model mini --output web/mini
  xling export --to sentence-transformers --model runs/dual --output sbert/dual

A run exports its last or best checkpoint to WORKDIR/encoder; --checkpoint takes another that it
keeps. --to writes for other libraries, with the same vectors: onnx with a script without JAX (pip
install 'xling_jax[onnx]'), sentence-transformers for transformers, model2vec for static encoders
without features, web for static encoders such as mini, laser for encoders converted from LASER
(needs PyTorch). --storage writes static encoders smaller: int8 takes a quarter of the space, int4
an eighth.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workdir", help="directory of a run")
    parser.add_argument("--checkpoint", type=int, metavar="STEP", help="step of the checkpoint")
    parser.add_argument("--model", help=f"instead of a run: {MODEL_HELP}")
    formats = "; ".join(f"{name}: {EXPORTERS.help(name)}" for name in EXPORTERS)
    parser.add_argument("--to", choices=tuple(EXPORTERS), help=f"format to write; {formats}")
    parser.add_argument(
        "--storage",
        choices=STORAGES,
        help="static encoders: how parameters are stored; mixed is int8 for tokens and int4 for "
        "pairs and triples of them (default: float32)",
    )
    parser.add_argument(
        "--truncate-dim",
        type=int,
        metavar="DIM",
        help="static encoders: keep only the first dimensions",
    )
    add_output(parser, "the model directory", metavar="DIR")


def run(args: argparse.Namespace) -> None:
    smaller = args.storage is not None or args.truncate_dim is not None
    if args.to and smaller:
        raise OptionError(
            f"--to {args.to}: write the smaller model first (leave out --to), then export that one"
        )
    from_run = None not in (args.workdir, args.checkpoint)
    from_run = from_run and not (args.model or args.to or smaller)
    from_model = args.model and args.workdir is args.checkpoint is None and (args.to or smaller)
    if not (from_run or from_model):
        raise OptionError(
            "give --workdir and --checkpoint, or --model with --to, or --model with --storage or "
            "--truncate-dim"
        )
    refuse_existing(args.output, args.overwrite)
    if args.to:
        export_to(args)
    elif smaller:
        export_static(args)
    else:
        (step,) = choose_checkpoints(args.workdir, str(args.checkpoint))
        export_checkpoint(args.workdir, step, args.output, overwrite=args.overwrite)
        _logger.info("encoder of step %d in %s", step, args.output)


def export_to(args: argparse.Namespace) -> None:
    """Writes the encoder of `--model` in the format of `--to`."""
    directory = find_model_directory(args.model)
    facts = EXPORTERS[args.to](directory, args.output, overwrite=args.overwrite)
    described = "; ".join(f"{name.replace('_', ' ')}: {_fact(v)}" for name, v in facts.items())
    _logger.info("%s: %s, for %s; %s", args.output, args.model, args.to, described)


def _fact(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def export_static(args: argparse.Namespace) -> None:
    """Writes the static encoder of `--model` in fewer dimensions or bits."""
    spec = load_model(find_model_directory(args.model))
    config = spec.config
    if spec.static is None:
        raise OptionError(f"--model {args.model}: is of family {config['family']}, not static")
    static, params = dataclasses.replace(spec.static, storage="float32"), spec.params
    if spec.truncate_dim and static.normalize and args.truncate_dim is None:
        raise OptionError(
            f"--model {args.model}: keeps {spec.truncate_dim} dimensions of vectors of length 1, "
            "and its new form would scale the shorter ones to that length; add --truncate-dim "
            f"{spec.truncate_dim} if that is wanted"
        )
    most = spec.truncate_dim or static.width
    width = most if args.truncate_dim is None else args.truncate_dim
    if not 1 <= width <= most:
        raise OptionError(f"--truncate-dim {width}: must be from 1 to {most}")
    static, params = static.truncated(params, width)
    if args.storage not in (None, "float32"):
        with wrong_use(f"--storage {args.storage}"):
            static, params = static.quantized(params, args.storage)
    save_changed(
        args.output,
        spec,
        encoder_args=config["encoder"]
        | {"storage": static.storage, "width": static.width}
        | ({"feature_width": static.feature_width} if static.feature_width else {}),
        params=params,
        truncate_dim=None,
        calibration=None,
        overwrite=args.overwrite,
    )
    _logger.info("%s: %s, stored in %s", args.output, args.model, static.storage)
