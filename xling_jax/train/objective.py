"""Objectives: weighted sums of terms, for any encoder and decoder.

A term (`train.terms`) names its inputs; inputs shared by several terms are computed once. Values
are sums over tokens or sentences, which micro-batches and devices add up; the update divides once.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from xling_jax import options
from xling_jax.losses.token_distribution import mask_one_token
from xling_jax.models.dual import DualEncoder
from xling_jax.registry import check_choice
from xling_jax.train.batch_plan import Bucket
from xling_jax.train.lora import merged
from xling_jax.train.terms import TERMS
from xling_jax.train.terms.term import (
    READS,
    TEACHERS,
    Context,
    Inputs,
    Sums,
    Term,
    all_reads,
    interleave,
    normalizer,
)

LossFn = Callable[[Any, Mapping[str, jax.Array], jax.Array, bool], tuple[jax.Array, Sums]]


@dataclasses.dataclass(frozen=True)
class ObjectiveOptions:
    """The options of `config.objective` besides its terms.

    Attributes:
        reduction: `sum` or `mean`, see `terms.term.Context`.
        encode_chunks: encode a batch in this many pieces, recomputed in the backward pass, so that
            contrastive batches of thousands fit (gradient caching, Gao et al. 2021).
    """

    reduction: str = "sum"
    encode_chunks: int = 1

    def __post_init__(self):
        check_choice("objective.reduction", self.reduction, ("sum", "mean"))
        options.check_number(self.encode_chunks, "objective.encode_chunks", at_least=1)


def parse_objective(section: Mapping[str, Any]) -> tuple[ObjectiveOptions, dict[str, Term]]:
    """The options and terms of `config.objective`, without terms of weight 0.

    ValueError for an unknown one, a negative weight, or terms that collapsed embeddings minimize.
    """
    shared = options.defaults(ObjectiveOptions)
    given = {name: value for name, value in section.items() if name in shared}
    terms = {}
    for name, values in section.items():
        if name in shared:
            continue
        term = options.make(TERMS[name], values, f"objective.{name}")
        for what in term.reads:
            check_choice(f"objective.{name}: reads", what, READS)
        if term.weight < 0:
            raise ValueError(f"objective.{name}.weight={term.weight} must not be negative")
        if term.weight:
            terms[name] = term
    if all(term.collapses for term in terms.values()):
        found = " and ".join(terms)
        raise ValueError(
            f"objective: {found} is minimized by collapsed embeddings; add a term that "
            "distinguishes sentences, such as translation or alignment"
            if terms
            else f"objective: no term has a weight; add one of {', '.join(TERMS)}"
        )
    return options.make(ObjectiveOptions, given, "objective"), terms


@dataclasses.dataclass(frozen=True)
class Objective:
    """Loss of a batch, Σ_k weight_k · term_k, to be divided by the update's normalizer.

        cT-LASER (Eq. 10):  ½ Σ_tokens ℓ + β · Dist,            ÷ target tokens
        Yu et al.:          L(s→t) + L(t→s) + α ‖h_s − h_t‖²,     mean over pairs
        Mao et al.:         KL + 2 · ALIGN + 2 · SIM,             mean over pairs

    A batch with `source_language` is trained in both directions; its sentences are encoded once, so
    terms that compare the two sides then cost almost nothing.

    Attributes:
        context: shared by all terms.
        terms: by name, each with a weight.

    Raises:
        ValueError: if the vocabulary lacks a token that a term needs.
    """

    context: Context
    terms: Mapping[str, Term]

    def __post_init__(self):
        for name, special in (("decoder", "eos"), ("masked", "mask")):
            if name in self.reads and self.context.special_ids.get(special) is None:
                raise ValueError(f"objective: a {name} term needs a vocabulary with {special!r}")

    @property
    def reads(self) -> frozenset[str]:
        """Inputs that the terms need, see `Term`."""
        return all_reads(self.terms.values())

    @property
    def read_twice(self) -> bool:
        """True if the token table is input and output of the network, and nothing else reads it."""
        encoder, head = self.context.model.encoder, self.context.model.head
        if not isinstance(encoder, DualEncoder) or not encoder.layers or not head:
            return False
        return head.tie_embeddings and "encoder_l2" not in self.terms

    def abstract_batch(self, bucket: Bucket, both: bool) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes of a micro-batch, maybe trained in both directions."""
        tokens = jax.ShapeDtypeStruct((bucket.batch_size, bucket.length), jnp.int32)
        language = jax.ShapeDtypeStruct((bucket.batch_size,), jnp.int32)
        width = self.context.model.encoder.dim
        vectors = jax.ShapeDtypeStruct((bucket.batch_size, width), jnp.float32)
        batch = {"source_tokens": tokens, "target_tokens": tokens, "target_language": language}
        batch |= {"source_language": language} if both else {}
        return batch | {name: vectors for name in TEACHERS if name in self.reads}

    def __call__(
        self, params: Any, batch: Mapping[str, jax.Array], key: jax.Array, train: bool
    ) -> tuple[jax.Array, Sums]:
        """The loss of a micro-batch, see `terms.term.Inputs`, and its metrics, all as sums.

        The key is that of dropout, which only training uses, of masking and of negatives.
        """
        context, reads, params = self.context, self.reads, merged(params)
        encode_key, decode_key, other_key = jax.random.split(key, 3)
        source, target = batch["source_tokens"], batch["target_tokens"]
        masked, read = None, (source, target)
        if "masked" in reads:
            masked = mask_one_token(
                jax.random.fold_in(key, 3),
                source,
                target,
                jnp.asarray(context.maskable),
                mask_id=context.special_ids["mask"],
                pad_id=context.pad_id,
            )
            read = (masked.source_tokens, masked.target_tokens)
        encode_target = "target" in reads or "source_language" in batch
        embeddings = _encode(
            context, params, interleave(*read) if encode_target else read[0], encode_key, train
        )
        inputs = Inputs(
            params=params,
            batch=batch,
            masked=masked,
            key=other_key,
            train=train,
            mask=(source != context.pad_id).any(1) & (target != context.pad_id).any(1),
            source=embeddings[0::2] if encode_target else embeddings,
            target=embeddings[1::2] if encode_target else None,
        )
        total, sums = jnp.zeros((), jnp.float32), {}
        for name, term in self.terms.items():
            own_key = decode_key if "decoder" in term.reads else other_key
            with options.naming_section(f"objective.{name}", options.defaults(type(term))):
                value, metrics = term(context, dataclasses.replace(inputs, key=own_key))
            total, sums = total + term.weight * value, sums | metrics
        real = lambda tokens: (tokens != context.pad_id).sum()
        return total, sums | {
            "loss": total,
            "normalizer": normalizer(context, inputs),
            "rows": jnp.full((), float(source.shape[0])),
            "sentences": inputs.sentences,
            "tokens": (real(source) + real(target)).astype(jnp.float32),
        }


def _encode(
    context: Context, params: Any, tokens: jax.Array, key: jax.Array, train: bool
) -> jax.Array:
    """[batch, length] -> [batch, dim], in `encode_chunks` pieces, strided to keep rows in place."""

    def encode(tokens: jax.Array, key: jax.Array) -> jax.Array:
        return context.model.apply(
            {"params": params}, tokens, not train, rngs={"dropout": key}, method="encode"
        )

    chunks = context.encode_chunks
    if chunks == 1:
        return encode(tokens, key)
    pieces = jnp.moveaxis(tokens.reshape(-1, chunks, tokens.shape[1]), 1, 0)
    keys = jax.random.split(key, chunks)
    embeddings = jax.lax.map(lambda piece: jax.checkpoint(encode)(*piece), (pieces, keys))
    return jnp.moveaxis(embeddings, 0, 1).reshape(tokens.shape[0], -1)
