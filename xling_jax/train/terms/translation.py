"""Translation: label-smoothed cross-entropy of the decoder (LASER, T-LASER, Yu et al.)."""

import dataclasses

import jax
import jax.numpy as jnp

from xling_jax.losses.fused_softmax import logits_limit
from xling_jax.losses.translation import softmax_kernels, translation_loss
from xling_jax.train.terms.term import Context, Inputs, Sums, Term, interleave


@dataclasses.dataclass(frozen=True)
class Translation(Term):
    """Predicts the translation's tokens from the sentence vector; options of `translation_loss`.

    `max_logits` is per device; see `fused_softmax.logits_limit`. The decoder does not learn to emit
    <s>, as that of T-LASER's published code does.
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
        # More chunks than needed would make devices sum the output table's gradient more often.
        in_place = inputs.train and softmax_kernels(hidden.dtype) is not None
        limit = logits_limit(self.passed["max_logits"], context.num_devices, in_place)
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
