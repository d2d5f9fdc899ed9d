"""The training loop of all families: step, log, evaluate, save; stop at any time and resume."""

import concurrent.futures
import dataclasses
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from xling_jax.corpora.shards import VALIDATION, pair_name
from xling_jax.devices import compute_dtype
from xling_jax.files.progress import counted
from xling_jax.files.whole import write_json
from xling_jax.sharding import make_mesh, to_global
from xling_jax.text.languages import parse_pair
from xling_jax.train.batch_plan import MOST_BUCKETS, UPDATES_PER_LENGTH
from xling_jax.train.batches import DataOptions, TranslationBatches, plan_summary, read_batches
from xling_jax.train.callbacks import Callback
from xling_jax.train.checkpoint import Checkpoints, texts_of_processes
from xling_jax.train.experiment import Experiment
from xling_jax.train.identity import first_difference, identity
from xling_jax.train.lora import merged
from xling_jax.train.loss_scale import all_finite
from xling_jax.train.metrics import Interval, MetricsWriter
from xling_jax.train.step import Steps, TrainState, count_parameters, sharded_shapes
from xling_jax.train.terms.term import TEACHERS
from xling_jax.train.training import Training, VocabFacts, check_devices, resolve
from xling_jax.train.validation import SEED, Validation, is_validation
from xling_jax.version import __version__

_logger = logging.getLogger(__name__)

# Between looks whether the run is to stop while a program compiles, in seconds.
_POLL_S = 0.2

Evaluator = Callable[[Any, int], Mapping[str, float]]  # (encoder params, step) -> metrics


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
        total_steps: updates requested; more than `step` if the run was stopped.
        encoder_params: nested dict of host arrays, of the last or best step.
        exported_step: that step.
        metrics: its dev metrics; empty if it was not evaluated.
        finished: whether nothing is left to train, nor the last step to evaluate.
    """

    step: int
    total_steps: int
    encoder_params: Any
    exported_step: int
    metrics: Mapping[str, float]
    finished: bool


def train(
    experiment: Experiment,
    workdir: str,
    corpus: Corpus,
    *,
    evaluators: Sequence[Evaluator] = (),
    goal_of: Callable[[str], str] = lambda metric: "max",
    begin_with: Callable[[Any], Any] = lambda params: params,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_directory: str = "",
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
        should_stop: called after every update and while a program compiles; True saves and returns.
            In one process; several stop as `jax.distributed` is told.
        checkpoint_directory: instead of `workdir/checkpoints`; may be a URL.
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
    lengths = tuple(bucket.length for bucket in batches.plan.buckets)
    experiment = experiment.replace({"data.bucket_lengths": lengths})
    epoch = batches.epoch(experiment.data.accumulation_steps)
    training = resolve(experiment, corpus.vocab, epoch=epoch)
    options, objective, shapes = training.options, training.objective, training.shapes
    goal = lambda metric: "min" if is_validation(metric) else goal_of(metric)
    validation = None
    if jax.process_count() > 1:  # they must agree on the step at which they stop
        should_stop = lambda: False
    if experiment.data.validation_pairs:
        held_out = open_validation(experiment, corpus)
        _logger.info("validation: %s", plan_summary(held_out))
        validation = Validation(objective, held_out, mesh, shapes.params)
    dtype = compute_dtype(experiment.compute_dtype).name

    # 2. The newest checkpoint, or arrays created on their devices.
    targets = sharded_shapes(mesh, shapes)
    checkpoints = Checkpoints(
        checkpoint_directory or Path(workdir, "checkpoints"),
        identity(training, dtype, corpus.vocab.fingerprint, corpus.fingerprint),
        options,
        goal(options.best_metric),
    )
    with checkpoints:
        if checkpoints.latest_step() is None:
            shardings = jax.tree.map(lambda target: target.sharding, targets)
            state, start, progress = jax.jit(training.init, out_shardings=shardings)(), 0, {}
            state = state.replace(params=begin_with(state.params))
        else:
            state, start, progress = checkpoints.restore(targets)
            _logger.info("resuming from checkpoint %d", start)
        is_first = jax.process_index() == 0
        if is_first:
            write_json(Path(workdir) / "config.json", _versioned(experiment))
        parameters = counted(count_parameters(shapes.params), "parameter")
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
        evaluations = checkpoints.evaluations()
        run = _Run(
            mesh,
            training,
            batches,
            training.steps(mesh),
            checkpoints,
            MetricsWriter(workdir, start, is_first, progress.get("records", 0), evaluations),
            validation,
            evaluators,
            should_stop,
            callbacks,
            str(Path(workdir) / "profile"),
        )
        try:
            state, step = run.loop(state, start, progress.get("interval"), begun_s)
        except FloatingPointError as error:
            checkpoints.wait()  # the one being written is good as well
            raise FloatingPointError(
                f"{error}; last good checkpoint: {checkpoints.latest_step()} in {workdir}"
            ) from None
        finally:
            run.end_trace()
            run.writer.close()
        checkpoints.wait()
        evaluations = checkpoints.evaluations()
        for callback in callbacks:
            callback.on_end(step, dict(next(reversed(evaluations.values()), {})))

        # 4. The encoder to export.
        finished = step >= options.last_step and not run.is_due(step)
        exported, params = step, state.params
        if finished and options.export == "best" and checkpoints.best_steps()[:1] != [step]:
            exported, params = checkpoints.restore_best(targets)
    encoder = multihost_utils.process_allgather(merged(params)["encoder"], tiled=True)
    metrics = evaluations.get(exported, {})
    return Result(step, options.last_step, encoder, exported, metrics, finished)


def _check_processes(experiment: Experiment) -> None:
    """Raises ValueError, in all processes, if they have different experiments or versions."""
    own = json.dumps(_versioned(experiment))
    first, here = texts_of_processes(own)[0], f"in process {jax.process_index()}"
    found = first_difference(json.loads(first), json.loads(own), "in process 0", here)
    if found := next(filter(None, texts_of_processes(found or "")), ""):
        raise ValueError(f"{found}; start all processes with the same arguments and version")


def _versioned(experiment: Experiment) -> dict[str, Any]:
    """The content of `config.json`."""
    return {"version": __version__, **experiment.config}


def open_batches(experiment: Experiment, corpus: Corpus) -> TranslationBatches:
    """The batches of a run: the rows of this process."""
    data = experiment.data
    check_devices(experiment)
    batches = _open(experiment, corpus.vocab, corpus.directory, data, experiment.seed)
    epoch = batches.epoch(data.accumulation_steps)
    most = max(1, experiment.train_options(epoch).total_steps // UPDATES_PER_LENGTH)
    if data.bucket_lengths or len(batches.plan.buckets) <= most:
        return batches
    return _open(experiment, corpus.vocab, corpus.directory, data, experiment.seed, most)


def open_validation(experiment: Experiment, corpus: Corpus) -> TranslationBatches:
    """The held-out pairs, in batches as in training; pairs of languages may have none."""
    data, directory = experiment.data, Path(corpus.directory) / VALIDATION
    pairs = [
        d for d in data.pairs if (directory / pair_name(*parse_pair(d, allow_same=True))).is_dir()
    ]
    if not pairs:
        raise ValueError(f"{directory}: no validation text; run xling prepare again")
    data = dataclasses.replace(data, pairs=tuple(pairs))
    return _open(experiment, corpus.vocab, directory, data, SEED)


def _open(
    experiment: Experiment,
    vocab: VocabFacts,
    directory: str | Path,
    data: DataOptions,
    seed: int,
    most_buckets: int = MOST_BUCKETS,
) -> TranslationBatches:
    prefix, suffix = experiment.model.encoder.specials
    return TranslationBatches(
        directory,
        data,
        languages=experiment.languages,
        prefix=[vocab.special_ids[name] for name in prefix],
        suffix=[vocab.special_ids[name] for name in suffix],
        pad_id=vocab.special_ids["pad"],
        vocab_size=vocab.size,
        seed=seed,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        teachers=experiment.reads & {*TEACHERS},
        width=experiment.model.encoder.dim,
        most_buckets=most_buckets,
    )


class _CompilationStopped(Exception):
    """The run is to stop while a program compiles, before any array is donated."""


@dataclasses.dataclass
class _Run:
    """The loop, and what it uses."""

    mesh: jax.sharding.Mesh
    training: Training
    batches: TranslationBatches
    steps: Steps
    checkpoints: Checkpoints
    writer: MetricsWriter
    validation: Validation | None
    evaluators: Sequence[Evaluator]
    should_stop: Callable[[], bool]
    callbacks: Sequence[Callback]
    trace_directory: str
    is_tracing: bool = False
    compiled: set[Any] = dataclasses.field(default_factory=set)
    compiling_s: float = 0.0

    def loop(
        self, state: TrainState, start: int, interval_progress: Any, begun_s: float
    ) -> tuple[TrainState, int]:
        """Runs updates start + 1 .. total; returns the state and the number of updates done."""
        options, data = self.training.options, self.training.experiment.data
        total, accumulation, kept = options.last_step, data.accumulation_steps, options.kept_steps
        traced = options.profile_steps or (0, 0)
        interval = Interval(lambda step: f"pair {self._pairs(step)}", interval_progress)
        bounds = (number * accumulation for number in (start, total))
        source = read_batches(self.batches, *bounds, reader=data.reader)
        if start and self.is_due(start):
            with interval.pause():
                dev = self._evaluate(state, start)
            self.checkpoints.add_evaluation(start, dev, {"records": self.writer.num_records})
        dev: Mapping[str, float] = {}
        for step in range(start + 1, total + 1):
            micro_batches = [to_global(self.mesh, next(source)) for _ in range(accumulation)]
            compiled_s = self.compiling_s
            if step == traced[0]:
                first = jax.process_index() == 0
                jax.profiler.start_trace(self.trace_directory, create_perfetto_trace=first)
                self.is_tracing = True
            try:
                state, sums = self._update(state, micro_batches, (step - 1) * accumulation)
            except _CompilationStopped:
                interval.drain()
                self._save(state, step - 1, dev, interval.progress())
                return state, step - 1
            if step == traced[1]:
                jax.block_until_ready(sums)
                self.end_trace()
            if step == start + 1:
                jax.block_until_ready(sums)
                elapsed_s = time.monotonic() - begun_s
                line = "first step after %.1f s (%.1f s of compilation)"
                _logger.info(line, elapsed_s, self.compiling_s)
            interval.add(
                step,
                sums,
                padded_tokens=sum(2 * batch["source_tokens"].size for batch in micro_batches),
            )
            for callback in self.callbacks:
                callback.on_step(step, total, self.compiling_s - compiled_s)
            # All processes must agree on the step.
            stopping = (
                self.checkpoints.reached_preemption(step)
                if jax.process_count() > 1
                else self.should_stop()
            )
            if step == total or step % options.log_every_steps == 0:
                interval.drain()
                self._log(step, interval.metrics())
                interval.restart()
            # There may be only seconds to save, so a stop leaves it to the next start.
            evaluating = self.is_due(step) and not stopping
            saving = step % options.checkpoint_every_steps == 0 or step in kept
            # The best may be any that was measured.
            saving |= evaluating and bool(options.best_metric and options.keep_best)
            saving |= step == total or stopping
            if evaluating or saving:
                interval.drain()  # the time of the update is not part of the pause
            with interval.pause():
                dev = self._evaluate(state, step) if evaluating else {}
                if saving:
                    self._save(state, step, dev, interval.progress())
            if stopping:
                return state, step
        return state, max(start, total)

    def end_trace(self) -> None:
        """Writes the trace of `profile_steps`, if it was begun; a run may end within it."""
        if self.is_tracing:
            self.is_tracing = False
            jax.profiler.stop_trace()
            _logger.info("trace of updates in %s", self.trace_directory)

    def is_due(self, step: int) -> bool:
        """Whether a step is to be evaluated, and no checkpoint has its metrics."""
        options, measures = self.training.options, bool(self.evaluators or self.validation)
        at_end = step >= options.last_step or step % options.evaluate_every_steps == 0
        return measures and at_end and step not in self.checkpoints.evaluations()

    def _pairs(self, step: int) -> str:
        """The language pairs of an update."""
        accumulation = self.training.experiment.data.accumulation_steps
        return self.batches.describe((step - 1) * accumulation, step * accumulation)

    def _save(self, state: TrainState, step: int, dev: Mapping[str, float], interval: Any) -> None:
        """Saves a checkpoint, unless parameters are not finite, which a finite gradient allows."""
        if not jax.jit(all_finite)(state.params):
            raise FloatingPointError(
                f"step {step}: parameters not finite on pair {self._pairs(step)}"
            )
        for callback in self.callbacks:
            callback.on_checkpoint(step)
        _logger.info("step %d: saving a checkpoint", step)
        progress = {"records": self.writer.num_records, "interval": interval}
        self.checkpoints.save(state, step, dev, progress)

    def _update(
        self, state: TrainState, micro_batches: list[Any], first_index: int
    ) -> tuple[TrainState, Any]:
        """One update from its micro-batches."""
        index = lambda i: np.int32(first_index + i)
        if len(micro_batches) == 1:
            return self._call("train", state, micro_batches[0], index(0))
        accumulator = self._call("first", state, micro_batches[0], index(0))
        for number, batch in enumerate(micro_batches[1:], 1):
            accumulator = self._call("more", accumulator, state, batch, index(number))
        return self._call("apply", state, accumulator)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Calls a function of `Steps`; a thread compiles it for new shapes, so that a run can stop.

        All but `apply` end with a micro-batch and its index.
        """
        function, started = getattr(self.steps, name), time.monotonic()
        program = name, *(array.shape for array in jax.tree.leaves(arguments[-2]))
        if program not in self.compiled:
            pool = concurrent.futures.ThreadPoolExecutor(1)
            compiling = pool.submit(_compile, function, arguments)
            while not concurrent.futures.wait([compiling], timeout=_POLL_S).done:
                if self.should_stop():
                    raise _CompilationStopped
            compiling.result()
            self.compiled.add(program)
            self.compiling_s += time.monotonic() - started
        return function(*arguments)

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        self.writer.write(step, values)
        for callback in self.callbacks:
            callback.on_log(step, values)
        terms = [term.logged for term in self.training.experiment.terms.values()]
        shown = ("loss", *terms, "tokens_per_second", "padding_efficiency")
        if "train/loss_scale" in values:
            shown += ("loss_scale", "skipped_updates")
        shown = [name for name in shown if f"train/{name}" in values]
        line = " ".join(f"{name}={values[f'train/{name}']:.4g}" for name in shown)
        _logger.info("step %d %s", step, line)

    def _evaluate(self, state: TrainState, step: int) -> dict[str, float]:
        """Evaluates on all devices; all processes take the metrics of the first."""
        encoder = merged(state.params)["encoder"]
        _logger.info("step %d: evaluating", step)
        dev = self.validation(state.params) if self.validation else {}
        for evaluator in self.evaluators:
            dev |= evaluator(encoder, step)
        dev = json.loads(texts_of_processes(json.dumps(dev))[0])
        best = self.training.options.best_metric
        if best and best not in dev:
            known = ", ".join(dev)
            raise ValueError(f"train.best_metric={best!r} is not measured; use one of {known}")
        self.writer.write(step, dev)
        for callback in self.callbacks:
            callback.on_evaluation(step, dict(dev), encoder)
        _logger.info("step %d %s", step, " ".join(f"{k}={v:.4g}" for k, v in dev.items()))
        return dev


def _compile(function: Any, arguments: Any) -> None:
    function.lower(*arguments).compile()
