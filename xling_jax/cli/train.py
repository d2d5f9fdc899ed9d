"""`xling train`: prepare if needed, train, evaluate while training, export the encoder."""

import argparse
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from xling_jax.cli import common, distributed, prepare_data
from xling_jax.cli.remote import Workdir, local_config
from xling_jax.eval.during_training import Evaluator, check_evaluation, make_evaluators
from xling_jax.files.processes import Processes
from xling_jax.files.progress import Progress

logger = logging.getLogger(__name__)

EPILOG = """\
examples:
  xling train --config configs/ct_laser.py:small --workdir runs/ct_laser \\
      --config.data.corpora="('tsv:corpora/*.tsv.gz',)" --config.train.total_steps=2000
  xling train --config configs/ct_laser.py --workdir runs/x --dry-run

The same command started again continues from the last checkpoint. SIGTERM saves and leaves.
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "train",
        help="train an encoder from a config, or continue",
        description="Prepares the data if needed, trains, evaluates, exports the encoder.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    common.add_config_arguments(parser)
    distributed.add_arguments(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print config, parameters, buckets, FLOPs and memory; touches no data",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command; 143 if SIGTERM ended it before its last step."""
    config = common.load_config(args.config, args.config_overrides)
    if args.dry_run:
        from xling_jax.train.dry_run import describe

        print(describe(config))
        return 0
    with distributed.joined(args) as processes:
        return train_from_config(config, args.workdir, processes)


def train_from_config(config: ConfigDict, workdir: str, processes: Processes | None = None) -> int:
    """Prepares, trains and exports.

    Args:
        config: files it names may be at URLs.
        workdir: a directory, or `gs://BUCKET/PATH`, see `remote.Workdir`.
        processes: who trains together; None for this one alone.

    Returns:
        0 when the last step is done, 143 when SIGTERM ended the run before.
    """
    import jax

    from xling_jax.train.build import check_config

    try:
        check_config(config)
    except ValueError as error:
        raise common.UsageError(str(error)) from error
    run = Workdir(workdir, processes)
    original, config = config, local_config(config, "train", "evaluation")
    check_evaluation(config.evaluation, config.train.best_metric)
    _check_beginning(config)
    _refuse_other_run(config, run)
    with distributed.dying_of_sigterm():
        prepared = prepare_data.prepare_workdir(config, run)

    from xling_jax.text.vocab import Vocab
    from xling_jax.train.loop import train

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        cache = run.path.absolute() / "xla_cache"
        jax.config.update("jax_compilation_cache_dir", str(cache))
    vocab = Vocab(prepared.vocab_path, lowercase=config.vocab.lowercase)
    started = time.time()
    with _Sigterm() as sigterm, Progress("train") as progress:
        result = train(
            original,
            str(run.path),
            _corpus(prepared, vocab),
            evaluators=_evaluators(config, vocab),
            begin_with=_begin_with(config, vocab),
            should_stop=sigterm,
            on_step=progress,
            checkpoint_directory=run.checkpoints,
            publish=run.publish,
        )
    if result.step < result.total_steps:
        logger.info(
            "stopped at step %d of %d, checkpoint saved; the same command continues",
            result.step,
            result.total_steps,
        )
        return 143
    if jax.process_index() == 0:
        _export(config, vocab, result, run.path / "encoder", time.time() - started)
        run.publish_encoder()
        logger.info("encoder of step %d in %s/encoder", result.exported_step, workdir)
    return 0


def _check_beginning(config: ConfigDict) -> None:
    """Refuses word vectors or a model to begin with that are not there."""
    if config.train.word_vectors:
        common.require_file(config.train.word_vectors, "--config.train.word_vectors")
    if config.train.model_init:
        from xling_jax.encode.model_directory import find_model_directory

        try:
            find_model_directory(config.train.model_init)
        except ValueError as error:
            raise common.UsageError(f"--config.train.model_init: {error}") from error


def _corpus(prepared: Any, vocab: Any) -> Any:
    """What the loop is told of the prepared text."""
    from xling_jax.train.build import VocabFacts
    from xling_jax.train.loop import Corpus

    special_ids = {"bos": vocab.bos_id, "eos": vocab.eos_id, "pad": vocab.pad_id}
    never_masked = [
        number
        for number, piece in enumerate(vocab.pieces())
        if not any(character.isalnum() for character in piece)
    ]
    facts = VocabFacts(
        vocab.size,
        vocab.fingerprint,
        special_ids | {"mask": vocab.mask_id},
        tuple(never_masked),
    )
    return Corpus(str(prepared.directory), prepared.fingerprint, facts)


def _export(config: ConfigDict, vocab: Any, result: Any, directory: Path, seconds: float) -> None:
    """Writes the trained encoder as a model directory."""
    from xling_jax.encode.model_directory import save_model

    family, sizes = _encoder_arguments(config)
    save_model(
        directory,
        family=family,
        encoder_args={"vocab_size": vocab.size, **sizes},
        params=result.encoder_params,
        vocab=vocab,
        languages=config.languages,
        max_length_tokens=_max_length_tokens(config),
        training={
            "steps": result.step,
            "exported_step": result.exported_step,
            "pairs": list(config.data.pairs),
            "objective": config.objective.to_dict(),
            "seconds_of_last_run": round(seconds),
        },
        results=result.metrics,
        overwrite=True,
    )


def _refuse_other_run(config: ConfigDict, workdir: Workdir) -> None:
    """Raises before anything of a run is replaced, if its checkpoints are of another config."""
    from xling_jax.train.checkpoint import has_checkpoints
    from xling_jax.train.identity import config_difference

    saved = workdir.path / "config.json"
    if not saved.is_file() or not has_checkpoints(workdir.checkpoints):
        return
    if found := config_difference(json.loads(saved.read_text()), config.to_dict()):
        raise ValueError(
            f"{workdir.name}: its checkpoints belong to another run: {found}; choose another "
            "--workdir or restore the setting"
        )


def _begin_with(config: ConfigDict, vocab: Any) -> Callable[[Any], Any]:
    """What `train.word_vectors` and `train.model_init` make of fresh parameters."""

    def begin_with(params: Any) -> Any:
        if config.train.word_vectors:
            params = _put_word_vectors(config, vocab, params)
        return _put_model(config, vocab, params) if config.train.model_init else params

    return begin_with


def _put_word_vectors(config: ConfigDict, vocab: Any, params: Any) -> Any:
    from xling_jax.text.word_vectors import coverage, read_word_vectors
    from xling_jax.train.warm_start import put_word_vectors

    width = config.encoder.get("embedding_width", config.encoder.width)
    vectors, found = read_word_vectors(
        config.train.word_vectors, vocab.pieces(), config.languages, width, vocab.lowercase
    )
    covered = coverage(vocab.pieces(), found)
    logger.info(
        "word vectors for %.1f %% of the pieces, %.1f %% of those that are words",
        *(100 * covered["pieces"], 100 * covered["words"]),
    )
    return put_word_vectors(params, vectors, found)


def _put_model(config: ConfigDict, vocab: Any, params: Any) -> Any:
    import jax

    from xling_jax.encode.model_directory import find_model_directory, load_model
    from xling_jax.train.warm_start import put_encoder

    directory = find_model_directory(config.train.model_init)
    spec = load_model(directory)
    if spec.vocab.fingerprint != vocab.fingerprint:
        raise ValueError(
            f"train.model_init: {directory} has another vocabulary; give it to "
            "--config.vocab.model and prepare with it"
        )
    params, taken = put_encoder(params, spec.params)
    logger.info(
        "%d of the encoder's %d arrays are those of %s",
        taken,
        len(jax.tree.leaves(params["encoder"])),
        directory,
    )
    return params


MAX_LENGTH_TOKENS = 2000  # positions of the published T-LASER


def _max_length_tokens(config: ConfigDict) -> int:
    """Longest input of the exported encoder; a table of positions has an end."""
    if config.encoder.get("layers"):
        return config.encoder.get("max_length_tokens", MAX_LENGTH_TOKENS)
    return MAX_LENGTH_TOKENS


def _encoder_arguments(config: ConfigDict) -> tuple[str, dict[str, Any]]:
    """Family and constructor arguments that determine a vector (no dropout)."""
    from xling_jax.models.registry import ENCODERS

    arguments = config.encoder.to_dict()
    family = arguments.pop("family")
    training_only = ENCODERS[family].training_only
    return family, {name: v for name, v in arguments.items() if name not in training_only}


def _evaluators(config: ConfigDict, vocab: Any) -> Sequence[Evaluator]:
    """What `config.evaluation` names, as callables of (params, step)."""
    from xling_jax.encode.device_batches import DeviceBatches
    from xling_jax.encode.encoder import Encoder
    from xling_jax.models.registry import build_encoder

    family, arguments = _encoder_arguments(config)
    module = build_encoder(family, vocab_size=vocab.size, **arguments)
    encoder = Encoder(
        DeviceBatches(module, {}, vocab.pad_id),
        vocab,
        specials=module.specials,
        max_length_tokens=_max_length_tokens(config),
        languages=config.languages,
        fingerprint="",
        dim=module.dim,
    )
    return make_evaluators(config.evaluation, config.languages, encoder)


class _Sigterm:
    """Notes a SIGTERM instead of dying of it.

    One of several processes leaves the signal to JAX, which tells all of them.
    """

    def __init__(self):
        self._received = False

    def __call__(self) -> bool:
        return self._received

    def __enter__(self) -> "_Sigterm":
        import jax

        self._installed = not jax.distributed.is_initialized()
        if self._installed:
            self._previous = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGTERM, self._previous)

    def _note(self, *_: object) -> None:
        self._received = True
