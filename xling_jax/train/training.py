"""An experiment on its data and devices: the second and last stage of building it."""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from xling_jax.devices import compute_dtype
from xling_jax.models.numpy_static import NOT_TRAINED
from xling_jax.models.registry import CrossLingualModel
from xling_jax.registry import check_choice
from xling_jax.sharding import make_mesh
from xling_jax.text.vocabularies import Vocabulary
from xling_jax.train import lora
from xling_jax.train.experiment import ASSUMED_EPOCH, Experiment
from xling_jax.train.loss_scale import with_loss_scale
from xling_jax.train.objective import Objective
from xling_jax.train.optimizer import frozen, is_named, make_optimizer, make_schedule, trained_parts
from xling_jax.train.options import Epoch, TrainOptions, resolve_schedule
from xling_jax.train.step import Steps, TrainState, abstract_state, make_steps
from xling_jax.train.terms.term import Context
from xling_jax.train.validation import is_validation, losses


@dataclasses.dataclass(frozen=True)
class VocabFacts:
    """What training needs of a vocabulary, such as ids that are never masked, like punctuation.

    `special_ids` maps `bos`, `eos`, `pad` and `mask` to ids, None for missing ones.
    """

    size: int
    fingerprint: str = ""
    special_ids: Mapping[str, int | None] = dataclasses.field(
        default_factory=lambda: {"bos": 0, "pad": 1, "eos": 2, "mask": 4}
    )
    never_masked: tuple[int, ...] = ()

    @classmethod
    def of(cls, vocab: Vocabulary) -> "VocabFacts":
        """The facts about a vocabulary; pieces without a letter or digit are never masked."""
        special_ids = {name: getattr(vocab, f"{name}_id") for name in ("bos", "eos", "pad", "mask")}
        pieces = enumerate(vocab.pieces())
        never_masked = tuple(n for n, piece in pieces if not any(map(str.isalnum, piece)))
        return cls(vocab.size, vocab.fingerprint, special_ids, never_masked)

    @property
    def maskable(self) -> np.ndarray:
        """[V] bool, ids that may be masked."""
        maskable = np.ones(self.size, bool)
        specials = [i for i in self.special_ids.values() if i is not None]
        maskable[[*self.never_masked, *specials]] = False
        return maskable


@dataclasses.dataclass(frozen=True)
class Training:
    """An experiment on its data and devices: bucket lengths in use, durations in steps.

    `trained` are the parts of the parameters that change, None for all; `init` creates the initial
    state, whose `shapes` are known before.
    """

    experiment: Experiment
    options: TrainOptions
    schedule: Mapping[str, Any]
    objective: Objective
    optimizer: optax.GradientTransformation
    trained: Any
    init: Callable[[], TrainState]
    shapes: TrainState

    def steps(self, mesh: Mesh) -> Steps:
        """The functions of an update on a mesh."""
        return make_steps(
            self.objective,
            self.optimizer,
            mesh,
            self.shapes,
            self.experiment.seed,
            self.objective.read_twice,
            self.trained,
        )


def resolve(
    experiment: Experiment, vocab: VocabFacts | None = None, *, epoch: Epoch = ASSUMED_EPOCH
) -> Training:
    """Adds to an experiment what follows from its data; creates no arrays.

    Without `vocab`, it is one of the config's size. ValueError for an option that does not go with
    these.
    """
    train = experiment.train_options(epoch)
    # Of the run and of each extension.
    schedules = [
        resolve_schedule(experiment.schedule, epoch, end - begin)
        for begin, end in itertools.pairwise((0, *train.stages))
    ]
    rates = [make_schedule(**each) for each in schedules]
    rate = optax.join_schedules(rates, train.stages[:-1])
    optimizer = make_optimizer(schedule=rate, **experiment.optimizer)
    has_features = experiment.config["encoder"].get("features")
    extended = experiment.preparation.vocab
    only_rows = extended.extend and (train.new_rows_only or train.lora_rank)
    first_row = extended.size if only_rows else None
    objective = make_objective(experiment, vocab)
    model, trained = objective.context.model, None
    create = init_params(model)
    if rank := train.lora_rank:
        create = lambda key: lora.add_matrices(
            init_params(model)(key), rank, train.lora_targets, jax.random.fold_in(key, 1)
        )
    names = {*train.frozen, *(NOT_TRAINED if has_features else ())}
    if rank and first_row is None:
        names.add("encoder")
    if names or first_row is not None:
        params = jax.eval_shape(create, jax.random.key(0))
        trained = trained_parts(params, names, first_row)
        optimizer = frozen(optimizer, trained)
    if compute_dtype(experiment.compute_dtype) == jnp.float16:
        optimizer = with_loss_scale(optimizer)
    init, shapes = abstract_state(create, optimizer, experiment.seed)
    _check_frozen(train.frozen, shapes.params)
    _check_validation_metric(experiment, objective)
    return Training(experiment, train, schedules[0], objective, optimizer, trained, init, shapes)


def make_objective(experiment: Experiment, vocab: VocabFacts | None = None) -> Objective:
    """The objective of an experiment and its model; arguments as `resolve`."""
    options = experiment.preparation.vocab
    vocab = vocab or VocabFacts(options.size + options.extend)
    prefix, suffix = experiment.model.encoder.specials
    context = Context(
        model=with_arguments(
            experiment.model,
            vocab_size=vocab.size,
            pad_id=vocab.special_ids["pad"],
            dtype=compute_dtype(experiment.compute_dtype),
        ),
        vocab_size=vocab.size,
        special_ids=vocab.special_ids,
        drop_first="bos" in prefix,
        append_eos="eos" not in suffix,
        maskable=vocab.maskable,
        reduction=experiment.objective.reduction,
        encode_chunks=experiment.objective.encode_chunks,
    )
    return Objective(context, experiment.terms)


def with_arguments(model: CrossLingualModel, **arguments: Any) -> CrossLingualModel:
    """The model with other arguments of all its modules that take them."""
    parts = {name: getattr(model, name) for name in ("encoder", "decoder", "head")}
    for name, module in parts.items():
        if module is not None:
            known = {*arguments} & {field.name for field in dataclasses.fields(module)}
            parts[name] = module.clone(**{argument: arguments[argument] for argument in known})
    return CrossLingualModel(**parts)


def init_params(model: CrossLingualModel) -> Callable[[jax.Array], Any]:
    """Returns a function from a key to random parameters of a model."""
    tokens, language = jnp.zeros((1, 4), jnp.int32), jnp.zeros((1,), jnp.int32)
    return lambda key: model.init(key, tokens, language)["params"]


def check(experiment: Experiment) -> None:
    """Traces an update, without arrays and data; ValueError for options that allow none."""
    training = resolve(experiment)
    data, objective = experiment.data, training.objective
    chunks = objective.context.encode_chunks
    has_two = "target" in objective.reads or all(d.both for d in data.directions())
    sides = 2 if has_two else 1
    # The numbers of rows; where the text tells the bucket lengths, they are multiples of this one.
    chosen = data.batch_size or data.batch_multiple
    buckets = data.bucket_lengths and data.buckets()
    if odd := [n for n in {b.batch_size for b in buckets} or {chosen} if n * sides % chunks]:
        raise ValueError(
            f"objective.encode_chunks={chunks} must divide the {odd[0] * sides} sentences encoded "
            "at once"
        )
    loss = lambda params, batch: objective(params, batch, jax.random.key(0), True)
    batch = objective.abstract_batch(data.buckets()[-1], data.has_both)
    jax.eval_shape(loss, training.shapes.params, batch)


def check_devices(experiment: Experiment) -> None:
    """Raises ValueError if the devices are not those of the mesh, or cannot share a batch."""
    multiple, devices = experiment.data.batch_multiple, jax.device_count()
    if multiple % devices:
        raise ValueError(
            f"data.batch_multiple={multiple} must be a multiple of the {devices} devices "
            f"that share a batch; use {-(-multiple // devices) * devices}"
        )
    make_mesh(**experiment.mesh)


def _check_validation_metric(experiment: Experiment, objective: Objective) -> None:
    """Raises ValueError if `best_metric` is of held-out pairs, but no loss that is measured."""
    data, metric = experiment.data, experiment.train.best_metric
    if not is_validation(metric):
        return
    if not data.validation_pairs:
        raise ValueError(
            f"train.best_metric={metric!r} needs held-out pairs: set data.validation_pairs"
        )
    measured = losses(objective, data.directions())
    check_choice("train.best_metric", metric, measured)


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
