"""The generative tasks of Mao et al. (2021, Table 6): MLM, SMLM, XTR, UGT, alone or together."""

import dataclasses
from collections.abc import Mapping

import jax

from xling_jax.losses.fused_softmax import logits_limit
from xling_jax.losses.token_distribution import (
    TASKS,
    Labels,
    label_distributions,
    token_distribution_kl,
)
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
class TokenDistribution(Term):
    """Predicts tokens from the sentence vector; options of `losses.token_distribution`.

    `max_logits` is per device; see `fused_softmax.logits_limit`.

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
        limits = self.passed_to(token_distribution_kl)
        limits["max_logits"] = logits_limit(limits["max_logits"], context.num_devices)
        value, cross_entropy = token_distribution_kl(
            hidden, table, labels, output_bias=bias, vocab_size=context.vocab_size, **limits
        )
        sums = per_sentence(inputs, token_kl=value, token_cross_entropy=cross_entropy)
        return of_pairs(value, context, inputs), sums
