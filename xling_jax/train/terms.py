"""The terms an objective is made of, and what they are given. See `train.objective`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xling_jax.losses.contrastive import (
    alignment_loss,
    equal_sentences,
    similarity_distribution_loss,
)
from xling_jax.losses.distance import distance_constraint
from xling_jax.losses.similarity import squared_distance
from xling_jax.losses.token_distribution import (
    Masked,
    label_distributions,
    token_distribution_kl,
)
from xling_jax.losses.translation import decoder_tokens, translation_loss
from xling_jax.models.registry import CrossLingualModel

Sums = dict[str, jax.Array]

# What a line of the log shows of the terms a run has.
TERM_METRICS = (
    "translation_loss",
    "distance_loss",
    "similarity_loss",
    "token_cross_entropy",
    "alignment_loss",
    "similarity_distribution_loss",
    "encoder_l2",
)


@dataclasses.dataclass(frozen=True)
class Setting:
    """What does not change during a run.

    Attributes:
        model: encoder, decoder and head.
        vocab_size: V, without padding rows.
        special_ids: `pad`, `eos`, `mask` -> id; None or absent for what the vocabulary has not.
        drop_first: sentences begin with <s> and the decoder shall not learn to emit it.
        append_eos: sentences have no </s>; what the decoder learns gets one.
        maskable: [vocab] bool, ids that masking may hide.
        reduction: `sum`: losses of tokens and sentences are summed and divided by the number of
            target tokens (LASER, T-LASER as published); `mean`: token losses are averaged within
            their sentence, and all is divided by the number of pairs (Yu et al., Mao et al.).
        encode_chunks: pieces in which a batch is encoded.
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


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What a term computes from.

    Attributes:
        params: of the model.
        batch: `source_tokens`, `target_tokens` [batch, length], `target_language` [batch], and
            `source_language` where both directions of the pair are trained.
        masked: the tokens as they were encoded; None if no term hides any.
        key: of this term's randomness.
        train: whether there is dropout.
        mask: [batch] bool, rows that are no padding.
        source: [batch, dim], sentence vectors.
        target: the same of the translations; None if no term reads them.
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
        reads: options -> parts it reads: `target` (the translations' vectors), `decoder`, `head`,
            `masked` (a hidden token).
    """

    compute: Callable[..., tuple[jax.Array, Sums]]
    reads: Callable[[Mapping[str, Any]], frozenset[str]]


def _reads(*parts: str) -> Callable[[Mapping[str, Any]], frozenset[str]]:
    return lambda options: frozenset(parts)


def interleave(first: jax.Array, second: jax.Array) -> jax.Array:
    """[n, ...], [n, ...] -> [2 n, ...], alternating, so that rows stay on their devices."""
    return jnp.stack([first, second], axis=1).reshape(-1, *first.shape[1:])


def _decoder_tokens(setting: Setting, tokens: jax.Array) -> tuple[jax.Array, jax.Array]:
    return decoder_tokens(
        tokens,
        eos_id=setting.special_ids["eos"],
        pad_id=setting.pad_id,
        drop_first=setting.drop_first,
        append_eos=setting.append_eos,
    )


def normalizer(setting: Setting, inputs: Inputs) -> jax.Array:
    """What the update divides by: target tokens, or pairs."""
    if setting.reduction == "mean":
        return inputs.sentences
    sides = ["target_tokens"] + (["source_tokens"] if inputs.both else [])
    labels = [_decoder_tokens(setting, inputs.batch[side])[1] for side in sides]
    return sum((label != setting.pad_id).sum() for label in labels).astype(jnp.float32)


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
        embeddings = interleave(inputs.source, inputs.target)
        tokens = interleave(tokens, batch["source_tokens"])
        language = interleave(language, batch["source_language"])
    previous, labels = _decoder_tokens(setting, tokens)
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


def _once(value: jax.Array, setting: Setting, inputs: Inputs, name: str) -> tuple[jax.Array, Sums]:
    """A term that counts once an update, whatever the size of its batch."""
    sums = {name: value, f"{name}_count": jnp.ones((), jnp.float32)}
    return value * normalizer(setting, inputs), sums


def _encoder_l2(setting: Setting, inputs: Inputs) -> tuple[jax.Array, Sums]:
    """‖θ‖² of the encoder, the ablation of Yu et al."""
    leaves = jax.tree.leaves(inputs.params["encoder"])
    penalty = sum(jnp.square(leaf.astype(jnp.float32)).sum() for leaf in leaves)
    return _once(penalty, setting, inputs, "encoder_l2")


def _token_distribution(
    setting: Setting, inputs: Inputs, *, task: str = "ugt", max_logits: int = 1 << 26, **labels: Any
) -> tuple[jax.Array, Sums]:
    """The generative objectives of Mao et al.; see `losses.token_distribution`."""
    source_labels, target_labels = label_distributions(
        task,
        inputs.batch["source_tokens"],
        inputs.batch["target_tokens"],
        inputs.masked,
        pad_id=setting.pad_id,
        **labels,
    )
    hidden, table, bias = setting.model.apply(
        {"params": inputs.params},
        interleave(inputs.source, inputs.target),
        method="token_distribution",
    )
    ids, weights = (interleave(*sides) for sides in zip(source_labels, target_labels, strict=True))
    value, cross_entropy = token_distribution_kl(
        hidden,
        table,
        ids,
        weights,
        output_bias=bias,
        vocab_size=setting.vocab_size,
        max_logits=max_logits,
    )
    sums = {"token_kl": value, "token_cross_entropy": cross_entropy}
    return value, sums | {f"{name}_count": inputs.sentences for name in sums}


def _alignment(
    setting: Setting, inputs: Inputs, *, ignore_equal: bool = False, **options: Any
) -> tuple[jax.Array, Sums]:
    """In-batch contrast of translations; see `losses.contrastive`."""
    ignore = None
    if ignore_equal:
        tokens = (inputs.batch["source_tokens"], inputs.batch["target_tokens"])
        ignore = equal_sentences(*tokens, setting.pad_id)
    value, correct = alignment_loss(
        inputs.source, inputs.target, inputs.mask, ignore=ignore, **options
    )
    sums = {"alignment_loss": value, "alignment_accuracy": correct}
    return value, sums | {f"{name}_count": inputs.sentences for name in sums}


def _similarity_distribution(
    setting: Setting, inputs: Inputs, **options: Any
) -> tuple[jax.Array, Sums]:
    """Agreement of the two monolingual similarity distributions; see `losses.contrastive`."""
    value = similarity_distribution_loss(inputs.source, inputs.target, inputs.mask, **options)
    return _once(value, setting, inputs, "similarity_distribution_loss")


def _token_distribution_reads(options: Mapping[str, Any]) -> frozenset[str]:
    hides = options.get("task", "ugt") != "xtr"
    return frozenset({"target", "head"} | ({"masked"} if hides else set()))


TERMS: Mapping[str, Term] = {
    "translation": Term(_translation, _reads("decoder")),
    "distance": Term(_distance, _reads("target")),
    "similarity": Term(_similarity, _reads("target")),
    "encoder_l2": Term(_encoder_l2, _reads()),
    "token_distribution": Term(_token_distribution, _token_distribution_reads),
    "alignment": Term(_alignment, _reads("target")),
    "similarity_distribution": Term(_similarity_distribution, _reads("target")),
}
