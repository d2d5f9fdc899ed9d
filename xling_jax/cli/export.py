"""Writes a checkpoint as a model directory, and a model in another format.

An encoder of family static may also be written in another form.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from xling_jax.cli.arguments import MODEL_HELP, add_output, choose_checkpoints, refuse_existing
from xling_jax.files.lines import iterate_lines
from xling_jax.formats.registry import EXPORTERS, QUANTIZATIONS
from xling_jax.models.row_storage import IN_A_BYTE, MIXTURES, STORAGES, storage_of
from xling_jax.models.static_form import StaticForm
from xling_jax.options import OptionError, require_file, wrong_use
from xling_jax.runs.export import export_checkpoint

if TYPE_CHECKING:
    from xling_jax.encode.model_directory import ModelSpec

_logger = logging.getLogger(__name__)

_OF_A_RUN = {"workdir", "checkpoint"}
_OF_A_FORM = {
    *("average", "token_vectors", "storage"),
    *("principal_axes", "truncate_dim", "feature_dim"),
}
_OF_A_FORMAT = {"to", "quantize"}

EXAMPLES = """\
examples:
  xling export --workdir runs/t_laser --checkpoint 42000 --output models/t_laser
  xling export --model runs/static --storage int8 --principal-axes text.txt --truncate-dim 256 \\
      --output models/static
  xling export --to onnx --model mini --output onnx/mini --quantize int8
  xling export --to sentence-transformers --model runs/dual --output sbert/dual

A run exports its last or best checkpoint to WORKDIR/encoder. With --workdir, another one that it
keeps is exported, such as the best of those that xling evaluate --checkpoint compared.

With --model and --to, an encoder is written for other libraries, with the same vectors; what a
format cannot hold is refused. onnx: one file for onnxruntime, its tokenizer, and a script without
JAX (pip install 'xling_jax[onnx]'). sentence-transformers: transformers and static encoders without
features. model2vec: static encoders without features. laser: encoders converted from LASER (needs
PyTorch).

With --model alone, an encoder of family static is written in another form: with 8 bits per number
it takes a quarter of the space, with 4 an eighth; --storage pq takes 8 for tokens and 2 for pairs
and triples of them. --feature-dim shortens the vectors of pairs and triples alone. --average makes
one encoder of several runs on one text that differ in their seed (--config.seed), length or
objective: its vectors are the means of theirs, and usually a little better. A model named twice
counts twice. --token-vectors adds dimensions of your own, such as how positive a word is;
--principal-axes and --truncate-dim then bring the encoder back to its size.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workdir", help="directory of a run")
    parser.add_argument("--checkpoint", type=int, metavar="STEP", help="step of the checkpoint")
    parser.add_argument("--model", help=f"instead of a run: {MODEL_HELP}")
    formats = "; ".join(f"{name}: {EXPORTERS.help(name)}" for name in EXPORTERS)
    parser.add_argument("--to", choices=tuple(EXPORTERS), help=f"format to write; {formats}")
    parser.add_argument(
        "--quantize",
        choices=QUANTIZATIONS,
        help="with --to onnx: weights in 8 bits, and vectors close to those of the model",
    )
    parser.add_argument(
        "--average",
        action="extend",
        nargs="+",
        metavar="MODEL",
        help="static encoders: average the vectors with those of other runs on the same text "
        "and vocabulary; a model named twice counts twice",
    )
    parser.add_argument(
        "--token-vectors",
        metavar="FILE.npy",
        help="static encoders: add dimensions, [tokens, any] float32, a vector for each id of the "
        "vocabulary; a sentence gets the mean of those of its tokens",
    )
    parser.add_argument(
        "--storage",
        choices=STORAGES,
        help="static encoders: how parameters are stored; mixed is int8 for tokens and int4 for "
        "pairs and triples of them, pq int8 and product quantization (default: float32)",
    )
    parser.add_argument(
        "--principal-axes",
        metavar="FILE",
        help="static encoders: rotate vectors to their principal axes on this text, one sentence "
        "per line: the first dimensions then hold the most (--truncate-dim), and no cosine changes",
    )
    parser.add_argument(
        "--truncate-dim",
        type=int,
        metavar="DIM",
        help="static encoders: keep only the first dimensions",
    )
    parser.add_argument(
        "--feature-dim",
        type=int,
        metavar="DIM",
        help="static encoders with features: keep only the first dimensions of the vectors of "
        "pairs and triples; those of tokens keep theirs",
    )
    add_output(parser, "the model directory", metavar="DIR")


def run(args: argparse.Namespace) -> None:
    given = {name for name, value in vars(args).items() if value is not None}
    of_a_run, form, to = given & _OF_A_RUN, given & _OF_A_FORM, given & _OF_A_FORMAT
    is_model = "model" in given and not of_a_run
    if not (
        (of_a_run == _OF_A_RUN and not given & {"model", *form, *to})
        or (is_model and form and not to)
        or (is_model and "to" in to and not form)
    ):
        raise OptionError(
            "give --workdir and --checkpoint, or --model with --to, or --model with --average, "
            "--token-vectors, --storage, --principal-axes, --truncate-dim or --feature-dim"
        )
    if args.quantize and args.to != "onnx":
        raise OptionError(f"--quantize {args.quantize}: goes with --to onnx alone")
    refuse_existing(args.output, args.overwrite)
    if to:
        export_to(args)
        return
    if form:
        export_static(args)
        return
    (step,) = choose_checkpoints(args.workdir, str(args.checkpoint))
    export_checkpoint(args.workdir, step, args.output, overwrite=args.overwrite)
    _logger.info("encoder of step %d in %s", step, args.output)


def export_to(args: argparse.Namespace) -> None:
    """Writes the encoder of `--model` in the format of `--to`.

    Raises:
        OptionError: if there is no such model.
        ImportError: for a missing package.
        ValueError: if the model is damaged, or the format cannot hold it.
    """
    from xling_jax.encode.model_directory import find_model_directory

    options = {"quantize": args.quantize} if args.quantize else {}
    export = EXPORTERS[args.to]
    facts = export(
        find_model_directory(args.model), args.output, overwrite=args.overwrite, **options
    )
    described = "; ".join(f"{name.replace('_', ' ')}: {_fact(v)}" for name, v in facts.items())
    _logger.info("%s: %s, for %s; %s", args.output, args.model, args.to, described)


def _fact(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def export_static(args: argparse.Namespace) -> None:
    """Writes the static encoder of `--model` in another form.

    Raises:
        OptionError: if it is of another family.
        ValueError: if the model is damaged or the text has no sentences.
    """
    from xling_jax.encode.encoder import Encoder
    from xling_jax.encode.model_directory import find_model_directory, load_model, save_model
    from xling_jax.encode.static import StaticBackend, principal_axes

    spec = load_model(find_model_directory(args.model))
    if spec.config["family"] != "static":
        raise OptionError(f"--model {args.model}: is of family {spec.config['family']}, not static")
    form = dataclasses.replace(spec.static_form, storage="float32")
    params, training = spec.params, spec.config["training"]
    if args.average:
        params = _averaged(args, spec, form)
        training = training | {"averaged_runs": 1 + len(args.average)}
    if spec.truncate_dim and form.normalize and args.truncate_dim is None:
        raise OptionError(
            f"--model {args.model}: keeps {spec.truncate_dim} dimensions of vectors of length 1, "
            "and its new form would scale the shorter ones to that length; add --truncate-dim "
            f"{spec.truncate_dim} if that is wanted"
        )
    if spec.truncate_dim:  # what comes next is about the dimensions that are used
        form, params = form.rotated(
            params, np.eye(form.width, dtype=np.float32)[:, : spec.truncate_dim]
        )
    if args.token_vectors:
        form, params = _joined(args.token_vectors, form, params)
    if args.principal_axes:
        require_file(args.principal_axes, "--principal-axes")
        encoder = Encoder(
            StaticBackend(form, params),
            spec.vocab,
            specials=spec.config["specials"],
            max_length_tokens=spec.max_length_tokens,
            languages=spec.languages,
            fingerprint="",
            dim=form.width,
            prompts=spec.prompts,
            default_prompt=spec.default_prompt,
        )
        texts = iterate_lines(args.principal_axes)
        axes = principal_axes(
            encoder.encode_stream(texts, normalize=True), form.feature_width if form.features else 0
        )
        if axes is None:
            raise ValueError(f"{args.principal_axes}: has no text; axes need many sentences")
    else:
        axes = np.eye(form.width, dtype=np.float32)
    width, feature_dim = _chosen_dims(args, form)
    form, params = form.rotated(params, axes[:, :width])
    form, params = form.narrowed(params, feature_dim)
    if args.storage not in (None, "float32"):
        if args.storage == "pq":
            _logger.info("learning %d codebooks; about a minute", form.feature_dims // 4)
        form, params = form.quantized(params, args.storage)
    config = spec.config
    save_model(
        args.output,
        family="static",
        encoder_args=config["encoder"]
        | {"storage": form.storage, "width": width}
        | ({"feature_width": form.feature_width} if form.feature_width else {}),
        params=params,
        vocab=spec.vocab,
        languages=config["languages"],
        max_length_tokens=config["max_length_tokens"],
        training=training,
        prompts=spec.prompts,
        default_prompt=spec.default_prompt,
        overwrite=args.overwrite,
    )
    _logger.info("%s: %s, stored in %s", args.output, args.model, form.storage)


def _chosen_dims(args: argparse.Namespace, form: StaticForm) -> tuple[int, int]:
    """The dimensions to keep, of vectors and of features.

    Raises:
        OptionError: if the encoder has fewer, or the storage needs another number.
    """
    if args.feature_dim is not None and not form.features:
        raise OptionError(f"--feature-dim {args.feature_dim}: {args.model} has tokens alone")
    width = form.width if args.truncate_dim is None else args.truncate_dim
    most = min(form.feature_dims, width)
    feature_dim = most if args.feature_dim is None else args.feature_dim
    if args.storage in MIXTURES and not form.features:
        raise OptionError(
            f"--storage {args.storage}: {args.model} has tokens alone; use int8 or int4"
        )
    for option, dims, largest, kind in (
        ("--truncate-dim", width, form.width, "token"),
        ("--feature-dim", feature_dim, most, "feature"),
    ):
        if not 1 <= dims <= largest:
            raise OptionError(f"{option} {dims}: must be from 1 to {largest}")
        numbers = IN_A_BYTE.get(storage_of(args.storage or "float32", kind), 1)
        if excess := dims % numbers:
            fewer = f"{option} {dims - excess}" if dims > numbers else "--storage int8"
            raise OptionError(
                f"--storage {args.storage}: {numbers} numbers share a byte, so the dimensions of "
                f"{'pieces' if kind == 'token' else 'pairs and triples'} must be a multiple of "
                f"{numbers}; found {dims}; use {fewer}"
            )
    return width, feature_dim


def _averaged(args: argparse.Namespace, spec: ModelSpec, form: StaticForm) -> dict[str, np.ndarray]:
    """The mean of the encoder of `--model` and those of `--average`.

    Raises:
        OptionError: if they cannot be averaged.
        ValueError: if one is damaged.
    """
    from xling_jax.encode.model_directory import find_model_directory, load_model

    if form.normalize:
        raise OptionError(
            f"--average: {args.model} normalizes vectors; averaging tables does not average them"
        )
    others = [load_model(find_model_directory(path)) for path in args.average]
    for path, other in zip(args.average, others):
        if (
            other.config["family"] != "static"
            or dataclasses.replace(other.static_form, storage="float32") != form
            or other.vocab.fingerprint != spec.vocab.fingerprint
        ):
            raise OptionError(
                f"--average {path}: must be of the same form and vocabulary as {args.model}; "
                "average runs that differ in seed, length or objective alone"
            )
    try:
        return form.averaged([spec.params, *(other.params for other in others)])
    except ValueError as error:
        raise OptionError(f"--average: {error}; train them on the same text") from error


def _joined(
    path: str, form: StaticForm, params: Mapping[str, np.ndarray]
) -> tuple[StaticForm, dict[str, np.ndarray]]:
    """The form and parameters with the dimensions of a file.

    Raises:
        OptionError: if it cannot be read, or does not fit the encoder.
    """
    require_file(path, "--token-vectors")
    try:
        vectors = np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        raise OptionError(f"--token-vectors {path}: must be an intact .npy file") from error
    with wrong_use(f"--token-vectors {path}"):
        return form.joined(params, vectors)
