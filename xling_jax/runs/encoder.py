"""The encoder that a config describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from xling_jax import options
from xling_jax.options import OptionError

if TYPE_CHECKING:
    from xling_jax.encode.encoder import Encoder
    from xling_jax.text.vocabularies import Vocabulary


def vocab_arguments(family: str, vocab: Vocabulary) -> dict[str, int]:
    """Constructor arguments that the vocabulary gives: its size, and padding if not as usual."""
    from xling_jax.models.registry import ENCODERS

    usual = options.defaults(ENCODERS[family])["pad_id"]
    padding = {} if vocab.pad_id == usual else {"pad_id": vocab.pad_id}
    return {"vocab_size": vocab.size, **padding}


def encoder_arguments(config: ConfigDict) -> tuple[str, dict[str, Any], int]:
    """Family, constructor arguments that determine a vector, and the longest input."""
    from xling_jax.models.registry import ENCODERS

    arguments = config.encoder.to_dict()
    family = arguments.pop("family")
    training_only = ENCODERS[family].training_only
    # A table of positions has an end; 2,000 is that of the published T-LASER.
    limit = arguments.get("max_length_tokens", 2000) if arguments.get("layers") else 2000
    given = config.train.max_length_tokens
    if given > limit and arguments.get("max_length_tokens") and arguments["layers"]:
        raise OptionError(
            f"--config.train.max_length_tokens={given} must be at most {limit}, the positions of "
            "the encoder"
        )
    arguments = {k: v for k, v in arguments.items() if k not in training_only}
    return family, arguments, given or limit


def make_encoder(config: ConfigDict, vocab: Vocabulary) -> Encoder:
    """The encoder to measure while training, without parameters."""
    from xling_jax.encode.device_batches import DeviceBatches
    from xling_jax.encode.encoder import Encoder
    from xling_jax.models.registry import build_encoder

    family, arguments, limit = encoder_arguments(config)
    module = build_encoder(family, **vocab_arguments(family, vocab), **arguments)
    return Encoder(
        DeviceBatches(module, {}, vocab.pad_id),
        vocab,
        specials=module.specials,
        max_length_tokens=limit,
        languages=config.languages,
        fingerprint="",
        dim=module.dim,
    )
