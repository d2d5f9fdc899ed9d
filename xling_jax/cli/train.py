"""Prepares the data if needed, trains, evaluates while training, exports the encoder."""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from xling_jax.cli import distributed, prepare_data
from xling_jax.cli.arguments import add_config_and_workdir, load_config
from xling_jax.cli.options import require_file
from xling_jax.cli.remote import Workdir, local_config
from xling_jax.eval.during_training import Evaluator, check_evaluation, make_evaluators
from xling_jax.files.json_text import parse_json
from xling_jax.files.processes import Processes
from xling_jax.files.progress import Progress
from xling_jax.options import OptionError

if TYPE_CHECKING:
    from xling_jax.corpora.prepare import PreparedData
    from xling_jax.text.vocab import Vocab
    from xling_jax.train.loop import Corpus

logger = logging.getLogger(__name__)

EXAMPLES = """\
examples:
  xling train --config ct_laser:small --workdir runs/ct_laser \\
      --config.data.corpora="('tsv:corpora/*.tsv.gz',)" --config.train.total_steps=2000
  xling train --config ct_laser --workdir runs/x --dry-run

The same command started again continues from the last checkpoint. SIGTERM saves and leaves.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_and_workdir(parser)
    distributed.add_arguments(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print config, parameters, buckets, FLOPs and memory; touches no data",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the command; 143 if SIGTERM ended it before its last step."""
    config = load_config(args.config, args.config_overrides)
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
        raise OptionError(str(error)) from error
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
    with _noting_sigterm() as sigterm, Progress("train") as progress:
        result = train(
            original,
            str(run.path),
            _corpus(prepared, vocab),
            evaluators=_evaluators(config, vocab),
            begin_with=functools.partial(_begin_with, config, vocab),
            should_stop=sigterm,
            on_step=progress,
            checkpoint_directory=run.checkpoints,
            publish=run.publish,
        )
    if result.step < result.total_steps:
        logger.info(
            "stopped at step %d of %d, checkpoint saved; the same command continues",
            *(result.step, result.total_steps),
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
        require_file(config.train.word_vectors, "--config.train.word_vectors")
    if config.train.model_init:
        from xling_jax.encode.model_directory import find_model_directory

        try:
            find_model_directory(config.train.model_init)
        except ValueError as error:
            raise OptionError(f"--config.train.model_init: {error}") from error


def _refuse_other_run(config: ConfigDict, workdir: Workdir) -> None:
    """Raises before anything of a run is replaced, if its checkpoints are of another config."""
    from xling_jax.train.checkpoint import has_checkpoints
    from xling_jax.train.identity import config_difference

    path = workdir.path / "config.json"
    if not path.is_file() or not has_checkpoints(workdir.checkpoints):
        return
    saved, current = parse_json(path.read_bytes(), str(path)), config.to_dict()
    if not isinstance(saved, dict) or not isinstance(saved.get("vocab"), dict):
        raise ValueError(f"{path}: is not the config of a run; restore it, or remove the workdir")
    found = config_difference(saved, current)
    # Checkpoints have the vocabulary's fingerprint, but preparing would have replaced it by then.
    for name, value in saved["vocab"].items():
        now = current["vocab"].get(name, value)
        if value != now:
            found = found or f"config.vocab.{name} is {value!r} in the checkpoint, {now!r} now"
    if found:
        raise ValueError(
            f"{workdir.name}: its checkpoints belong to another run: {found}; choose another "
            "--workdir or restore the setting"
        )


def _corpus(prepared: PreparedData, vocab: Vocab) -> Corpus:
    """The prepared text as the training loop takes it."""
    from xling_jax.train.build import VocabFacts
    from xling_jax.train.loop import Corpus

    special_ids = {"bos": vocab.bos_id, "eos": vocab.eos_id, "pad": vocab.pad_id}
    special_ids["mask"] = vocab.mask_id
    never_masked = tuple(
        number for number, piece in enumerate(vocab.pieces()) if not any(map(str.isalnum, piece))
    )
    facts = VocabFacts(vocab.size, vocab.fingerprint, special_ids, never_masked)
    return Corpus(str(prepared.directory), prepared.fingerprint, facts)


def _begin_with(config: ConfigDict, vocab: Vocab, params: Any) -> Any:
    """Fresh parameters with what `train.word_vectors` and `train.model_init` put into them."""
    if config.train.word_vectors:
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
        params = put_word_vectors(params, vectors, found)
    if config.train.model_init:
        import jax

        from xling_jax.encode.model_directory import find_model_directory, load_model
        from xling_jax.train.warm_start import put_encoder

        directory = find_model_directory(config.train.model_init)
        model = load_model(directory)
        if model.vocab.fingerprint != vocab.fingerprint:
            raise ValueError(
                f"train.model_init: {directory} has another vocabulary; give it to "
                "--config.vocab.model and prepare with it"
            )
        params, taken = put_encoder(params, model.params)
        count = len(jax.tree.leaves(params["encoder"]))
        logger.info("%d of the encoder's %d arrays are those of %s", taken, count, directory)
    return params


def _encoder_arguments(config: ConfigDict) -> tuple[str, dict[str, Any], int]:
    """Family, constructor arguments that determine a vector, and the longest input."""
    from xling_jax.models.registry import ENCODERS

    arguments = config.encoder.to_dict()
    family = arguments.pop("family")
    training_only = ENCODERS[family].training_only
    # A table of positions has an end; 2,000 is that of the published T-LASER.
    limit = arguments.get("max_length_tokens", 2000) if arguments.get("layers") else 2000
    return family, {k: v for k, v in arguments.items() if k not in training_only}, limit


def _evaluators(config: ConfigDict, vocab: Vocab) -> Sequence[Evaluator]:
    """What `config.evaluation` names, as callables of (params, step)."""
    from xling_jax.encode.device_batches import DeviceBatches
    from xling_jax.encode.encoder import Encoder
    from xling_jax.models.registry import build_encoder

    family, arguments, limit = _encoder_arguments(config)
    module = build_encoder(family, vocab_size=vocab.size, **arguments)
    encoder = Encoder(
        DeviceBatches(module, {}, vocab.pad_id),
        vocab,
        specials=module.specials,
        max_length_tokens=limit,
        languages=config.languages,
        fingerprint="",
        dim=module.dim,
    )
    return make_evaluators(config.evaluation, config.languages, encoder)


def _export(config: ConfigDict, vocab: Vocab, result: Any, directory: Path, seconds: float) -> None:
    """Writes the trained encoder as a model directory."""
    from xling_jax.encode.model_directory import save_model

    family, arguments, limit = _encoder_arguments(config)
    save_model(
        directory,
        family=family,
        encoder_args={"vocab_size": vocab.size, **arguments},
        params=result.encoder_params,
        vocab=vocab,
        languages=config.languages,
        max_length_tokens=limit,
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


@contextlib.contextmanager
def _noting_sigterm() -> Iterator[Callable[[], bool]]:
    """Yields a function that returns whether SIGTERM has come, which no longer ends the process.

    With several processes the signal is left to JAX, which notifies all of them.
    """
    import jax

    received: list[bool] = []
    if jax.distributed.is_initialized():
        yield lambda: False
        return
    previous = signal.signal(signal.SIGTERM, lambda *_: received.append(True))
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGTERM, previous)
