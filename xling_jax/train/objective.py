"""What is minimised: translation, alone or with the distance constraint.

An objective is `loss_fn(params, batch, key, train) -> (loss, sums)`. The loss is a sum over the
micro-batch; an update divides the gradient of all its micro-batches by `sums["normalizer"]`. The
other sums are metrics: `name` and `name_count` give the mean `name` (a name without its own count
is divided by the normalizer).
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from xling_jax.losses.distance import distance_constraint
from xling_jax.losses.translation import decoder_tokens, translation_loss
from xling_jax.models.registry import EncoderDecoder

Sums = dict[str, jax.Array]
LossFn = Callable[[Any, Mapping[str, jax.Array], jax.Array, bool], tuple[jax.Array, Sums]]


def translation_objective(
    model: EncoderDecoder,
    *,
    vocab_size: int,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    translation_weight: float = 1.0,
    label_smoothing: float = 0.1,
    decoder_bos: bool = False,
    distance_weight: float = 0.0,
    reduction: str = "sum",
    max_logits: int = 1 << 26,
    **distance: Any,
) -> LossFn:
    """Loss of T-LASER and, with a distance weight, of cT-LASER (Eq. 10 as in the published code).

        loss = w · Σ_tokens ℓ + β · Dist,    gradient ÷ number of target tokens of the update

    A batch that carries `source_language` is trained in both directions; its sentences are encoded
    once, so the constraint then costs next to nothing.

    Args:
        model: encoder and decoder.
        vocab_size: V, without padding rows.
        bos_id: id of <s>.
        eos_id: id of </s>.
        pad_id: id of padding.
        translation_weight: w; 1 for translation alone, 0.5 with the constraint.
        label_smoothing: ε.
        decoder_bos: the decoder also learns to emit <s> (published code).
        distance_weight: β; 0 leaves the constraint and the encoding of the target out.
        reduction: `sum` as published; `mean` takes ℓ per token and Dist per sentence.
        max_logits: see `translation_loss`.
        **distance: arguments of `distance_constraint`.

    Raises:
        ValueError: for an unknown reduction.
    """
    if reduction not in ("sum", "mean"):
        raise ValueError(f"objective.reduction={reduction!r} must be 'sum' or 'mean'")

    def translate(params, embeddings, language, target_tokens, key, train):
        previous, labels = decoder_tokens(
            target_tokens, bos_id=bos_id, eos_id=eos_id, pad_id=pad_id, keep_bos=decoder_bos
        )
        hidden, table = model.apply(
            {"params": params},
            embeddings,
            language,
            previous,
            not train,
            rngs={"dropout": key},
            method="decode",
        )
        mask = labels != pad_id
        loss, nll = translation_loss(
            hidden,
            table,
            labels,
            mask,
            label_smoothing=label_smoothing,
            vocab_size=vocab_size,
            max_logits=max_logits,
        )
        return loss, nll, mask.sum().astype(jnp.float32)

    def loss_fn(params, batch, key, train):
        encode_key, decode_key, negative_key = jax.random.split(key, 3)
        source, target = batch["source_tokens"], batch["target_tokens"]
        rows = source.shape[0]
        both = "source_language" in batch
        encode_target = both or distance_weight > 0
        embeddings = model.apply(
            {"params": params},
            _interleave(source, target) if encode_target else source,
            not train,
            rngs={"dropout": encode_key},
            method="encode",
        )
        mask = (source != pad_id).any(1)
        if encode_target:
            source_embeddings, target_embeddings = embeddings[0::2], embeddings[1::2]
        if both:
            loss, nll, tokens = translate(
                params,
                embeddings,
                _interleave(batch["target_language"], batch["source_language"]),
                _interleave(target, source),
                decode_key,
                train,
            )
        else:
            source_embeddings = embeddings[0::2] if encode_target else embeddings
            loss, nll, tokens = translate(
                params, source_embeddings, batch["target_language"], target, decode_key, train
            )
        sentences = mask.sum().astype(jnp.float32)
        normalizer = tokens if reduction == "sum" else jnp.ones((), jnp.float32)
        total = translation_weight * loss / (1.0 if reduction == "sum" else tokens)
        sums = {
            "translation_loss": loss,
            "translation_loss_count": tokens,
            "negative_log_likelihood": nll,
            "negative_log_likelihood_count": tokens,
            "rows": jnp.full((), float(rows)),
            "sentences": sentences,
            "tokens": ((source != pad_id).sum() + (target != pad_id).sum()).astype(jnp.float32),
        }
        if distance_weight > 0:
            constraint, metrics = distance_constraint(
                source_embeddings, target_embeddings, mask, negative_key, **distance
            )
            # A batch of both directions stands for two published ones, each with its constraint.
            directions = 2.0 if both and reduction == "sum" else 1.0
            scale = 1.0 if reduction == "sum" else jnp.maximum(sentences, 1)
            total = total + directions * distance_weight * constraint / scale
            sums |= {"distance_loss": constraint, "distance_loss_count": sentences}
            for name, value in metrics.items():
                sums |= {name: value, f"{name}_count": sentences}
        return total, {"loss": total, "normalizer": normalizer, **sums}

    return loss_fn


def _interleave(first: jax.Array, second: jax.Array) -> jax.Array:
    """[n, ...], [n, ...] -> [2 n, ...], alternating, so that rows stay on their devices."""
    return jnp.stack([first, second], axis=1).reshape(-1, *first.shape[1:])
