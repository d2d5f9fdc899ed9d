"""Training a run: prepares the data if needed, trains or continues, exports the encoder."""

from __future__ import annotations

import functools
import logging
import signal
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from xling_jax.corpora.held_out import held_out_difference
from xling_jax.corpora.prepare import is_made_with
from xling_jax.eval.during_training import (
    check_evaluation,
    goal_of,
    make_evaluators,
    read_evaluation,
)
from xling_jax.files.cache import cache_is_chosen
from xling_jax.files.hashes import hash_file
from xling_jax.files.json_text import parse_json
from xling_jax.files.leaving import dying_of_sigterm, noting_signals
from xling_jax.files.processes import Processes
from xling_jax.files.progress import Progress
from xling_jax.options import wrong_use
from xling_jax.runs.beginning import begin_with
from xling_jax.runs.checks import (
    check_beginning,
    check_goals,
    check_settings,
    evaluation_metrics,
)
from xling_jax.runs.copies import local_config, local_name
from xling_jax.runs.encoder import make_encoder
from xling_jax.runs.export import export_encoder
from xling_jax.runs.prepare import checked_settings, prepare_workdir
from xling_jax.runs.workdir import Workdir, run_vocab

if TYPE_CHECKING:
    from xling_jax.eval.during_training import Measure
    from xling_jax.train.callbacks import Callback

_logger = logging.getLogger(__name__)


def train_from_config(
    config: ConfigDict,
    workdir: str,
    processes: Processes | None = None,
    *,
    callbacks: Sequence[Callback] = (),
) -> int:
    """Prepares, trains and exports.

    Args:
        config: files it names may be at URLs.
        workdir: a directory, or `gs://BUCKET/PATH`, see `runs.workdir.Workdir`.
        processes: who trains together; None for this one alone.
        callbacks: called while training, see `train.callbacks`.

    Returns:
        0 when the last step is done and evaluated or `train.stop_metric` ended the run, 143 when
        SIGTERM did, 130 when Ctrl-C did.

    Raises:
        OSError: for example if another run is using the workdir; the message names that run.
    """
    from xling_jax.train.build import check_devices

    with wrong_use():
        check_settings(config)
        check_devices(config)
    run = Workdir(workdir, processes)
    original = continued(config, run)
    config = local_config(original, "train", "evaluation")
    metrics = evaluation_metrics(config)
    check_evaluation(config.evaluation, metrics)
    measures = read_evaluation(config.evaluation, config.languages, metrics)
    check_goals(config)
    check_beginning(config)
    with run.in_use():
        return _train(original, config, measures, run, callbacks)


def _train(
    original: ConfigDict,
    config: ConfigDict,
    measures: Mapping[str, Measure],
    run: Workdir,
    callbacks: Sequence[Callback],
) -> int:
    """Prepares, trains and exports in a workdir that no other run is in.

    Args:
        original: names the files of the run as the user did.
        config: names their copies on this machine.
        measures: what its evaluation section names, read.
        run: the workdir.
        callbacks: as given.
    """
    import jax

    with dying_of_sigterm():
        prepared = prepare_workdir(original, run)

    from xling_jax.train.build import VocabFacts
    from xling_jax.train.loop import Corpus, train

    if not cache_is_chosen():
        cache = run.path.absolute() / "xla_cache"
        jax.config.update("jax_compilation_cache_dir", str(cache))
    vocab = run_vocab(run.path, config)
    started = time.time()
    # JAX notifies several processes of a SIGTERM to one of them, for `reached_preemption`.
    several = jax.distributed.is_initialized()
    with noting_signals(pass_on=several) as signal_received, Progress("train") as progress:
        result = train(
            original,
            str(run.path),
            Corpus(str(prepared.directory), prepared.fingerprint, VocabFacts.of(vocab)),
            evaluators=make_evaluators(measures, make_encoder(config, vocab)),
            goal_of=functools.partial(goal_of, config.evaluation),
            begin_with=functools.partial(begin_with, config, vocab, prepared.directory),
            should_stop=lambda: bool(signal_received()),
            on_step=progress,
            checkpoint_directory=run.checkpoints,
            publish=run.publish,
            callbacks=callbacks,
        )
    if not result.finished:
        _logger.info(
            "stopped at step %d of %d, checkpoint saved; the same command continues",
            *(result.step, result.total_steps),
        )
        return 128 + (signal_received() or signal.SIGTERM)
    if jax.process_index() == 0:
        ended = {"ended_early": result.ended_early} if result.ended_early else {}
        export_encoder(
            original,
            vocab,
            result.encoder_params,
            run.path / "encoder",
            training={
                "steps": result.step,
                "exported_step": result.exported_step,
                "seconds_of_last_run": round(time.time() - started),
                **ended,
            },
            results=result.metrics,
            overwrite=True,
        )
        run.publish_encoder()
        _logger.info("encoder of step %d in %s/encoder", result.exported_step, run.name)
    return 0


def continued(config: ConfigDict, workdir: Workdir) -> ConfigDict:
    """The config of a run that may have checkpoints: with the bucket lengths that it began with.

    Raises before anything of a run is replaced, if its checkpoints are of another config.
    """
    from xling_jax.train.identity import config_difference

    content = workdir.read_config()
    if content is None or not workdir.has_checkpoints():
        return config
    path = f"{workdir.name.rstrip('/')}/config.json"
    saved = parse_json(content, path)
    if not isinstance(saved, dict) or not isinstance(saved.get("vocab"), dict):
        raise ValueError(f"{path}: is not the config of a run; restore it, or remove the workdir")
    if not config.data.bucket_lengths:
        config = config.copy_and_resolve_references()
        with config.unlocked():
            config.data.bucket_lengths = tuple(saved["data"].get("bucket_lengths", ()))
    current = config.to_dict()
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
    manifest = workdir.manifest()
    settings = checked_settings(config)
    if not manifest:
        return config
    try:
        found = held_out_difference(manifest, settings, hash_file, local_name)
    except FileNotFoundError:
        # On another machine the data may be there without what they were made from.
        if not is_made_with(manifest, settings):
            raise
    if found:
        raise ValueError(f"{workdir.name}: {found}")
    return config
