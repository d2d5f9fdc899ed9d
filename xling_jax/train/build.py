"""From a config to everything it describes but data and devices."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from ml_collections import ConfigDict

from xling_jax import options
from xling_jax.models.registry import CrossLingualModel, build_model, encoder_specials
from xling_jax.registry import check_choice
from xling_jax.train.batches import DataSettings
from xling_jax.train.durations import Epoch, resolve, resolve_schedule, run_length
from xling_jax.train.objective import Objective, parse_objective
from xling_jax.train.optimizer import make_optimizer, make_schedule
from xling_jax.train.settings import TrainSettings
from xling_jax.train.state import TrainState, abstract_state
from xling_jax.train.terms.term import Setting, all_reads

COMPUTE_DTYPES = ("auto", "float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class VocabFacts:
    """What training needs to know of a vocabulary.

    Attributes:
        size: V.
        fingerprint: of its content.
        special_ids: `bos`, `eos`, `pad`, `mask` -> id, None for what it lacks.
        never_masked: ids that masking tasks leave alone, such as punctuation.
    """

    size: int
    fingerprint: str = ""
    special_ids: Mapping[str, int | None] = dataclasses.field(
        default_factory=lambda: {"bos": 0, "pad": 1, "eos": 2, "mask": 4}
    )
    never_masked: tuple[int, ...] = ()

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
        settings: how long the run is and what happens when, in steps.
        schedule: the learning rate's arguments, durations in steps.
        objective: the loss and its model.
        optimizer: with its schedule.
        init: makes the initial state.
        shapes: of that state.
    """

    data: DataSettings
    settings: TrainSettings
    schedule: Mapping[str, Any]
    objective: Objective
    optimizer: optax.GradientTransformation
    init: Callable[[], TrainState]
    shapes: TrainState


# Stands for the length of a pass over data that are not prepared yet.
ASSUMED_EPOCH = Epoch(steps=10_000.0, examples=1_000_000)


def build(
    config: ConfigDict,
    vocab: VocabFacts | None = None,
    *,
    num_devices: int = 1,
    epoch: Epoch = ASSUMED_EPOCH,
) -> Build:
    """Builds what a config describes; makes no arrays.

    Args:
        config: completed, see `xling_jax.config`.
        vocab: that sentences are tokenised with; None for one of the config's size.
        num_devices: that share a batch.
        epoch: length of a pass over the data.

    Raises:
        ValueError: for the first thing that cannot be built.
    """
    data = options.build(DataSettings, config.data, "data")
    total = run_length(config.train, epoch)
    in_steps = resolve(config.train, "train", epoch, total) | {"total_steps": total}
    settings = options.build(TrainSettings, in_steps, "train")
    schedule = resolve_schedule(config.schedule, epoch, total)
    optimizer = make_optimizer(schedule=make_schedule(**schedule), **config.optimizer)
    objective = build_objective(config, vocab or VocabFacts(config.vocab.size), num_devices)
    init, shapes = abstract_state(init_params(objective.setting.model), optimizer, config.seed)
    return Build(data, settings, schedule, objective, optimizer, init, shapes)


def compute_dtype(name: str) -> Any:
    """A dtype by its name; `auto` is float32 on a CPU and bfloat16 elsewhere."""
    check_choice("compute_dtype", name, COMPUTE_DTYPES)
    if name == "auto":
        return jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
    return jnp.dtype(name)


def build_objective(config: ConfigDict, vocab: VocabFacts, num_devices: int = 1) -> Objective:
    """The objective of a config and its model; a decoder or head exists only if a term reads it.

    Args:
        config: completed, see `xling_jax.config`.
        vocab: that sentences are tokenised with.
        num_devices: that share a batch.

    Raises:
        ValueError: for settings that do not fit each other.
    """
    settings, terms = parse_objective(config.objective.to_dict())
    reads = all_reads(terms.values())
    prefix, suffix = encoder_specials(config.encoder.family)
    decoder_bos = "translation" in terms and terms["translation"].decoder_bos
    if decoder_bos and "bos" not in prefix:
        raise ValueError(
            f"objective.translation.decoder_bos=True needs sentences that begin with <s>; those of "
            f"the {config.encoder.family} encoder do not"
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
    """Returns key -> parameters, shapes taken from a batch of the smallest shape."""
    tokens, language = jnp.zeros((1, 4), jnp.int32), jnp.zeros((1,), jnp.int32)
    return lambda key: model.init(key, tokens, language)["params"]
