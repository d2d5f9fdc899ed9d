"""Objectives: weighted sums of terms, for any encoder and decoder.

`train.terms` is the table. A term names what it reads; what several terms read is computed once.
Values are sums, over tokens or over sentences, so that micro-batches and devices add up; the update
divides once.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from xling_jax.losses.token_distribution import mask_one_token
from xling_jax.train.terms import TERMS, Inputs, Setting, Sums, interleave, normalizer

LossFn = Callable[[Any, Mapping[str, jax.Array], jax.Array, bool], tuple[jax.Array, Sums]]
REDUCTIONS = ("sum", "mean")
# These are least when all sentences have the same vector.
_COLLAPSING = {"similarity", "similarity_distribution", "encoder_l2"}


def _active(terms: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, dict[str, Any]]]:
    """Name -> (weight, options) of the terms that have a weight."""
    active = {}
    for name, options in terms.items():
        if name not in TERMS:
            raise ValueError(f"objective.{name} is no term; known are {', '.join(TERMS)}")
        options = dict(options)
        weight = options.pop("weight")
        if weight < 0:
            raise ValueError(f"objective.{name}.weight={weight} must not be negative")
        if weight:
            active[name] = (weight, options)
    return active


def parts_read(terms: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """What the terms with a weight read: `target`, `decoder`, `head`, `masked`.

    Raises:
        ValueError: for an unknown term or a negative weight.
    """
    active = _active(terms)
    return frozenset().union(*(TERMS[name].reads(options) for name, (_, options) in active.items()))


def make_objective(setting: Setting, terms: Mapping[str, Mapping[str, Any]]) -> LossFn:
    """Loss of a batch, Σ_k weight_k · term_k, to be divided by the update's normalizer.

        cT-LASER (Eq. 10):  ½ Σ_tokens ℓ + β · Dist,            ÷ target tokens
        Yu et al.:          L(s→t) + L(t→s) + α ‖h_s − h_t‖²,     mean over pairs
        Mao et al.:         KL + 2 · ALIGN + 2 · SIM,             mean over pairs

    A batch that carries `source_language` is trained in both directions; its sentences are encoded
    once, so terms that compare the two sides then cost next to nothing.

    Args:
        setting: what all terms share.
        terms: name -> its `weight` and options; those of weight 0 are left out.

    Raises:
        ValueError: for an unknown reduction, term or option, or terms that cannot train alone.
    """
    if setting.reduction not in REDUCTIONS:
        raise ValueError(
            f"objective.reduction={setting.reduction!r} must be one of {', '.join(REDUCTIONS)}"
        )
    active, reads = _active(terms), parts_read(terms)
    if not active.keys() - _COLLAPSING:
        raise ValueError(
            f"objective: {' and '.join(sorted(active)) or 'nothing'} has a weight, which is least "
            "when all sentences have the same vector; give translation, distance, "
            "token_distribution or alignment a weight too"
        )
    for name, special in (("decoder", "eos"), ("masked", "mask")):
        if name in reads and setting.special_ids.get(special) is None:
            raise ValueError(f"objective: a {name} term needs a vocabulary with {special!r}")

    def loss_fn(params, batch, key, train):
        encode_key, decode_key, other_key, mask_key = (
            *jax.random.split(key, 3),
            jax.random.fold_in(key, 3),
        )
        keys = dict.fromkeys(TERMS, other_key) | {"translation": decode_key}
        source, target = batch["source_tokens"], batch["target_tokens"]
        masked, read = None, (source, target)
        if "masked" in reads:
            masked = mask_one_token(
                mask_key,
                source,
                target,
                jnp.asarray(setting.maskable),
                mask_id=setting.special_ids["mask"],
                pad_id=setting.pad_id,
            )
            read = (masked.source_tokens, masked.target_tokens)
        encode_target = "target" in reads or "source_language" in batch
        embeddings = _encode(
            setting,
            params,
            interleave(*read) if encode_target else read[0],
            encode_key,
            train,
        )
        inputs = Inputs(
            params=params,
            batch=batch,
            masked=masked,
            key=key,
            train=train,
            mask=(source != setting.pad_id).any(1) & (target != setting.pad_id).any(1),
            source=embeddings[0::2] if encode_target else embeddings,
            target=embeddings[1::2] if encode_target else None,
        )
        total, sums = jnp.zeros((), jnp.float32), {}
        for name, (weight, options) in active.items():
            value, metrics = TERMS[name].compute(
                setting, dataclasses.replace(inputs, key=keys[name]), **options
            )
            total, sums = total + weight * value, sums | metrics
        real = lambda tokens: (tokens != setting.pad_id).sum()
        return total, sums | {
            "loss": total,
            "normalizer": normalizer(setting, inputs),
            "rows": jnp.full((), float(source.shape[0])),
            "sentences": inputs.sentences,
            "tokens": (real(source) + real(target)).astype(jnp.float32),
        }

    return loss_fn


def _encode(
    setting: Setting, params: Any, tokens: jax.Array, key: jax.Array, train: bool
) -> jax.Array:
    """[batch, length] -> [batch, dim], in `encode_chunks` pieces.

    A piece's activations are computed again in the backward pass, so that memory holds those of one
    piece and the sentence vectors of all: contrastive batches of thousands on a small device
    (gradient caching, Gao et al. 2021). Pieces are strided: rows stay on their devices.
    """

    def encode(tokens: jax.Array, key: jax.Array) -> jax.Array:
        return setting.model.apply(
            {"params": params}, tokens, not train, rngs={"dropout": key}, method="encode"
        )

    chunks = setting.encode_chunks
    if chunks == 1:
        return encode(tokens, key)
    if chunks < 1 or tokens.shape[0] % chunks:
        raise ValueError(
            f"objective.encode_chunks={chunks} must divide the {tokens.shape[0]} sentences of a "
            "batch"
        )
    pieces = jnp.moveaxis(tokens.reshape(-1, chunks, tokens.shape[1]), 1, 0)
    keys = jax.random.split(key, chunks)
    embeddings = jax.lax.map(lambda piece: jax.checkpoint(encode)(*piece), (pieces, keys))
    return jnp.moveaxis(embeddings, 0, 1).reshape(tokens.shape[0], -1)
