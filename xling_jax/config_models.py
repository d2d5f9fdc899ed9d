"""The `encoder` and `decoder` parts of a config, by family, with the published sizes."""

from typing import Any

from ml_collections import ConfigDict


def encoder_config(family: str, **changes: Any) -> ConfigDict:
    """The `encoder` part of a config with the family's published sizes.

    Args:
        family: `tlaser`, `laser` or `dual`.
        **changes: keys with other values.

    Raises:
        ValueError: for an unknown family.
        AttributeError: for an unknown key.
    """
    config = ConfigDict({"family": family})
    if family == "tlaser":
        config.width = 1024
        config.layers = 6
        config.heads = 16
        config.ffn_width = 4096
        config.dropout = 0.3
        config.attention_dropout = 0.0
        config.activation_dropout = 0.0
        config.pooling = "first"
        config.init_stddev = 0.02
    elif family == "laser":
        config.embedding_width = 512
        config.width = 1024
        config.layers = 1
        config.unidirectional_layers = 0
        config.dropout = 0.1
        config.pooling = "max"
        config.init_scale = 0.1
        config.lstm_implementation = "auto"
        config.published_parameters = False
    elif family == "dual":
        config.width = 512
        config.layers = 2
        config.heads = 8
        config.ffn_width = 1024
        config.dropout = 0.1
        config.attention_dropout = 0.1
        config.token_dropout = 0.0  # of whole tokens, with pooling="weighted_mean"
        config.norm = "post"  # or "pre", whose layers add to what is there
        config.max_length_tokens = 200
        config.pooling = "mean"
        config.init_stddev = 0.0  # the published code's
    else:
        raise ValueError(f"encoder family {family!r} is unknown; known are tlaser, laser, dual")
    config.attention_hops = 1  # of pooling="self_attention"
    config.attention_width = 128
    config.remat = False
    return _changed(config, changes)


def decoder_config(family: str, **changes: Any) -> ConfigDict:
    """The `decoder` part of a config with the family's published sizes; see `encoder_config`."""
    config = ConfigDict({"family": family})
    if family == "tlaser":
        config.width = 1024
        config.layers = 1
        config.heads = 16
        config.ffn_width = 4096
        config.dropout = 0.3
        config.language_at = "memory"
        config.init_stddev = 0.02
    elif family == "laser":
        config.embedding_width = 512
        config.width = 2048
        config.output_width = 0
        config.dropout = 0.1
        config.input_feeding = True
        config.initial_state = "projected"
        config.language_at = "every_step"
        config.init_scale = 0.1
    else:
        raise ValueError(f"decoder family {family!r} is unknown; known are tlaser, laser")
    config.language_width = 32
    config.share_embeddings = False
    config.published_parameters = False
    return _changed(config, changes)


def _changed(config: ConfigDict, changes: dict[str, Any]) -> ConfigDict:
    config.lock().update(changes)
    return config
