"""Training losses as functions of arrays."""

from xling_jax.losses.contrastive import (
    alignment_loss,
    equal_sentences,
    similarity_distribution_loss,
)
from xling_jax.losses.distance import distance_constraint
from xling_jax.losses.similarity import squared_distance
from xling_jax.losses.token_distribution import (
    label_distributions,
    mask_one_token,
    token_distribution_kl,
)
from xling_jax.losses.translation import translation_loss

__all__ = [
    "alignment_loss",
    "distance_constraint",
    "equal_sentences",
    "label_distributions",
    "mask_one_token",
    "similarity_distribution_loss",
    "squared_distance",
    "token_distribution_kl",
    "translation_loss",
]
