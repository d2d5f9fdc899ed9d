"""The training loop, one for all families: step, log, evaluate, save; stop at any moment, go on."""

import dataclasses
import functools
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from xling_jax.files.whole import write_whole
from xling_jax.models.registry import encoder_specials
from xling_jax.train import flops
from xling_jax.train.build import build, compute_dtype, init_params
from xling_jax.train.check import check_batch_multiple, check_duration
from xling_jax.train.checkpoint import Checkpoints
from xling_jax.train.interval import Interval
from xling_jax.train.mesh import make_mesh, to_global
from xling_jax.train.metrics import MetricsWriter
from xling_jax.train.objective import LossFn
from xling_jax.train.optimizer import make_optimizer, make_schedule
from xling_jax.train.pairs import TranslationBatches, open_batches, plan_summary, read_batches
from xling_jax.train.state import TrainState, abstract_state, count_parameters, sharded_shapes
from xling_jax.train.step import Steps, make_steps
from xling_jax.train.terms import TERM_METRICS

logger = logging.getLogger(__name__)

Evaluator = Callable[[Any, int], Mapping[str, float]]  # (encoder params, step) -> metrics


@dataclasses.dataclass(frozen=True)
class Corpus:
    """What the loop needs to know of prepared data.

    Attributes:
        directory: of the token shards.
        fingerprint: of their content.
        vocab_fingerprint, vocab_size: of the vocabulary.
        special_ids: `bos`, `eos`, `pad`, `mask` -> id, None for what the vocabulary has not.
        never_masked: ids that masking objectives leave alone, such as punctuation.
    """

    directory: str
    fingerprint: str
    vocab_fingerprint: str
    vocab_size: int
    special_ids: Mapping[str, int | None]
    never_masked: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Result:
    """How a run ended.

    Attributes:
        step: updates done.
        total_steps: updates asked for; fewer done means it was told to stop.
        encoder_params: nested dict of host arrays, of the last or best step.
        exported_step: the step they are of.
        metrics: the last dev metrics.
        compilations: compiled update functions.
    """

    step: int
    total_steps: int
    encoder_params: Any
    exported_step: int
    metrics: Mapping[str, float]
    compilations: int


def config_identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings a checkpoint must share with the run that continues it.

    Args:
        config: as a dict; `vocab.model` is a path and does not count.
    """
    data = {k: v for k, v in config["data"].items() if k not in ("corpora", "exclude", "reader")}
    vocab = {k: v for k, v in config["vocab"].items() if k != "model"}
    kept = ("encoder", "decoder", "objective", "optimizer", "schedule", "cleaning", "seed")
    kept += ("languages", "compute_dtype", "dropout_generator")
    return {name: config[name] for name in kept} | {"data": data, "vocab": vocab}


def identity(config: ConfigDict, corpus: Corpus) -> dict[str, Any]:
    """What a checkpoint must share with the run that continues it."""
    settings = config_identity(config.to_dict())
    for name in ("cleaning", "vocab"):  # their effect is in the fingerprints
        del settings[name]
    return settings | {
        "vocab_fingerprint": corpus.vocab_fingerprint,
        "data_fingerprint": corpus.fingerprint,
    }


def total_steps(config: ConfigDict, batches: TranslationBatches) -> int:
    """Updates of a run, from `train.total_steps` or `train.total_epochs`."""
    check_duration(config)
    if config.train.total_steps:
        return config.train.total_steps
    per_epoch = sum(batches.plan.batches_per_epoch.values()) / config.data.accumulation_steps
    return max(1, round(config.train.total_epochs * per_epoch))


def open_corpus(config: ConfigDict, corpus: Corpus) -> TranslationBatches:
    """The batches of a run, this process' rows."""
    check_batch_multiple(config)
    prefix, suffix = encoder_specials(config.encoder.family)
    settings = config.data.to_dict()
    for other in ("corpora", "exclude", "reader", "accumulation_steps"):
        settings.pop(other)
    return open_batches(
        corpus.directory,
        languages=config.languages,
        prefix=[corpus.special_ids[name] for name in prefix],
        suffix=[corpus.special_ids[name] for name in suffix],
        pad_id=corpus.special_ids["pad"],
        seed=config.seed,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        **settings,
    )


def _without_remat(config: ConfigDict, corpus: Corpus) -> LossFn:
    """The objective whose FLOPs MFU counts: nothing is computed twice."""
    plain = ConfigDict(config.to_dict())
    plain.encoder.remat = False
    return build(plain, corpus.vocab_size, corpus.special_ids, corpus.never_masked)[1]


class _FlopsByShape:
    """FLOPs of forward and backward by batch shape, each traced once."""

    def __init__(self, loss_fn: LossFn, params: Any):
        self._gradient = jax.grad(lambda p, b, k: loss_fn(p, b, k, True)[0])
        self._params, self._known = params, {}

    def __call__(self, batch: Mapping[str, jax.Array]) -> int:
        shape = tuple((name, array.shape) for name, array in batch.items())
        if shape not in self._known:
            self._known[shape] = flops.matmul_flops(
                self._gradient, self._params, batch, jax.eval_shape(lambda: jax.random.key(0))
            )
        return self._known[shape]


def _update(
    steps: Steps, state: TrainState, micro_batches: list[Any], first_index: int
) -> tuple[TrainState, Any]:
    """One update from its micro-batches."""
    index = lambda i: np.int32(first_index + i)
    if len(micro_batches) == 1:
        return steps.train(state, micro_batches[0], index(0))
    accumulator = steps.first(state.params, micro_batches[0], index(0))
    for number, batch in enumerate(micro_batches[1:], 1):
        accumulator = steps.more(accumulator, state.params, batch, index(number))
    return steps.apply(state, accumulator)


def _write_config(config: ConfigDict, workdir: str) -> None:
    """Writes the resolved config to `W/config.json`."""
    write_whole(Path(workdir) / "config.json", json.dumps(config.to_dict(), indent=2) + "\n")


def _initial_state(
    checkpoints: Checkpoints, init: Callable[[], TrainState], targets: TrainState
) -> tuple[TrainState, int, Mapping[str, Any]]:
    """The newest checkpoint, or a new state born on its devices; with its step and progress."""
    if checkpoints.latest_step() is None:
        shardings = jax.tree.map(lambda target: target.sharding, targets)
        return jax.jit(init, out_shardings=shardings)(), 0, {}
    state, step, progress = checkpoints.restore(targets)
    logger.info("continuing from checkpoint %d", step)
    return state, step, progress


def _to_host(params: Any) -> Any:
    """Parameters as host arrays on every process."""
    if jax.process_count() > 1:
        return multihost_utils.process_allgather(params, tiled=True)
    return jax.device_get(params)


def _from_first_process(values: Mapping[str, float]) -> dict[str, float]:
    """The first process' JSON-like values on every process."""
    if jax.process_count() == 1:
        return dict(values)
    text = np.frombuffer(json.dumps(dict(values)).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(text))))
    text = multihost_utils.broadcast_one_to_all(np.resize(text, size))
    return json.loads(np.asarray(text, np.uint8).tobytes())


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
    """Trains, or continues what `workdir` holds.

    Args:
        config: from `xling_jax.config.default_config`.
        workdir: gets `checkpoints/`, `metrics.jsonl`, `tensorboard/`.
        corpus: prepared data.
        evaluators: callables of (encoder parameters, step) that return named dev metrics; called
            by all processes at once, with parameters on all their devices.
        begin_with: maps the fresh parameters of a new run to those it begins with.
        should_stop: asked after every update; True saves and returns.
        on_step: called with (updates done, updates in all).
        checkpoint_directory: in place of `workdir/checkpoints`; may be at `gs://BUCKET/PATH`.
        publish: called when `workdir` holds new evaluations, or all metrics of a checkpoint that
            is about to be saved.

    Raises:
        ValueError: for settings that do not fit each other or the checkpoint.
        FloatingPointError: if the loss or gradient is not finite.
        OSError: if a checkpoint cannot be written.
    """
    # 1. Devices, data, model.
    mesh = make_mesh(**config.mesh)
    batches = open_corpus(config, corpus)
    total = total_steps(config, batches)
    model, loss_fn = build(
        config, corpus.vocab_size, corpus.special_ids, corpus.never_masked, mesh.size
    )
    optimizer = make_optimizer(schedule=make_schedule(**config.schedule), **config.optimizer)

    # 2. Shapes, then either the newest checkpoint or arrays born on their devices.
    init, shapes = abstract_state(init_params(model), optimizer, config.seed)
    targets = sharded_shapes(mesh, shapes)
    checkpoints = Checkpoints(
        checkpoint_directory or Path(workdir, "checkpoints"),
        identity(config, corpus),
        keep_last=config.train.keep_last,
        keep_best=config.train.keep_best,
        best_metric=config.train.best_metric,
    )
    with checkpoints:
        state, start, progress = _initial_state(checkpoints, init, targets)
        if start == 0:
            state = state.replace(params=begin_with(state.params))
        if jax.process_index() == 0:
            _write_config(config, workdir)
        logger.info(
            "%d parameters, %d devices, computing in %s",
            count_parameters(shapes.params),
            mesh.size,
            jnp.dtype(compute_dtype(config.compute_dtype)).name,
        )
        logger.info("batches: %s", plan_summary(batches))

        # 3. The loop.
        steps = make_steps(loss_fn, optimizer, mesh, shapes, config.seed)
        run = _Run(config, checkpoints, steps, batches, evaluators, should_stop, on_step)
        run.flops = _FlopsByShape(_without_remat(config, corpus), shapes.params)
        run.progress, run.dev, run.publish = progress, progress.get("dev", {}), publish
        run.writer = MetricsWriter(
            workdir,
            start,
            enabled=jax.process_index() == 0,
            evaluation_due=bool(progress.get("evaluation_due")),
        )
        try:
            state, step = run.loop(state, start, total, mesh)
        except FloatingPointError as error:
            checkpoints.wait()  # the one being written is good too
            raise FloatingPointError(
                f"{error}; last good checkpoint: {checkpoints.latest_step()} in {workdir}"
            ) from None
        finally:
            run.writer.close()
        checkpoints.wait()
        best = checkpoints.best_step()

        # 4. What is exported.
        exported, params = step, state.params
        if step == total and config.train.export == "best" and best not in (None, step):
            exported, params = best, checkpoints.restore_params(best, targets)
    compilations = sum(function._cache_size() for function in steps)
    return Result(step, total, _to_host(params["encoder"]), exported, run.dev, compilations)


@dataclasses.dataclass
class _Run:
    """The loop's body and what it works with."""

    config: ConfigDict
    checkpoints: Checkpoints
    steps: Steps
    batches: TranslationBatches
    evaluators: Sequence[Evaluator]
    should_stop: Callable[[], bool]
    on_step: Callable[[int, int], None]
    flops: Any = None
    writer: Any = None
    publish: Callable[[], None] = lambda: None
    progress: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dev: dict[str, float] = dataclasses.field(default_factory=dict)

    def loop(self, state: TrainState, start: int, total: int, mesh: jax.sharding.Mesh):
        """Updates start + 1 .. total; returns the state and the updates done."""
        settings, accumulation = self.config.train, self.config.data.accumulation_steps
        peak = flops.peak_flops(jax.local_devices()[0])
        interval = Interval(self.batches, accumulation, self.progress.get("interval"))
        source = self._read(start * accumulation, total * accumulation)
        if self.progress.get("evaluation_due"):
            self._evaluate(state, start)
        for step in range(start + 1, total + 1):
            micro_batches = []
            for batch in (next(source) for _ in range(accumulation)):
                micro_batches.append(to_global(mesh, batch))
                interval.flops += self.flops(micro_batches[-1])
                interval.padded_tokens += 2 * micro_batches[-1]["source_tokens"].size
            state, sums = _update(self.steps, state, micro_batches, (step - 1) * accumulation)
            interval.add(step, sums)
            self.on_step(step, total)
            stopping = self._stopping(step)
            if step == total or step % settings.log_every_steps == 0:
                interval.drain()
                self._log(step, interval.metrics(mesh.size, peak))
                interval.restart()
            paused = time.perf_counter()
            due = step == total or step % settings.evaluate_every_steps == 0
            evaluated = due and not stopping
            if evaluated:
                interval.drain()
                self._evaluate(state, step)
            if step == total or stopping or step % settings.checkpoint_every_steps == 0:
                interval.drain()
                if not self._all_finite(state.params):  # a finite gradient can still lead there
                    raise FloatingPointError(
                        f"step {step}: parameters not finite on pair {interval.pairs(step)}"
                    )
                progress = {"interval": interval.progress(), "dev": self.dev}
                progress["evaluation_due"] = due and not evaluated
                self.publish()
                self.checkpoints.save(state, step, self.dev if evaluated else {}, progress)
            interval.paused += time.perf_counter() - paused
            if stopping:
                return state, step
        return state, max(start, total)

    @functools.cached_property
    def _all_finite(self) -> Callable[[Any], jax.Array]:
        def all_finite(params: Any) -> jax.Array:
            return jnp.all(
                jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(params)])
            )

        return jax.jit(all_finite)

    def _read(self, start: int, stop: int) -> Iterator[dict[str, np.ndarray]]:
        return read_batches(self.batches, start, stop, reader=self.config.data.reader)

    def _stopping(self, step: int) -> bool:
        if jax.process_count() > 1:  # all processes must agree on the step
            return self.checkpoints.reached_preemption(step)
        return self.should_stop()

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        self.writer.write(step, values)
        speed = ("tokens_per_second", "padding_efficiency", "mfu")
        terms = [name for name in TERM_METRICS if f"train/{name}" in values]
        shown = ("loss", *terms, *speed)
        line = " ".join(f"{name}={values[f'train/{name}']:.4g}" for name in shown)
        logger.info("step %d %s", step, line)

    def _evaluate(self, state: TrainState, step: int) -> None:
        """Measures on all devices; all processes rank checkpoints by what the first found."""
        self.dev = {}
        if not self.evaluators:
            return
        for evaluator in self.evaluators:
            self.dev |= evaluator(state.params["encoder"], step)
        self.dev = _from_first_process(self.dev)
        best = self.config.train.best_metric
        if best and best not in self.dev:
            raise ValueError(
                f"train.best_metric={best!r} is not measured; choose from {', '.join(self.dev)}"
            )
        self.writer.write(step, self.dev)
        self.publish()
        logger.info("step %d %s", step, " ".join(f"{k}={v:.4g}" for k, v in self.dev.items()))
