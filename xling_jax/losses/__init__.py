"""Training losses as functions of arrays."""

from xling_jax.losses.distance import distance_constraint
from xling_jax.losses.similarity import squared_distance
from xling_jax.losses.translation import translation_loss

__all__ = ["distance_constraint", "squared_distance", "translation_loss"]
