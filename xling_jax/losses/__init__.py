"""Training losses as functions of arrays."""

from xling_jax.losses.distance import distance_constraint
from xling_jax.losses.translation import translation_loss

__all__ = ["distance_constraint", "translation_loss"]
