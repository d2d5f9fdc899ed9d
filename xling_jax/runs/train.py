"""Training a run: prepares the data if needed, trains or continues, exports the encoder."""

import functools
import logging
import shutil
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from xling_jax.corpora.prepare import check_corpora
from xling_jax.corpora.shards import DamagedData
from xling_jax.corpora.specs import local_names
from xling_jax.eval.during_training import (
    Measure,
    check_metric,
    goal_of,
    make_evaluators,
    read_evaluation,
)
from xling_jax.files.cache import cache_is_chosen, keeps_collectives
from xling_jax.files.leaving import dying_of_sigterm, noting_signals
from xling_jax.files.progress import Progress
from xling_jax.options import wrong_use
from xling_jax.runs.beginning import Beginning
from xling_jax.runs.export import export_encoder, make_encoder
from xling_jax.runs.prepare import check_teacher, prepare_workdir
from xling_jax.runs.workdir import Processes, Workdir, parse_config, run_vocab
from xling_jax.train.callbacks import Callback
from xling_jax.train.experiment import Experiment
from xling_jax.train.training import VocabFacts, check, check_devices
from xling_jax.train.validation import is_validation

_logger = logging.getLogger(__name__)


def train_experiment(
    experiment: Experiment,
    workdir: str,
    processes: Processes | None = None,
    *,
    callbacks: Sequence[Callback] = (),
) -> int:
    """Prepares, trains and exports.

    Args:
        experiment: from `xling_jax.config.load`; files it names may be at URLs.
        workdir: a directory, or `gs://BUCKET/PATH`.
        processes: who trains together; None for this one alone.
        callbacks: called while training, see `train.callbacks`.

    Returns 0 when the last step is done and evaluated, 143 when SIGTERM ended the run, 130 when
    Ctrl-C did. OSError if another run is using the workdir.
    """
    with wrong_use():
        check_corpora(experiment.preparation)
        check(experiment)
        check_devices(experiment)
    run = Workdir(workdir, processes)
    experiment = continued(experiment, run)
    evaluation = local_names(experiment.evaluation)
    measures = read_evaluation(evaluation, experiment.languages, _evaluation_metric(experiment))
    beginning = Beginning.of(experiment)
    check_teacher(experiment)
    with run.in_use():
        return _train(experiment, measures, beginning, run, callbacks)


def check_dry_run(experiment: Experiment) -> None:
    """Raises ValueError for what is wrong with an experiment, as far as that shows without data."""
    check(experiment)
    evaluation, metric = experiment.evaluation, _evaluation_metric(experiment)
    if metric:
        check_metric(evaluation, metric)
        if all(Path(path).exists() for paths in evaluation.values() for path in paths):
            read_evaluation(evaluation, experiment.languages, metric)


def _evaluation_metric(experiment: Experiment) -> str:
    """`train.best_metric`, "" if that is none of the `evaluation` section."""
    best = experiment.train.best_metric
    return "" if is_validation(best) else best


def _train(
    experiment: Experiment,
    measures: Mapping[str, Measure],
    beginning: Beginning,
    run: Workdir,
    callbacks: Sequence[Callback],
) -> int:
    """Prepares, trains and exports in a workdir that no other run is in."""
    with dying_of_sigterm():
        prepared = prepare_workdir(experiment, run)

    from xling_jax.train.loop import Corpus, train  # with orbax, which takes a moment

    if not keeps_collectives():
        jax.config.update("jax_enable_compilation_cache", False)
        compilation_cache.reset_cache()  # what has compiled so far may have opened one
    elif not cache_is_chosen():
        cache = run.path.absolute() / "xla_cache"
        jax.config.update("jax_compilation_cache_dir", str(cache))
    vocab = run_vocab(run.path, experiment)
    started = time.monotonic()
    # JAX notifies several processes of a SIGTERM to one of them, for `reached_preemption`.
    several = jax.distributed.is_initialized()
    updated = threading.Event()

    class Own(Callback):
        """Shows the progress, and copies to a URL what a checkpoint or an evaluation belongs to."""

        def on_step(self, step: int, total_steps: int, compiling_s: float) -> None:
            updated.set()
            progress(step, total_steps, compiling_s)

        def on_checkpoint(self, *_: Any) -> None:
            run.publish()

        on_evaluation = on_checkpoint

    noting = noting_signals(pass_on=several, has_begun=updated.is_set)
    with noting as signal_received, Progress("train") as progress:
        begin = lambda: train(
            experiment,
            str(run.path),
            Corpus(str(prepared.directory), prepared.fingerprint, VocabFacts.of(vocab)),
            evaluators=make_evaluators(measures, make_encoder(experiment, vocab)),
            goal_of=functools.partial(goal_of, experiment.evaluation),
            begin_with=functools.partial(beginning, vocab, prepared.directory),
            should_stop=lambda: bool(signal_received()),
            checkpoint_directory=run.checkpoints,
            callbacks=[*callbacks, Own()],
        )
        try:
            result = begin()
        except DamagedData as error:
            if several or updated.is_set():  # others read them too, or have learned from them
                raise
            _logger.warning("%s: made again, as it is damaged (%s)", error.directory, error)
            shutil.rmtree(error.directory)
            prepare_workdir(experiment, run)
            result = begin()
    if not result.finished:
        _logger.info(
            "stopped at step %d of %d, checkpoint saved; run the same command to resume",
            *(result.step, result.total_steps),
        )
        return 128 + (signal_received() or signal.SIGTERM)
    if jax.process_index() == 0:
        export_encoder(
            experiment,
            vocab,
            result.encoder_params,
            run.path / "encoder",
            training={
                "steps": result.step,
                "exported_step": result.exported_step,
                "seconds_of_last_run": round(time.monotonic() - started),
            },
            results=result.metrics,
            overwrite=True,
        )
        run.publish_encoder()
        _logger.info("encoder of step %d in %s/encoder", result.exported_step, run.name)
    return 0


def continued(experiment: Experiment, workdir: Workdir) -> Experiment:
    """The experiment of a run that may have checkpoints: with the bucket lengths it began with."""
    content = workdir.read_config()
    if content is None or not workdir.has_checkpoints() or experiment.data.bucket_lengths:
        return experiment
    path = f"{workdir.name.rstrip('/')}/config.json"
    saved = parse_config(content, path)
    if not isinstance(saved, dict) or not isinstance(saved.get("data"), dict):
        raise ValueError(
            f"{path}: is not the config of a run; restore it, or remove it and start again"
        )
    lengths = tuple(saved["data"].get("bucket_lengths", ()))
    return experiment.replace({"data.bucket_lengths": lengths})
