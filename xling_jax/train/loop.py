"""The training loop of all families: step, log, evaluate, save; stop at any time and resume."""

import dataclasses
import functools
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from xling_jax.corpora.shards import VALIDATION, pair_name
from xling_jax.devices import compute_dtype
from xling_jax.files.progress import counted
from xling_jax.files.whole import read_json, write_json
from xling_jax.text.languages import parse_pair
from xling_jax.train import flops
from xling_jax.train.batches import DataOptions, TranslationBatches, plan_summary, read_batches
from xling_jax.train.batching import MOST_BUCKETS, UPDATES_PER_LENGTH
from xling_jax.train.callbacks import Callback
from xling_jax.train.checkpoint import Checkpoints, first_of_all_processes
from xling_jax.train.experiment import Experiment
from xling_jax.train.identity import first_difference, identity
from xling_jax.train.mesh import make_mesh, to_global
from xling_jax.train.metrics import Interval, MetricsWriter
from xling_jax.train.profile import Profile
from xling_jax.train.programs import CompilationStopped, Programs, needed_programs
from xling_jax.train.selection import EarlyStopping, find_goal
from xling_jax.train.state import TrainState, count_parameters, sharded_shapes
from xling_jax.train.terms.term import TEACHERS
from xling_jax.train.training import (
    Training,
    VocabFacts,
    check_batch_multiple,
    check_validation_metrics,
    resolve,
)
from xling_jax.train.validation import SEED, Validation, is_validation, known_goal
from xling_jax.version import __version__

_logger = logging.getLogger(__name__)

Evaluator = Callable[[Any, int], Mapping[str, float]]  # (encoder params, step) -> metrics
# Metric -> `max` or `min`, whichever is better; None if it does not say.
GoalOf = Callable[[str], str | None]


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Prepared data: where the token shards are, their fingerprint, facts about the vocabulary."""

    directory: str
    fingerprint: str
    vocab: VocabFacts


@dataclasses.dataclass(frozen=True)
class Result:
    """How a run ended.

    Attributes:
        step: updates done.
        total_steps: updates requested; more than `step` if the run was stopped or ended early.
        ended_early: why `train.stop_metric` ended the run; "" if it did not.
        encoder_params: nested dict of host arrays, of the last or best step.
        exported_step: that step.
        metrics: the dev metrics of that step; if the run is not finished, the latest.
        compilations: number of compiled update functions.
        finished: whether nothing is left to train, nor the last step to evaluate.
    """

    step: int
    total_steps: int
    encoder_params: Any
    exported_step: int
    metrics: Mapping[str, float]
    compilations: int
    finished: bool
    ended_early: str = ""


def train(
    experiment: Experiment,
    workdir: str,
    corpus: Corpus,
    *,
    evaluators: Sequence[Evaluator] = (),
    goal_of: GoalOf = lambda metric: None,
    begin_with: Callable[[Any], Any] = lambda params: params,
    should_stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[int, int, float], None] = lambda step, total, compiling_s: None,
    checkpoint_directory: str = "",
    publish: Callable[[], None] = lambda: None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Trains, or resumes the run in `workdir`.

    Args:
        experiment: from `xling_jax.config.load`.
        workdir: for `config.json`, `checkpoints/`, `metrics.jsonl` and `tensorboard/`.
        corpus: prepared data.
        evaluators: map (encoder parameters, step) to named dev metrics; called by all processes at
            the same time, with parameters on all their devices.
        goal_of: whether a metric of theirs is better if it is higher (`max`) or lower (`min`).
        begin_with: maps the random parameters of a new run to its initial ones.
        should_stop: called after every update and while the run waits for a program to compile;
            True saves and returns. In one process; several stop as `jax.distributed` is told.
        on_step: called with (updates done, total updates, seconds that the last one compiled).
        checkpoint_directory: instead of `workdir/checkpoints`; may be a URL.
        publish: called when `workdir` has new evaluations, or all metrics of a checkpoint about to
            be saved.
        callbacks: of the program that trains.

    Raises:
        ValueError: if options do not fit each other or the checkpoint, or are not the same in all
            processes.
        FloatingPointError: if the loss or gradient is not finite.
        OSError: if a checkpoint cannot be written.
    """
    # 1. Devices, data, model.
    begun_s = time.monotonic()
    _check_processes(experiment)
    mesh = make_mesh(**experiment.mesh)
    batches = open_batches(experiment, corpus)
    experiment = experiment.with_bucket_lengths([b.length for b in batches.plan.buckets])
    epoch = batches.epoch(experiment.data.accumulation_steps)
    training = resolve(experiment, corpus.vocab, num_devices=mesh.size, epoch=epoch)
    options, objective, shapes = training.options, training.objective, training.shapes
    goals = {name: _goal(training, name, goal_of) for name in ("best", "stop")}
    validation = None
    if experiment.data.validates:
        held_out = open_validation(experiment, corpus)
        check_validation_metrics(training, held_out.directions)
        _logger.info("validation: %s", plan_summary(held_out))
        validation = Validation(objective, held_out, mesh, shapes.params)
    dtype = compute_dtype(experiment.compute_dtype).name

    # 2. The newest checkpoint, or arrays created on their devices.
    targets = sharded_shapes(mesh, shapes)
    checkpoints = Checkpoints(
        checkpoint_directory or Path(workdir, "checkpoints"),
        identity(training, dtype, corpus.vocab.fingerprint, corpus.fingerprint),
        keep_last=options.keep_last,
        keep_best=options.keep_best,
        best_metric=options.best_metric,
        best_goal=goals["best"],
        keep_steps=options.kept_steps,
    )
    steps, latest = training.steps(mesh), checkpoints.latest_step()
    accumulation = experiment.data.accumulation_steps
    needed = needed_programs(batches, accumulation, latest or 0, options.last_step)
    if jax.process_count() > 1:  # they must agree on the step at which they stop
        should_stop = lambda: False
    # They compile while the rest is made ready.
    with checkpoints, Programs(steps, objective, targets, needed, should_stop) as programs:
        if latest is None:
            shardings = jax.tree.map(lambda target: target.sharding, targets)
            state, start, progress = jax.jit(training.init, out_shardings=shardings)(), 0, {}
            state = state.replace(params=begin_with(state.params))
        else:
            state, start, progress = checkpoints.restore(targets)
            _logger.info("resuming from checkpoint %d", start)
        if jax.process_index() == 0:
            _write_config(experiment, Path(workdir) / "config.json", resumed=start > 0)
        parameters = counted(count_parameters(shapes.params), "parameter")
        if training.kept.first_row is not None:
            parameters += f", of which {training.num_trained:,} are trained"
        _logger.info("%s, %s, computing in %s", parameters, counted(mesh.size, "device"), dtype)
        _logger.info("batches: %s", plan_summary(batches))
        epochs, pairs = options.last_step / epoch.steps, counted(epoch.examples, "pair")
        # A row counts once for each direction that is trained.
        _logger.info("%s: %.3g epochs of %s", counted(options.last_step, "step"), epochs, pairs)
        if not evaluators and not validation:
            _logger.info(
                "no evaluation during training; add data sets under config.evaluation, or set "
                "data.validation_pairs"
            )

        # 3. The loop.
        due, over = bool(progress.get("evaluation_due")), start >= options.last_step
        if over and not progress.get("evaluated", True):  # when it was saved, the run was longer
            due = True
        run = _Run(
            mesh,
            training,
            batches,
            programs,
            checkpoints,
            MetricsWriter(
                workdir,
                resume_step=start,
                enabled=jax.process_index() == 0,
                evaluation_due=due,
                expected=progress.get("records", 0),
                evaluations=checkpoints.evaluations(),
            ),
            EarlyStopping(
                options.stop_metric,
                goals["stop"],
                options.stop_patience_steps,
                options.stop_min_improvement,
                options.stop_min_steps,
                progress.get("early_stopping"),
            ),
            Profile(options.profile_steps, workdir),
            validation,
            evaluators,
            should_stop,
            on_step,
            publish,
            callbacks,
            dev=dict(progress.get("dev", {})),
            evaluation_due=due,
        )
        try:
            state, step = run.loop(state, start, progress.get("interval"), begun_s)
        except FloatingPointError as error:
            checkpoints.wait()  # the one being written is good as well
            raise FloatingPointError(
                f"{error}; last good checkpoint: {checkpoints.latest_step()} in {workdir}"
            ) from None
        finally:
            run.profile.close()
            run.writer.close()
        checkpoints.wait()
        for callback in callbacks:
            callback.on_end(step, dict(run.dev))

        # 4. The encoder to export.
        total, reason = options.last_step, run.stopping.reason
        finished = bool(reason) or (step >= total and not run.evaluation_due)
        exported, params, dev = step, state.params, run.dev
        choose = finished and options.export == "best"
        if choose and (best := checkpoints.restore_best(targets, step)):
            exported, params = best
            dev = checkpoints.evaluations()[exported]
    compilations = sum(function._cache_size() for function in steps)
    encoder = _to_host(training.encoder(params))
    return Result(step, total, encoder, exported, dev, compilations, finished, reason)


def _check_processes(experiment: Experiment) -> None:
    """Raises ValueError, in all processes, if they have different experiments or versions."""
    if jax.process_count() == 1:
        return
    own = json.loads(json.dumps(_versioned(experiment)))
    here = f"in process {jax.process_index()}"
    found = first_difference(_from_first_process(own), own, "in process 0", here)
    if found := first_of_all_processes(found or ""):
        raise ValueError(f"{found}; start all processes with the same arguments and version")


def _write_config(experiment: Experiment, path: Path, resumed: bool) -> None:
    """Writes `config.json`; what a resumed run began with stays in it."""
    values = _versioned(experiment)
    values["train"] = dict(values["train"])
    before = (read_json(path) or {}).get("train", {}) if resumed else {}
    for name in ("model_init", "word_vectors"):
        now = values["train"][name]
        if before.get(name, now) != now:
            line = "train.%s=%r has no effect on a run with checkpoints; it began with %r"
            _logger.warning(line, name, now, before[name])
            values["train"][name] = before[name]
    write_json(path, values)


def _versioned(experiment: Experiment) -> dict[str, Any]:
    """The content of `config.json`."""
    return {"version": __version__, **experiment.config}


def _goal(training: Training, which: str, goal_of: GoalOf) -> str:
    """The direction of the metric that selects (`best`) or ends a run (`stop`)."""
    metric, given = (getattr(training.options, f"{which}_{what}") for what in ("metric", "goal"))
    if not metric:
        return "max"
    known = known_goal(metric, training.objective) if is_validation(metric) else goal_of(metric)
    return find_goal(f"train.{which}", metric, given, known)


def open_batches(experiment: Experiment, corpus: Corpus) -> TranslationBatches:
    """The batches of a run: the rows of this process."""
    check_batch_multiple(experiment.data.batch_multiple)
    open_with = functools.partial(
        _open, experiment, corpus, Path(corpus.directory), experiment.data, experiment.seed
    )
    batches = open_with()
    epoch = batches.epoch(experiment.data.accumulation_steps)
    most = max(1, experiment.train_options(epoch).total_steps // UPDATES_PER_LENGTH)
    if experiment.data.bucket_lengths or len(batches.plan.buckets) <= most:
        return batches
    return open_with(most_buckets=most)


def open_validation(experiment: Experiment, corpus: Corpus) -> TranslationBatches:
    """The held-out pairs, in batches as in training; pairs of languages may have none."""
    data, directory = experiment.data, Path(corpus.directory) / VALIDATION
    pairs = [
        d for d in data.pairs if (directory / pair_name(*parse_pair(d, allow_same=True))).is_dir()
    ]
    if not pairs:
        raise ValueError(f"{directory}: no validation text; run xling prepare again")
    data = dataclasses.replace(data, pairs=tuple(pairs))
    return _open(experiment, corpus, directory, data, SEED)


def _open(
    experiment: Experiment,
    corpus: Corpus,
    directory: Path,
    data: DataOptions,
    seed: int,
    most_buckets: int = MOST_BUCKETS,
) -> TranslationBatches:
    prefix, suffix = experiment.model.encoder.specials
    special_ids = corpus.vocab.special_ids
    return TranslationBatches(
        directory,
        data,
        languages=experiment.languages,
        prefix=[special_ids[name] for name in prefix],
        suffix=[special_ids[name] for name in suffix],
        pad_id=special_ids["pad"],
        vocab_size=corpus.vocab.size,
        seed=seed,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        teachers=experiment.reads & {*TEACHERS},
        width=experiment.model.encoder.dim,
        most_buckets=most_buckets,
    )


@dataclasses.dataclass
class _Run:
    """The loop and what it uses, of the latter the functions of `train`.

    `evaluation_due` says that the latest step is to be evaluated.
    """

    mesh: jax.sharding.Mesh
    training: Training
    batches: TranslationBatches
    programs: Programs
    checkpoints: Checkpoints
    writer: MetricsWriter
    stopping: EarlyStopping
    profile: Profile
    validation: Validation | None
    evaluators: Sequence[Evaluator]
    should_stop: Callable[[], bool]
    on_step: Callable[[int, int, float], None]
    publish: Callable[[], None]
    callbacks: Sequence[Callback]
    dev: dict[str, float]
    evaluation_due: bool

    def loop(
        self, state: TrainState, start: int, interval_progress: Any, begun_s: float
    ) -> tuple[TrainState, int]:
        """Runs updates start + 1 .. total; returns the state and the number of updates done."""
        options, data = self.training.options, self.training.experiment.data
        total, accumulation, kept = options.last_step, data.accumulation_steps, options.kept_steps
        dtype = compute_dtype(self.training.experiment.compute_dtype).name
        device = jax.local_devices()[0]
        # Of a CPU it is what a matrix product reaches beside all else that runs: no yardstick.
        peak = flops.peak_flops(device, dtype) if device.platform != "cpu" else 0.0
        objective, shapes = self.training.objective.without_remat(), self.training.shapes
        flops_of = flops.FlopsByShape(objective, shapes.params)
        interval = Interval(lambda step: f"pair {self._pairs(step)}", interval_progress)
        bounds = (number * accumulation for number in (start, total))
        source = read_batches(self.batches, *bounds, reader=data.reader)
        if self.evaluation_due:
            with interval.pause():
                self._evaluate(state, start)
            self.evaluation_due = False
            self.checkpoints.add_evaluation(start, self.dev, self._progress(evaluated=True))
        if self.stopping.reason:
            _logger.info("ended at step %d of %d: %s", start, total, self.stopping.reason)
            return state, start
        evaluated = False
        for step in range(start + 1, total + 1):
            micro_batches = [to_global(self.mesh, next(source)) for _ in range(accumulation)]
            compiled_s = self.programs.seconds
            self.profile.begin(step)
            try:
                state, sums = self._update(state, micro_batches, (step - 1) * accumulation)
            except CompilationStopped:
                interval.drain()
                with interval.pause():
                    self._save(state, step - 1, evaluated, interval.progress())
                return state, step - 1
            self.profile.end(step, sums)
            if step == start + 1:
                jax.block_until_ready(sums)
                elapsed_s = time.monotonic() - begun_s
                line = "first step after %.1f s (%.1f s of compilation)"
                _logger.info(line, elapsed_s, self.programs.seconds)
            interval.add(
                step,
                sums,
                flops=sum(map(flops_of, micro_batches)),
                padded_tokens=sum(2 * batch["source_tokens"].size for batch in micro_batches),
            )
            self.on_step(step, total, self.programs.seconds - compiled_s)
            for callback in self.callbacks:
                callback.on_step(step, total)
            # All processes must agree on the step.
            stopping = (
                self.checkpoints.reached_preemption(step)
                if jax.process_count() > 1
                else self.should_stop()
            )
            if step == total or step % options.log_every_steps == 0:
                interval.drain()
                self._log(step, interval.metrics(self.mesh.size, peak))
                interval.restart()
            due = step == total or step % options.evaluate_every_steps == 0
            # There may be only seconds to save, so a stop leaves it to the next start.
            evaluated = due and not (stopping and self._evaluates)
            self.evaluation_due = due and not evaluated
            saving = step % options.checkpoint_every_steps == 0 or step in kept
            # The best may be any that was measured.
            saving |= evaluated and bool(options.best_metric and options.keep_best)
            saving |= step == total or stopping
            if evaluated or saving:
                interval.drain()  # the time of the update is not part of the pause
            with interval.pause():
                if evaluated:
                    self._evaluate(state, step)
                over = evaluated and bool(self.stopping.reason)
                if over or saving:
                    self._save(state, step, evaluated, interval.progress())
            if over:
                _logger.info("ended at step %d of %d: %s", step, total, self.stopping.reason)
            if stopping or over:
                return state, step
        return state, max(start, total)

    def _pairs(self, step: int) -> str:
        """The language pairs of an update."""
        accumulation = self.training.experiment.data.accumulation_steps
        return self.batches.describe((step - 1) * accumulation, step * accumulation)

    def _save(self, state: TrainState, step: int, evaluated: bool, interval: Any) -> None:
        """Saves a checkpoint, unless parameters are not finite, which a finite gradient allows."""
        if not _all_finite(state.params):
            raise FloatingPointError(
                f"step {step}: parameters not finite on pair {self._pairs(step)}"
            )
        progress = self._progress(evaluated) | {"interval": interval}
        self.publish()
        _logger.info("step %d: saving a checkpoint", step)
        self.checkpoints.save(state, step, self.dev if evaluated else {}, progress)
        for callback in self.callbacks:
            callback.on_checkpoint(step)

    def _progress(self, evaluated: bool) -> dict[str, Any]:
        """What a checkpoint says about the evaluations of the run."""
        return {
            "dev": self.dev,
            "evaluated": evaluated,
            "evaluation_due": self.evaluation_due,
            "early_stopping": self.stopping.progress_to_save(),
            "records": self.writer.num_records,
        }

    def _update(
        self, state: TrainState, micro_batches: list[Any], first_index: int
    ) -> tuple[TrainState, Any]:
        """One update from its micro-batches."""
        index = lambda i: np.int32(first_index + i)
        call = self.programs.call
        if len(micro_batches) == 1:
            return call("train", state, micro_batches[0], index(0))
        accumulator = call("first", state, micro_batches[0], index(0))
        for number, batch in enumerate(micro_batches[1:], 1):
            accumulator = call("more", accumulator, state, batch, index(number))
        return call("apply", state, accumulator)

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        self.writer.write(step, values)
        for callback in self.callbacks:
            callback.on_log(step, values)
        terms = [term.logged for term in self.training.experiment.terms.values()]
        shown = ("loss", *terms, "tokens_per_second", "padding_efficiency", "mfu")
        if "train/loss_scale" in values:
            shown += ("loss_scale", "skipped_updates")
        shown = [name for name in shown if f"train/{name}" in values]
        line = " ".join(f"{name}={values[f'train/{name}']:.4g}" for name in shown)
        _logger.info("step %d %s", step, line)

    @property
    def _evaluates(self) -> bool:
        """True if anything is measured."""
        return bool(self.evaluators or self.validation)

    def _evaluate(self, state: TrainState, step: int) -> None:
        """Evaluates on all devices; all processes take the metrics of the first."""
        options = self.training.options
        named = {name: getattr(options, name) for name in ("best_metric", "stop_metric")}
        encoder = self.training.encoder(state.params)
        if not self._evaluates and not any(named.values()):
            self.dev = {}
            return
        if self._evaluates:
            _logger.info("step %d: evaluating", step)
        self.dev = self.validation(state.params) if self.validation else {}
        for evaluator in self.evaluators:
            self.dev |= evaluator(encoder, step)
        self.dev = _from_first_process(self.dev)
        for name, metric in named.items():
            if metric and metric not in self.dev:
                measured = f"use one of {', '.join(self.dev)}" if self.dev else "nothing is"
                raise ValueError(f"train.{name}={metric!r} is not measured; {measured}")
        self.stopping.update(step, self.dev)
        self.writer.write(step, self.dev)
        for callback in self.callbacks:
            callback.on_evaluation(step, dict(self.dev), encoder)
        self.publish()
        _logger.info("step %d %s", step, " ".join(f"{k}={v:.4g}" for k, v in self.dev.items()))


@jax.jit
def _all_finite(params: Any) -> jax.Array:
    return jnp.all(jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params)]))


def _to_host(params: Any) -> Any:
    """Parameters as host arrays on every process."""
    if jax.process_count() > 1:
        return multihost_utils.process_allgather(params, tiled=True)
    return jax.device_get(params)


def _from_first_process(values: Mapping[str, float]) -> dict[str, float]:
    """The JSON-like values of the first process, on every process."""
    if jax.process_count() == 1:
        return dict(values)
    text = np.frombuffer(json.dumps(dict(values)).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(text))))
    text = multihost_utils.broadcast_one_to_all(np.resize(text, size))
    return json.loads(np.asarray(text, np.uint8).tobytes())
