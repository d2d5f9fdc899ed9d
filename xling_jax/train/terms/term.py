"""The interface of the terms of an objective; see `train.objective`."""

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xling_jax.losses.token_distribution import Masked
from xling_jax.losses.translation import decoder_tokens
from xling_jax.models.registry import CrossLingualModel

Sums = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class Context:
    """Everything about a run that is constant.

    Attributes:
        model: encoder, decoder and head.
        vocab_size: V, without padding rows.
        special_ids: `pad`, `eos`, `mask` -> id; None or absent if the vocabulary lacks it.
        drop_first: sentences begin with <s>, which the decoder does not learn to emit.
        append_eos: sentences have no </s>; the decoder's labels get one.
        maskable: [vocab] bool, ids that may be masked.
        reduction: `sum`: losses of tokens and sentences are summed and divided by the number of
            target tokens (LASER, T-LASER as published); `mean`: token losses are averaged within
            their sentence, and the sum is divided by the number of pairs (Yu et al., Mao et al.).
        encode_chunks: number of pieces in which a batch is encoded.
    """

    model: CrossLingualModel
    vocab_size: int
    special_ids: Mapping[str, int | None]
    drop_first: bool = False
    append_eos: bool = False
    maskable: np.ndarray | None = None
    reduction: str = "sum"
    encode_chunks: int = 1

    @property
    def pad_id(self) -> int:
        """Id of padding."""
        return self.special_ids["pad"]

    def decoder_tokens(self, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Decoder inputs and labels, [batch, length] each; see `losses.translation`."""
        ids = {"eos_id": self.special_ids["eos"], "pad_id": self.pad_id}
        return decoder_tokens(tokens, drop_first=self.drop_first, append_eos=self.append_eos, **ids)


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of a term.

    Attributes:
        params: of the model.
        batch: `source_tokens`, `target_tokens` [batch, length], `target_language` [batch],
            `source_language` if both directions of the pair are trained, and `source_teacher`,
            `target_teacher` [batch, dim] if a term reads them.
        masked: the tokens as encoded; None if no term masks any.
        key: PRNG key of the term.
        train: whether to use dropout.
        mask: [batch] bool, rows that are not padding.
        source: [batch, dim], sentence vectors.
        target: likewise for the translations; None if no term reads them.
    """

    params: Any
    batch: Mapping[str, jax.Array]
    masked: Masked | None
    key: jax.Array
    train: bool
    mask: jax.Array
    source: jax.Array
    target: jax.Array | None

    @property
    def both(self) -> bool:
        """True if both directions of the pair are trained."""
        return "source_language" in self.batch

    @property
    def sentences(self) -> jax.Array:
        """Number of pairs."""
        return self.mask.sum().astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class Term:
    """One summand of an objective.

    Its options, in `config.objective.NAME`, are its fields and the keyword arguments of the loss
    that it passes them on to. Class attributes, or properties where they depend on options:

        passes_to   functions of the loss; `supplied` names their keywords that are not options
        reads       what it needs: `target` (vectors of the translations), `decoder`, `head`,
                    `masked` (a masked token in each pair), `source_teacher` and `target_teacher`
                    (vectors of a frozen encoder, in the batch)
        logged      the metric shown in log lines, a loss: lower is better
        collapses   whether equal vectors for all sentences minimize it

    Attributes:
        weight: of the term in the objective.
        passed: the options that are passed on.
    """

    weight: float = 1.0
    passed: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    passes_to = ()
    supplied = ()
    reads = frozenset()
    logged = ""
    collapses = False

    def __call__(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """The unweighted value, and metrics as sums.

        A reported metric `NAME` is divided by `NAME_count`, or by the normalizer of the update if
        it has no count.
        """
        raise NotImplementedError

    def passed_to(self, function: Callable) -> dict[str, Any]:
        """The options of one of the functions in `passes_to`."""
        known = inspect.signature(function).parameters
        return {name: value for name, value in self.passed.items() if name in known}


def interleave(first: jax.Array, second: jax.Array) -> jax.Array:
    """[n, ...], [n, ...] -> [2 n, ...], alternating, which keeps rows on their devices."""
    return jnp.stack([first, second], axis=1).reshape(-1, *first.shape[1:])


def normalizer(context: Context, inputs: Inputs) -> jax.Array:
    """The divisor of the update: target tokens or pairs."""
    if context.reduction == "mean":
        return inputs.sentences
    sides = ["target_tokens"] + (["source_tokens"] if inputs.both else [])
    # As many as `decoder_tokens` gives, also for vocabularies without an end of sentence.
    lengths = [(inputs.batch[side] != context.pad_id).sum(1) for side in sides]
    more = int(context.append_eos) - int(context.drop_first)
    return sum(jnp.where(n > 0, n + more, 0).sum() for n in lengths).astype(jnp.float32)


def of_pairs(value: jax.Array, context: Context, inputs: Inputs) -> jax.Array:
    """A sum over pairs, which counts twice in a batch of both directions.

    Such a batch stands for two, one of each direction, if the sum is divided by target tokens; they
    have those of both. A mean is over pairs, whose two directions count once.
    """
    return value * (2.0 if inputs.both and context.reduction == "sum" else 1.0)


def per_sentence(inputs: Inputs, **values: jax.Array) -> Sums:
    """Metrics that are reported per pair."""
    return values | {f"{name}_count": inputs.sentences for name in values}


def once_per_update(
    value: jax.Array, context: Context, inputs: Inputs, name: str
) -> tuple[jax.Array, Sums]:
    """The value of a term that counts once per update, whatever the batch size."""
    sums = {name: value, f"{name}_count": jnp.ones((), jnp.float32)}
    return value * normalizer(context, inputs), sums


TEACHERS = ("source_teacher", "target_teacher")
READS = ("target", "decoder", "head", "masked", *TEACHERS)


def all_reads(terms: Collection[Term]) -> frozenset[str]:
    """Inputs that the terms of an objective need, see `Term`."""
    return frozenset().union(*(term.reads for term in terms))
