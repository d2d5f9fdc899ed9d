"""The training loop of all families: step, log, evaluate, save; stop at any time and resume."""

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

import xling_jax
from xling_jax import options
from xling_jax.files.whole import write_json
from xling_jax.models.registry import ENCODERS
from xling_jax.train import flops
from xling_jax.train.batches import DataSettings, TranslationBatches, plan_summary, read_batches
from xling_jax.train.build import Build, VocabFacts, build, check_batch_multiple, compute_dtype
from xling_jax.train.checkpoint import Checkpoints
from xling_jax.train.identity import identity
from xling_jax.train.mesh import make_mesh, to_global
from xling_jax.train.metrics import Interval, MetricsWriter
from xling_jax.train.state import TrainState, count_parameters, sharded_shapes
from xling_jax.train.step import Steps, make_steps

logger = logging.getLogger(__name__)

Evaluator = Callable[[Any, int], Mapping[str, float]]  # (encoder params, step) -> metrics


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Prepared data.

    Attributes:
        directory: of the token shards.
        fingerprint: of their content.
        vocab: facts about the vocabulary.
    """

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
        metrics: the latest dev metrics.
        compilations: number of compiled update functions.
    """

    step: int
    total_steps: int
    encoder_params: Any
    exported_step: int
    metrics: Mapping[str, float]
    compilations: int


def train(
    config: ConfigDict,
    workdir: str,
    corpus: Corpus,
    *,
    evaluators: Sequence[Evaluator] = (),
    begin_with: Callable[[Any], Any] = lambda params: params,
    should_stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[int, int], None] = lambda step, total: None,
    checkpoint_directory: str = "",
    publish: Callable[[], None] = lambda: None,
) -> Result:
    """Trains, or resumes the run in `workdir`.

    Args:
        config: completed, see `xling_jax.config`.
        workdir: for `config.json`, `checkpoints/`, `metrics.jsonl` and `tensorboard/`.
        corpus: prepared data.
        evaluators: map (encoder parameters, step) to named dev metrics; called by all processes at
            the same time, with parameters on all their devices.
        begin_with: maps the random parameters of a new run to its initial ones.
        should_stop: called after every update; True saves and returns.
        on_step: called with (updates done, total updates).
        checkpoint_directory: instead of `workdir/checkpoints`; may be a URL.
        publish: called when `workdir` has new evaluations, or all metrics of a checkpoint about to
            be saved.

    Raises:
        ValueError: if settings do not fit each other or the checkpoint.
        FloatingPointError: if the loss or gradient is not finite.
        OSError: if a checkpoint cannot be written.
    """
    # 1. Devices, data, model.
    mesh = make_mesh(**config.mesh)
    batches = open_batches(config, corpus)
    epoch = batches.epoch(config.data.accumulation_steps)
    built = build(config, corpus.vocab, num_devices=mesh.size, epoch=epoch)
    settings, shapes = built.settings, built.shapes

    # 2. The newest checkpoint, or arrays created on their devices.
    targets = sharded_shapes(mesh, shapes)
    checkpoints = Checkpoints(
        checkpoint_directory or Path(workdir, "checkpoints"),
        identity(config.to_dict(), built.schedule, corpus.vocab.fingerprint, corpus.fingerprint),
        keep_last=settings.keep_last,
        keep_best=settings.keep_best,
        best_metric=settings.best_metric,
    )
    with checkpoints:
        if checkpoints.latest_step() is None:
            shardings = jax.tree.map(lambda target: target.sharding, targets)
            state, start, progress = jax.jit(built.init, out_shardings=shardings)(), 0, {}
            state = state.replace(params=begin_with(state.params))
        else:
            state, start, progress = checkpoints.restore(targets)
            logger.info("resuming from checkpoint %d", start)
        if jax.process_index() == 0:
            saved = {"version": xling_jax.__version__, **config.to_dict()}
            write_json(Path(workdir) / "config.json", saved)
        dtype = jnp.dtype(compute_dtype(config.compute_dtype)).name
        facts = (count_parameters(shapes.params), mesh.size, dtype)
        logger.info("%d parameters, %d devices, computing in %s", *facts)
        logger.info("batches: %s", plan_summary(batches))

        # 3. The loop.
        steps = make_steps(built.objective, built.optimizer, mesh, shapes, config.seed)
        due = bool(progress.get("evaluation_due"))
        first = jax.process_index() == 0
        writer = MetricsWriter(workdir, start, enabled=first, evaluation_due=due)
        run = _Run(
            mesh=mesh,
            built=built,
            batches=batches,
            steps=steps,
            flops=flops.FlopsByShape(built.objective.without_remat(), shapes.params),
            checkpoints=checkpoints,
            writer=writer,
            evaluators=evaluators,
            should_stop=should_stop,
            on_step=on_step,
            publish=publish,
            dev=dict(progress.get("dev", {})),
        )
        try:
            state, step = run.loop(state, start, progress)
        except FloatingPointError as error:
            checkpoints.wait()  # the one being written is good as well
            raise FloatingPointError(
                f"{error}; last good checkpoint: {checkpoints.latest_step()} in {workdir}"
            ) from None
        finally:
            writer.close()
        checkpoints.wait()
        best = checkpoints.best_step()

        # 4. The encoder to export.
        total, exported, params = settings.total_steps, step, state.params
        if step == total and settings.export == "best" and best not in (None, step):
            exported, params = best, checkpoints.restore_params(best, targets)
    compilations = sum(function._cache_size() for function in steps)
    return Result(step, total, _to_host(params["encoder"]), exported, run.dev, compilations)


def open_batches(config: ConfigDict, corpus: Corpus) -> TranslationBatches:
    """The batches of a run: the rows of this process."""
    data = options.build(DataSettings, config.data, "data")
    check_batch_multiple(data.batch_multiple)
    prefix, suffix = ENCODERS[config.encoder.family].specials
    special_ids = corpus.vocab.special_ids
    return TranslationBatches(
        corpus.directory,
        data,
        languages=config.languages,
        prefix=[special_ids[name] for name in prefix],
        suffix=[special_ids[name] for name in suffix],
        pad_id=special_ids["pad"],
        vocab_size=corpus.vocab.size,
        seed=config.seed,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
    )


@dataclasses.dataclass
class _Run:
    """The loop and what it uses; only `dev`, the latest dev metrics, changes."""

    mesh: jax.sharding.Mesh
    built: Build
    batches: TranslationBatches
    steps: Steps
    flops: flops.FlopsByShape
    checkpoints: Checkpoints
    writer: MetricsWriter
    evaluators: Sequence[Evaluator]
    should_stop: Callable[[], bool]
    on_step: Callable[[int, int], None]
    publish: Callable[[], None]
    dev: dict[str, float]

    def loop(
        self, state: TrainState, start: int, progress: Mapping[str, Any]
    ) -> tuple[TrainState, int]:
        """Runs updates start + 1 .. total; returns the state and the number of updates done."""
        settings, data = self.built.settings, self.built.data
        total, accumulation = settings.total_steps, data.accumulation_steps
        pairs = lambda step: self.batches.describe((step - 1) * accumulation, step * accumulation)
        interval = Interval(lambda step: f"pair {pairs(step)}", progress.get("interval"))
        peak = flops.peak_flops(jax.local_devices()[0])
        source = read_batches(
            self.batches, start * accumulation, total * accumulation, reader=data.reader
        )
        if progress.get("evaluation_due"):
            self._evaluate(state, start)
        for step in range(start + 1, total + 1):
            micro_batches = [to_global(self.mesh, next(source)) for _ in range(accumulation)]
            state, sums = self._update(state, micro_batches, (step - 1) * accumulation)
            interval.add(
                step,
                sums,
                flops=sum(map(self.flops, micro_batches)),
                padded_tokens=sum(2 * batch["source_tokens"].size for batch in micro_batches),
            )
            self.on_step(step, total)
            # All processes must agree on the step.
            stopping = (
                self.checkpoints.reached_preemption(step)
                if jax.process_count() > 1
                else self.should_stop()
            )
            if step == total or step % settings.log_every_steps == 0:
                interval.drain()
                self._log(step, interval.metrics(self.mesh.size, peak))
                interval.restart()
            with interval.pause():
                due = step == total or step % settings.evaluate_every_steps == 0
                evaluated = due and not stopping
                if evaluated:
                    interval.drain()
                    self._evaluate(state, step)
                if step == total or stopping or step % settings.checkpoint_every_steps == 0:
                    interval.drain()
                    # A finite gradient can still give parameters that are not.
                    if not _all_finite(state.params):
                        raise FloatingPointError(
                            f"step {step}: parameters not finite on pair {pairs(step)}"
                        )
                    progress = {
                        "interval": interval.progress(),
                        "dev": self.dev,
                        "evaluation_due": due and not evaluated,
                    }
                    self.publish()
                    self.checkpoints.save(state, step, self.dev if evaluated else {}, progress)
            if stopping:
                return state, step
        return state, max(start, total)

    def _update(
        self, state: TrainState, micro_batches: list[Any], first_index: int
    ) -> tuple[TrainState, Any]:
        """One update from its micro-batches."""
        index = lambda i: np.int32(first_index + i)
        if len(micro_batches) == 1:
            return self.steps.train(state, micro_batches[0], index(0))
        accumulator = self.steps.first(state.params, micro_batches[0], index(0))
        for number, batch in enumerate(micro_batches[1:], 1):
            accumulator = self.steps.more(accumulator, state.params, batch, index(number))
        return self.steps.apply(state, accumulator)

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        self.writer.write(step, values)
        terms = [term.logged for term in self.built.objective.terms.values()]
        shown = ("loss", *terms, "tokens_per_second", "padding_efficiency", "mfu")
        line = " ".join(f"{name}={values[f'train/{name}']:.4g}" for name in shown)
        logger.info("step %d %s", step, line)

    def _evaluate(self, state: TrainState, step: int) -> None:
        """Evaluates on all devices; all processes take the metrics of the first."""
        self.dev = {}
        if not self.evaluators:
            return
        for evaluator in self.evaluators:
            self.dev |= evaluator(state.params["encoder"], step)
        self.dev = _from_first_process(self.dev)
        best = self.built.settings.best_metric
        if best and best not in self.dev:
            raise ValueError(
                f"train.best_metric={best!r} is not measured; use one of {', '.join(self.dev)}"
            )
        self.writer.write(step, self.dev)
        self.publish()
        logger.info("step %d %s", step, " ".join(f"{k}={v:.4g}" for k, v in self.dev.items()))


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
