"""Writes the encoder of one checkpoint of a run as a model directory."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

from ml_collections import ConfigDict

from xling_jax import config as config_lib
from xling_jax.cli.arguments import add_output, refuse_existing
from xling_jax.eval.tasks import TASKS
from xling_jax.options import OptionError

logger = logging.getLogger(__name__)

EXAMPLES = """\
examples:
  xling export --workdir runs/t_laser --checkpoint 42000 --output models/t_laser

A run exports its last or best checkpoint to WORKDIR/encoder; this is for another one that it keeps,
such as the best of those that xling evaluate --checkpoint compared.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workdir", required=True, help="directory of the run")
    parser.add_argument("--checkpoint", required=True, type=int, metavar="STEP", help="its step")
    add_output(parser, "the model directory", metavar="DIR")


def run(args: argparse.Namespace) -> None:
    refuse_existing(args.output, args.overwrite)
    (step,) = choose_checkpoints(args.workdir, str(args.checkpoint))
    export_checkpoint(args.workdir, step, args.output, overwrite=args.overwrite)
    logger.info("encoder of step %d in %s", step, args.output)


def choose_checkpoints(workdir: str, chosen: str) -> list[int]:
    """The steps of `--checkpoint STEP,STEP` or `all`, ascending.

    Raises:
        OptionError: if a run has no such checkpoint.
    """
    from xling_jax.train.checkpoint import kept_steps

    directory = Path(workdir) / "checkpoints"
    kept = kept_steps(directory) if directory.is_dir() else []
    if not kept:
        raise OptionError(f"--checkpoint {chosen}: {workdir} is no workdir with checkpoints")
    if chosen == "all":
        return kept
    words = chosen.split(",")
    steps = {int(word) for word in words if word.isdigit()}
    if len(steps) < len(words) or not steps <= {*kept}:
        known = ", ".join(map(str, kept))
        raise OptionError(f"--checkpoint {chosen}: {directory} has {known}; name some of them")
    return sorted(steps)


def export_checkpoint(
    workdir: str, step: int, directory: str | Path, *, overwrite: bool = False
) -> None:
    """Writes the encoder of a checkpoint as a model directory.

    Raises:
        ValueError: if the workdir or the checkpoint is damaged.
        OSError: if the workdir lacks a file, or writing fails.
    """
    import jax

    from xling_jax.cli.train import export_encoder, vocab_facts
    from xling_jax.text.vocab import Vocab
    from xling_jax.train.build import build
    from xling_jax.train.checkpoint import read_params
    from xling_jax.train.mesh import make_mesh
    from xling_jax.train.state import sharded_shapes

    path = Path(workdir)
    saved = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config = ConfigDict({name: value for name, value in saved.items() if name != "version"})
    config_lib.complete(config, TASKS)
    text = {"lowercase": config.vocab.lowercase, "moses": config.vocab.moses}
    vocab = Vocab(path / "vocab" / "sentencepiece.model", **text)
    mesh = make_mesh(devices=jax.devices()[:1])  # whatever the run was trained on
    targets = sharded_shapes(mesh, build(config, vocab_facts(vocab)).shapes)
    params = read_params(path / "checkpoints", step, targets)
    export_encoder(
        config,
        vocab,
        jax.device_get(params["encoder"]),
        directory,
        training={"exported_step": step},
        results={},
        overwrite=overwrite,
    )
