"""Objectives: weighted sums of terms, for any encoder and decoder.

`TERMS` is the table. A term says whether it reads the translations' sentence vectors; what several
terms need is computed once. Values are sums, over tokens or over sentences, so that micro-batches
and devices add up; the update divides once.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from xling_jax.losses.distance import distance_constraint
from xling_jax.losses.similarity import squared_distance
from xling_jax.losses.translation import decoder_tokens, translation_loss
from xling_jax.models.registry import EncoderDecoder

Sums = dict[str, jax.Array]
LossFn = Callable[[Any, Mapping[str, jax.Array], jax.Array, bool], tuple[jax.Array, Sums]]
REDUCTIONS = ("sum", "mean")


@dataclasses.dataclass(frozen=True)
class Setting:
    """What does not change during a run.

    Attributes:
        model: encoder and decoder.
        vocab_size: V, without padding rows.
        eos_id, pad_id: ids of </s> and padding.
        drop_first: sentences begin with <s> and the decoder shall not learn to emit it.
        reduction: `sum`: losses of tokens and sentences are summed and divided by the number of
            target tokens (LASER, T-LASER as published); `mean`: token losses are averaged within
            their sentence, and all is divided by the number of pairs (Yu et al.).
    """

    model: EncoderDecoder
    vocab_size: int
    eos_id: int
    pad_id: int
    drop_first: bool
    reduction: str


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What a term computes from.

    Attributes:
        params: of the model.
        batch: `source_tokens`, `target_tokens` [batch, length], `target_language` [batch], and
            `source_language` where both directions of the pair are trained.
        key: of this term's randomness.
        train: whether there is dropout.
        mask: [batch] bool, rows that are no padding.
        source: [batch, dim], sentence vectors.
        target: the same of the translations; None if no term reads them.
        target_tokens_count: target tokens to predict, in both directions where both are trained.
    """

    params: Any
    batch: Mapping[str, jax.Array]
    key: jax.Array
    train: bool
    mask: jax.Array
    source: jax.Array
    target: jax.Array | None
    target_tokens_count: jax.Array

    @property
    def both(self) -> bool:
        """Whether both directions of the pair are trained."""
        return "source_language" in self.batch

    @property
    def sentences(self) -> jax.Array:
        """Number of pairs."""
        return self.mask.sum().astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class Term:
    """One summand of the objective.

    Attributes:
        compute: (setting, inputs, **options) -> (value, sums), the value before its weight.
        reads_target: whether it needs the translations' sentence vectors.
    """

    compute: Callable[..., tuple[jax.Array, Sums]]
    reads_target: bool


def _translation(
    setting: Setting,
    inputs: Inputs,
    *,
    label_smoothing: float = 0.1,
    max_logits: int = 1 << 26,
) -> tuple[jax.Array, Sums]:
    """Label-smoothed cross-entropy of the translation; see `losses.translation`."""
    batch = inputs.batch
    embeddings, tokens, language = inputs.source, batch["target_tokens"], batch["target_language"]
    if inputs.both:
        embeddings = _interleave(inputs.source, inputs.target)
        tokens = _interleave(tokens, batch["source_tokens"])
        language = _interleave(language, batch["source_language"])
    previous, labels = decoder_tokens(
        tokens,
        eos_id=setting.eos_id,
        pad_id=setting.pad_id,
        drop_first=setting.drop_first,
    )
    hidden, table, bias = setting.model.apply(
        {"params": inputs.params},
        embeddings,
        language,
        previous,
        not inputs.train,
        rngs={"dropout": inputs.key},
        method="decode",
    )
    weights = (labels != setting.pad_id).astype(jnp.float32)
    count = weights.sum()
    if setting.reduction == "mean":
        lengths = weights.sum(1, keepdims=True)
        weights = weights / jnp.maximum(lengths, 1)
        count = (lengths > 0).sum().astype(jnp.float32)
    value, nll = translation_loss(
        hidden,
        table,
        labels,
        weights,
        output_bias=bias,
        label_smoothing=label_smoothing,
        vocab_size=setting.vocab_size,
        max_logits=max_logits,
    )
    return value, {
        "translation_loss": value,
        "translation_loss_count": count,
        "negative_log_likelihood": nll,
        "negative_log_likelihood_count": count,
    }


def _distance(setting: Setting, inputs: Inputs, **options: Any) -> tuple[jax.Array, Sums]:
    """The distance constraint of cT-LASER and cLASER; see `losses.distance`."""
    value, metrics = distance_constraint(
        inputs.source, inputs.target, inputs.mask, inputs.key, **options
    )
    sums = {"distance_loss": value} | metrics
    sums |= {f"{name}_count": inputs.sentences for name in sums}
    # Published batches hold one direction; one of both stands for two of them, each with its
    # constraint. A mean is over pairs, whose two directions count once.
    return value * (2.0 if inputs.both and setting.reduction == "sum" else 1.0), sums


def _similarity(setting: Setting, inputs: Inputs) -> tuple[jax.Array, Sums]:
    """L_sim of Yu et al.; see `losses.similarity`."""
    value = jnp.where(inputs.mask, squared_distance(inputs.source, inputs.target), 0).sum()
    return value, {"similarity_loss": value, "similarity_loss_count": inputs.sentences}


def _encoder_l2(setting: Setting, inputs: Inputs) -> tuple[jax.Array, Sums]:
    """‖θ‖² of the encoder, the ablation of Yu et al., once an update whatever its size."""
    leaves = jax.tree.leaves(inputs.params["encoder"])
    penalty = sum(jnp.square(leaf.astype(jnp.float32)).sum() for leaf in leaves)
    value = penalty * _normalizer(setting, inputs)
    return value, {"encoder_l2": penalty, "encoder_l2_count": jnp.ones((), jnp.float32)}


TERMS: Mapping[str, Term] = {
    "translation": Term(_translation, reads_target=False),
    "distance": Term(_distance, reads_target=True),
    "similarity": Term(_similarity, reads_target=True),
    "encoder_l2": Term(_encoder_l2, reads_target=False),
}

# What a line of the log shows of the terms a run has.
TERM_METRICS = ("translation_loss", "distance_loss", "similarity_loss", "encoder_l2")


def _normalizer(setting: Setting, inputs: Inputs) -> jax.Array:
    """What the update divides by: target tokens, or pairs."""
    return inputs.target_tokens_count if setting.reduction == "sum" else inputs.sentences


def make_objective(setting: Setting, terms: Mapping[str, Mapping[str, Any]]) -> LossFn:
    """Loss of a batch, Σ_k weight_k · term_k, to be divided by the update's normalizer.

        cT-LASER (Eq. 10):  ½ Σ_tokens ℓ + β · Dist,         ÷ target tokens
        Yu et al.:          L(s→t) + L(t→s) + α ‖h_s − h_t‖²,   mean over pairs

    A batch that carries `source_language` is trained in both directions; its sentences are encoded
    once, so terms that compare the two sides then cost next to nothing.

    Args:
        setting: what all terms share.
        terms: name -> its `weight` and options; those of weight 0 are left out.

    Raises:
        ValueError: for an unknown reduction, term or option, no term at all, or a negative weight.
    """
    if setting.reduction not in REDUCTIONS:
        raise ValueError(
            f"objective.reduction={setting.reduction!r} must be one of {', '.join(REDUCTIONS)}"
        )
    active = []
    for name, options in terms.items():
        if name not in TERMS:
            raise ValueError(f"objective.{name} is no term; known are {', '.join(TERMS)}")
        options = dict(options)
        weight = options.pop("weight")
        if weight < 0:
            raise ValueError(f"objective.{name}.weight={weight} must not be negative")
        if weight:
            active.append((name, weight, options))
    names = {name for name, _, _ in active}
    if not names - {"similarity", "encoder_l2"}:
        raise ValueError(
            f"objective: {' and '.join(sorted(names)) or 'nothing'} has a weight, which is least "
            "when all sentences have the same vector; give translation or distance a weight too"
        )
    compare = any(TERMS[name].reads_target for name, _, _ in active)

    def loss_fn(params, batch, key, train):
        encode_key, decode_key, other_key = jax.random.split(key, 3)
        keys = dict.fromkeys(TERMS, other_key) | {"translation": decode_key}
        source, target = batch["source_tokens"], batch["target_tokens"]
        encode_target = compare or "source_language" in batch
        embeddings = setting.model.apply(
            {"params": params},
            _interleave(source, target) if encode_target else source,
            not train,
            rngs={"dropout": encode_key},
            method="encode",
        )
        inputs = Inputs(
            params=params,
            batch=batch,
            key=key,
            train=train,
            mask=(source != setting.pad_id).any(1),
            source=embeddings[0::2] if encode_target else embeddings,
            target=embeddings[1::2] if encode_target else None,
            target_tokens_count=_count_labels(setting, batch),
        )
        total, sums = jnp.zeros((), jnp.float32), {}
        for name, weight, options in active:
            value, metrics = TERMS[name].compute(
                setting, dataclasses.replace(inputs, key=keys[name]), **options
            )
            total, sums = total + weight * value, sums | metrics
        real = lambda tokens: (tokens != setting.pad_id).sum()
        return total, sums | {
            "loss": total,
            "normalizer": _normalizer(setting, inputs),
            "rows": jnp.full((), float(source.shape[0])),
            "sentences": inputs.sentences,
            "tokens": (real(source) + real(target)).astype(jnp.float32),
        }

    return loss_fn


def _count_labels(setting: Setting, batch: Mapping[str, jax.Array]) -> jax.Array:
    """Tokens a decoder has to predict."""
    sides = ["target_tokens"] + (["source_tokens"] if "source_language" in batch else [])
    counts = [(batch[side][:, setting.drop_first :] != setting.pad_id).sum() for side in sides]
    return sum(counts).astype(jnp.float32)


def _interleave(first: jax.Array, second: jax.Array) -> jax.Array:
    """[n, ...], [n, ...] -> [2 n, ...], alternating, so that rows stay on their devices."""
    return jnp.stack([first, second], axis=1).reshape(-1, *first.shape[1:])
