"""Families by name: how a config's sizes become modules."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax

from xling_jax.models.laser import LaserDecoder, LaserEncoder
from xling_jax.models.tlaser import TLaserDecoder, TLaserEncoder

ENCODERS: Mapping[str, type[nn.Module]] = {"laser": LaserEncoder, "tlaser": TLaserEncoder}
DECODERS: Mapping[str, type[nn.Module]] = {"laser": LaserDecoder, "tlaser": TLaserDecoder}

# Special tokens around every sentence the encoder reads: (in front, behind).
_SPECIALS = {"laser": ((), ("eos",)), "tlaser": (("bos",), ("eos",))}

# Where the vocabulary has its special tokens, a key of `data.vocab.SPECIALS`.
_VOCAB_LAYOUTS = {"laser": "laser", "tlaser": "laser"}


class EncoderDecoder(nn.Module):
    """An encoder and a decoder joined by the sentence vector alone.

    Attributes:
        encoder: tokens -> [batch, dim].
        decoder: (sentence, language, previous) -> (hidden, output_table, output_bias or None).
    """

    encoder: nn.Module
    decoder: nn.Module

    def __call__(self, tokens: jax.Array, language: jax.Array, deterministic: bool = True):
        """Encodes [batch, length] tokens and decodes them again; creates every parameter."""
        return self.decode(self.encode(tokens, deterministic), language, tokens, deterministic)

    def encode(self, tokens: jax.Array, deterministic: bool = True) -> jax.Array:
        """[batch, length] ids -> [batch, dim] float32."""
        return self.encoder(tokens, deterministic)

    def decode(
        self,
        sentence: jax.Array,
        language: jax.Array,
        previous: jax.Array,
        deterministic: bool = True,
    ) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        """Decoder states, output table and bias; see the decoder."""
        table = self.encoder.table() if self.decoder.share_embeddings else None
        return self.decoder(sentence, language, previous, table, deterministic)


def _lookup(table: Mapping[str, Any], kind: str, name: str) -> Any:
    if name not in table:
        raise ValueError(f"{kind} family {name!r} is unknown; known are {', '.join(table)}")
    return table[name]


def _construct(module: type[nn.Module], kind: str, arguments: Mapping[str, Any]) -> nn.Module:
    known = set(module.__dataclass_fields__) - {"parent", "name"}
    unknown = sorted(set(arguments) - known)
    if unknown:
        raise ValueError(
            f"{kind}.{unknown[0]} is no argument of {module.__name__}; "
            f"it takes {', '.join(sorted(known))}"
        )
    return module(**arguments)


def build_encoder(family: str, *, vocab_size: int, **sizes: Any) -> nn.Module:
    """An encoder module.

    Args:
        family: a key of `ENCODERS`.
        vocab_size: number of token ids.
        **sizes: constructor arguments of the family's encoder.

    Raises:
        ValueError: for an unknown family or argument, listing the known ones.
    """
    module = _lookup(ENCODERS, "encoder", family)
    return _construct(module, "encoder", {"vocab_size": vocab_size, **sizes})


def build_model(
    *,
    encoder: Mapping[str, Any],
    decoder: Mapping[str, Any],
    vocab_size: int,
    num_languages: int,
    **shared: Any,
) -> EncoderDecoder:
    """An encoder-decoder.

    Args:
        encoder: `family` and constructor arguments.
        decoder: `family` and constructor arguments.
        vocab_size: number of token ids.
        num_languages: rows of the decoder's language table.
        **shared: arguments given to both sides (dtype, pad_id, dropout_generator, …).

    Raises:
        ValueError: for an unknown family or argument.
    """
    encoder, decoder = dict(encoder), dict(decoder)
    encoder_family, decoder_family = encoder.pop("family"), decoder.pop("family")
    encoder_module = build_encoder(encoder_family, vocab_size=vocab_size, **encoder, **shared)
    decoder = {"sentence_width": encoder_module.dim, **decoder}
    decoder_module = _construct(
        _lookup(DECODERS, "decoder", decoder_family),
        "decoder",
        {"vocab_size": vocab_size, "num_languages": num_languages, **decoder, **shared},
    )
    return EncoderDecoder(encoder_module, decoder_module)


def encoder_specials(family: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the special tokens around a sentence: in front and behind, (("bos",), ("eos",))."""
    return _lookup(_SPECIALS, "encoder", family)


def vocab_layout(family: str) -> str:
    """Layout of an encoder's vocabulary, a key of `data.vocab.SPECIALS`."""
    return _lookup(_VOCAB_LAYOUTS, "encoder", family)
