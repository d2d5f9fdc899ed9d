"""From a config to everything it describes, except data and devices."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from xling_jax import options
from xling_jax.models.dtypes import compute_dtype
from xling_jax.models.registry import CrossLingualModel, build_model, special_names
from xling_jax.models.static_form import NOT_TRAINED
from xling_jax.registry import check_choice
from xling_jax.train.batches import DataOptions, Direction
from xling_jax.train.durations import Epoch, resolve, resolve_schedule, run_length
from xling_jax.train.loss_scale import with_loss_scale
from xling_jax.train.mesh import make_mesh
from xling_jax.train.objective import Objective, parse_objective
from xling_jax.train.optimizer import frozen, is_named, make_optimizer, make_schedule
from xling_jax.train.options import TrainOptions
from xling_jax.train.selection import find_goal
from xling_jax.train.state import TrainState, abstract_state
from xling_jax.train.step import Steps, make_steps
from xling_jax.train.terms.term import Setting, all_reads
from xling_jax.train.validation import is_validation, known_goal, metric_names

if TYPE_CHECKING:
    from xling_jax.text.vocabularies import Vocabulary


@dataclasses.dataclass(frozen=True)
class VocabFacts:
    """What training needs to know about a vocabulary.

    Attributes:
        size: V.
        fingerprint: of its content.
        special_ids: `bos`, `eos`, `pad`, `mask` -> id, None for missing ones.
        never_masked: ids that are never masked, such as punctuation.
    """

    size: int
    fingerprint: str = ""
    special_ids: Mapping[str, int | None] = dataclasses.field(
        default_factory=lambda: {"bos": 0, "pad": 1, "eos": 2, "mask": 4}
    )
    never_masked: tuple[int, ...] = ()

    @classmethod
    def of(cls, vocab: "Vocabulary") -> "VocabFacts":
        """The facts about a vocabulary; pieces without a letter or digit are never masked."""
        names = ("bos", "eos", "pad", "mask")
        special_ids = {name: getattr(vocab, f"{name}_id") for name in names}
        never_masked = tuple(
            number
            for number, piece in enumerate(vocab.pieces())
            if not any(map(str.isalnum, piece))
        )
        return cls(vocab.size, vocab.fingerprint, special_ids, never_masked)

    @property
    def maskable(self) -> np.ndarray:
        """[V] bool, ids that may be masked."""
        maskable = np.ones(self.size, bool)
        specials = [i for i in self.special_ids.values() if i is not None]
        maskable[[*self.never_masked, *specials]] = False
        return maskable


@dataclasses.dataclass(frozen=True)
class Build:
    """What a config describes.

    Attributes:
        data: how text becomes batches.
        settings: length of the run and its intervals, in steps.
        schedule: arguments of the learning-rate schedule, durations in steps.
        objective: the loss and its model.
        optimizer: including the schedule.
        not_trained: names of parameters that stay as they are.
        init: creates the initial state.
        shapes: of that state.
    """

    data: DataOptions
    settings: TrainOptions
    schedule: Mapping[str, Any]
    objective: Objective
    optimizer: optax.GradientTransformation
    not_trained: Collection[str]
    init: Callable[[], TrainState]
    shapes: TrainState

    def steps(self, mesh: Mesh, seed: int) -> Steps:
        """The functions of an update on a mesh."""
        objective, read_twice = self.objective, self.objective.read_twice
        return make_steps(
            objective, self.optimizer, mesh, self.shapes, seed, read_twice, self.not_trained
        )


# A placeholder until the data are prepared.
ASSUMED_EPOCH = Epoch(steps=10_000.0, examples=1_000_000)


def build(
    config: ConfigDict,
    vocab: VocabFacts | None = None,
    *,
    num_devices: int = 1,
    epoch: Epoch = ASSUMED_EPOCH,
) -> Build:
    """Builds what a config describes; creates no arrays.

    Args:
        config: completed, see `xling_jax.config`.
        vocab: facts about the vocabulary; None for one of the config's size.
        num_devices: devices that share a batch.
        epoch: length of a pass over the data.

    Raises:
        ValueError: for the first setting that cannot be built.
    """
    data = options.build(DataOptions, config.data, "data")
    total = run_length(config.train, epoch)
    in_steps = resolve(config.train, "train", epoch, total) | {"total_steps": total}
    settings = options.build(TrainOptions, in_steps, "train")
    schedule = resolve_schedule(config.schedule, epoch, total)
    optimizer = make_optimizer(schedule=make_schedule(**schedule), **config.optimizer)
    not_trained = {*settings.frozen, *(NOT_TRAINED if config.encoder.get("features") else ())}
    if not_trained:
        optimizer = frozen(optimizer, not_trained)
    if compute_dtype(config.compute_dtype) == jnp.float16:
        optimizer = with_loss_scale(optimizer)
    objective = build_objective(config, vocab or VocabFacts(config.vocab.size), num_devices)
    init, shapes = abstract_state(init_params(objective.setting.model), optimizer, config.seed)
    _check_dim(objective.setting.model, shapes.params)
    _check_frozen(settings.frozen, shapes.params)
    built = Build(data, settings, schedule, objective, optimizer, not_trained, init, shapes)
    check_validation_metrics(built)
    return built


def check_validation_metrics(built: Build, directions: Collection[Direction] = ()) -> None:
    """Checks the metrics of the validation loss that select or stop.

    Args:
        built: of the run.
        directions: those that have held-out pairs; by default all.

    Raises:
        ValueError: if one of them is not measured, or does not say which values are better.
    """
    settings, data, objective = built.settings, built.data, built.objective
    for which in ("best", "stop"):
        setting, metric = f"train.{which}", getattr(settings, f"{which}_metric")
        if not is_validation(metric):
            continue
        if not data.validates:
            raise ValueError(
                f"{setting}_metric={metric!r} needs held-out pairs: set data.validation_pairs or "
                "data.validation_corpora"
            )
        measured = metric_names(objective, built.shapes.params, data, directions)
        check_choice(f"{setting}_metric", metric, measured)
        find_goal(
            setting, metric, getattr(settings, f"{which}_goal"), known_goal(metric, objective)
        )


def _check_frozen(names: Collection[str], params: Any) -> None:
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    for name in names:
        if not any(is_named(path, (name,)) for path in paths):
            known = sorted({entry.key for path in paths for entry in path})
            raise ValueError(
                f"train.frozen: no parameter or module is called {name!r}; they are called "
                f"{', '.join(known)}"
            )
    if names and all(is_named(path, {*names, *NOT_TRAINED}) for path in paths):
        raise ValueError(f"train.frozen={tuple(names)!r} leaves nothing to train; name fewer")


def _check_dim(model: CrossLingualModel, params: Any) -> None:
    tokens = jax.ShapeDtypeStruct((2, 8), jnp.int32)
    encode = lambda params, tokens: model.apply({"params": params}, tokens, method="encode")
    vectors = jax.eval_shape(encode, params, tokens)
    if vectors.shape != (2, model.encoder.dim) or vectors.dtype != jnp.float32:
        raise ValueError(
            f"{type(model.encoder).__name__} must return float32 [batch, dim] with its "
            f"dim={model.encoder.dim}; found {vectors.dtype} [batch, "
            f"{', '.join(map(str, vectors.shape[1:]))}]"
        )


def check_config(config: ConfigDict) -> None:
    """Builds and traces, without arrays, everything a config describes that needs no data.

    Raises:
        ValueError: for the first setting that cannot be built, or with which no update can be
            computed.
    """
    options.check_number(config.seed, "seed", at_least=0)
    built = build(config)
    directions = built.data.directions()
    both = any(direction.both for direction in directions)
    objective, chunks = built.objective, built.objective.setting.encode_chunks
    has_two = "target" in objective.reads or all(direction.both for direction in directions)
    sides = 2 if has_two else 1
    # The numbers of rows; where the text tells the bucket lengths, they are multiples of this one.
    chosen = built.data.batch_size or built.data.batch_multiple
    buckets = built.data.bucket_lengths and built.data.buckets()
    if odd := [n for n in {b.batch_size for b in buckets} or {chosen} if n * sides % chunks]:
        raise ValueError(
            f"objective.encode_chunks={chunks} must divide the {odd[0] * sides} sentences encoded "
            "at once"
        )
    loss = lambda params, batch: objective(params, batch, jax.random.key(0), True)
    batch = objective.abstract_batch(built.data.buckets()[-1], both)
    jax.eval_shape(loss, built.shapes.params, batch)


def check_devices(config: ConfigDict) -> None:
    """Raises ValueError if a config does not suit the devices."""
    check_batch_multiple(config.data.batch_multiple)
    make_mesh(**config.mesh)


def check_batch_multiple(batch_multiple: int) -> None:
    """Raises ValueError if the devices cannot share a batch evenly."""
    devices = jax.device_count()
    if batch_multiple % devices:
        raise ValueError(
            f"data.batch_multiple={batch_multiple} must be a multiple of the {devices} devices "
            f"that share a batch; use {-(-batch_multiple // devices) * devices}"
        )


def build_objective(config: ConfigDict, vocab: VocabFacts, num_devices: int = 1) -> Objective:
    """Builds the objective of a config and its model; arguments and errors as `build`.

    The model has a decoder or head only if a term reads it.
    """
    settings, terms = parse_objective(config.objective.to_dict())
    reads = all_reads(terms.values())
    prefix, suffix = special_names(config.encoder)
    decoder_bos = "translation" in terms and terms["translation"].decoder_bos
    if decoder_bos and "bos" not in prefix:
        raise ValueError(
            "objective.translation.decoder_bos=True needs sentences that begin with <s>, unlike "
            f"those of the {config.encoder.family} encoder"
        )
    model = build_model(
        encoder=config.encoder.to_dict(),
        decoder=config.decoder.to_dict() if "decoder" in reads else None,
        head=config.head.to_dict() if "head" in reads else None,
        vocab_size=vocab.size,
        num_languages=len(config.languages),
        pad_id=vocab.special_ids["pad"],
        dropout_generator=config.dropout_generator,
        dtype=compute_dtype(config.compute_dtype),
    )
    setting = Setting(
        model=model,
        vocab_size=vocab.size,
        special_ids=vocab.special_ids,
        drop_first="bos" in prefix and not decoder_bos,
        append_eos="eos" not in suffix,
        maskable=vocab.maskable,
        reduction=settings.reduction,
        encode_chunks=settings.encode_chunks,
        num_devices=num_devices,
    )
    return Objective(setting, terms)


def init_params(model: CrossLingualModel) -> Callable[[jax.Array], Any]:
    """Returns a function from a key to random parameters of a model."""
    tokens, language = jnp.zeros((1, 4), jnp.int32), jnp.zeros((1,), jnp.int32)
    return lambda key: model.init(key, tokens, language)["params"]
