"""Encoders that were trained in fairseq, LASER3 and SONAR's: T-LASER's but for norms and <s>."""

from xling_jax.models.numpy_encoders import FairseqOptions
from xling_jax.models.tlaser import TLaserEncoder


class FairseqEncoder(FairseqOptions, TLaserEncoder):
    """Tokens to sentence vectors; see `numpy_encoders.FairseqOptions` and `TLaserEncoder`."""
