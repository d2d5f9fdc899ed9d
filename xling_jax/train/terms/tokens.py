"""Terms that predict tokens from a sentence vector: one after the other, or as a distribution."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from xling_jax.losses.fused_softmax import LOGITS_IN_PLACE
from xling_jax.losses.token_distribution import (
    TASKS,
    Labels,
    label_distributions,
    token_distribution_kl,
)
from xling_jax.losses.translation import softmax_kernels, translation_loss
from xling_jax.options import check_number
from xling_jax.registry import check_choice
from xling_jax.train.terms.term import (
    Context,
    Inputs,
    Sums,
    Term,
    interleave,
    of_pairs,
    per_sentence,
)


@dataclasses.dataclass(frozen=True)
class Translation(Term):
    """Predicts the translation's tokens from the sentence vector (LASER, T-LASER, Yu et al.).

    `max_logits` is per device. The decoder does not learn to emit <s>, as that of T-LASER's
    published code does.
    """

    passes_to = (translation_loss,)
    supplied = ("output_bias", "vocab_size")
    reads = frozenset({"decoder"})
    logged = "translation_loss"

    def __call__(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """Sum over tokens, or over the means of sentences, in nats."""
        batch = inputs.batch
        embeddings, tokens = inputs.source, batch["target_tokens"]
        language = batch["target_language"]
        if inputs.both:
            embeddings = interleave(inputs.source, inputs.target)
            tokens = interleave(tokens, batch["source_tokens"])
            language = interleave(language, batch["source_language"])
        previous, labels = context.decoder_tokens(tokens)
        hidden, table, bias = context.model.apply(
            {"params": inputs.params},
            embeddings,
            language,
            previous,
            not inputs.train,
            rngs={"dropout": inputs.key},
            method="decode",
        )
        weights = (labels != context.pad_id).astype(jnp.float32)
        count = weights.sum()
        if context.reduction == "mean":
            lengths = weights.sum(1, keepdims=True)
            weights = weights / jnp.maximum(lengths, 1)
            count = (lengths > 0).sum().astype(jnp.float32)
        in_place = inputs.train and softmax_kernels(hidden.dtype) is not None
        limit = self.passed["max_logits"] or (LOGITS_IN_PLACE if in_place else 0)
        value, nll = translation_loss(
            hidden,
            table,
            labels,
            weights,
            output_bias=bias,
            vocab_size=context.vocab_size,
            **self.passed | {"max_logits": limit},
        )
        return value, {
            "translation_loss": value,
            "translation_loss_count": count,
            "negative_log_likelihood": nll,
            "negative_log_likelihood_count": count,
        }


@dataclasses.dataclass(frozen=True)
class TokenDistribution(Term):
    """Predicts a set of tokens from the sentence vector (Mao et al. 2021, Table 6).

    Attributes:
        tasks: `mlm`, `smlm`, `xtr` or `ugt` -> weight of its loss in this term.
    """

    tasks: Mapping[str, float] = dataclasses.field(default_factory=lambda: {"ugt": 1.0})

    passes_to = (label_distributions, token_distribution_kl)
    supplied = ("pad_id", "output_bias", "vocab_size")
    logged = "token_cross_entropy"

    def __post_init__(self):
        where = "objective.token_distribution.tasks"
        for task, weight in self.tasks.items():
            check_choice(where, task, TASKS)
            if not isinstance(weight, (int, float)):
                raise ValueError(f"{where}.{task}={weight!r} must be a number")
            check_number(weight, f"{where}.{task}", at_least=0)
        object.__setattr__(self, "tasks", {t: w for t, w in self.tasks.items() if w})
        if not self.tasks:
            raise ValueError(f"{where} needs a weight for one of {', '.join(TASKS)}")

    @property
    def reads(self) -> frozenset[str]:
        """All tasks but XTR mask a token."""
        masked = {"masked"} if self.tasks.keys() - {"xtr"} else set()
        return frozenset({"target", "head"} | masked)

    def __call__(self, context: Context, inputs: Inputs) -> tuple[jax.Array, Sums]:
        """Sum over pairs of the divergences of both sides."""
        source, target = label_distributions(
            self.tasks,
            inputs.batch["source_tokens"],
            inputs.batch["target_tokens"],
            inputs.masked,
            pad_id=context.pad_id,
            **self.passed_to(label_distributions),
        )
        hidden, table, bias = context.model.apply(
            {"params": inputs.params},
            interleave(inputs.source, inputs.target),
            method="token_distribution",
        )
        labels = Labels(*map(interleave, source[:2], target[:2]), source.scales)
        value, cross_entropy = token_distribution_kl(
            hidden,
            table,
            labels,
            output_bias=bias,
            vocab_size=context.vocab_size,
            **self.passed_to(token_distribution_kl),
        )
        sums = per_sentence(inputs, token_kl=value, token_cross_entropy=cross_entropy)
        return of_pairs(value, context, inputs), sums
