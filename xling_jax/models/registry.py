"""Families by name: how a config's sizes become modules."""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax

from xling_jax.models.bert import BertEncoder
from xling_jax.models.dual import DualEncoder, TokenDistributionHead
from xling_jax.models.laser import LaserDecoder, LaserEncoder
from xling_jax.models.tlaser import TLaserDecoder, TLaserEncoder

ENCODERS: Mapping[str, type[nn.Module]] = {
    "bert": BertEncoder,
    "dual": DualEncoder,
    "laser": LaserEncoder,
    "tlaser": TLaserEncoder,
}
DECODERS: Mapping[str, type[nn.Module]] = {"laser": LaserDecoder, "tlaser": TLaserDecoder}

# Special tokens around every sentence the encoder reads: (in front, behind).
_SPECIALS = {
    "bert": (("bos",), ("eos",)),
    "dual": ((), ()),
    "laser": ((), ("eos",)),
    "tlaser": (("bos",), ("eos",)),
}


class CrossLingualModel(nn.Module):
    """An encoder, and what the terms of an objective read its sentence vectors with.

    Attributes:
        encoder: tokens -> [batch, dim].
        decoder: (sentence, language, previous) -> (hidden, output_table, output_bias or None);
            None if nothing is translated.
        head: (sentence, table) -> (hidden, output_table, output_bias); None if no term predicts
            a sentence's tokens.
    """

    encoder: nn.Module
    decoder: nn.Module | None = None
    head: nn.Module | None = None

    def __call__(self, tokens: jax.Array, language: jax.Array, deterministic: bool = True):
        """Encodes [batch, length] tokens and reads the vectors; creates every parameter."""
        sentence = self.encode(tokens, deterministic)
        if self.decoder is not None:
            self.decode(sentence, language, tokens, deterministic)
        if self.head is not None:
            self.token_distribution(sentence)
        return sentence

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

    def token_distribution(self, sentence: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Hidden states, output table and bias of the head; see `dual.TokenDistributionHead`."""
        return self.head(sentence, self.encoder.table())


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
    decoder: Mapping[str, Any] | None = None,
    head: Mapping[str, Any] | None = None,
    vocab_size: int,
    num_languages: int,
    **shared: Any,
) -> CrossLingualModel:
    """A model of an encoder and, where they are given, a decoder and a head.

    Args:
        encoder: `family` and constructor arguments.
        decoder: `family` and constructor arguments.
        head: constructor arguments of `dual.TokenDistributionHead`.
        vocab_size: number of token ids.
        num_languages: rows of the decoder's language table.
        **shared: arguments given to encoder and decoder (dtype, pad_id, dropout_generator, …).

    Raises:
        ValueError: for an unknown family or argument.
    """
    encoder = dict(encoder)
    parts = [build_encoder(encoder.pop("family"), vocab_size=vocab_size, **encoder, **shared)]
    if decoder is None:
        parts.append(None)
    else:
        decoder = {"sentence_width": parts[0].dim, **decoder, **shared}
        module = _lookup(DECODERS, "decoder", decoder.pop("family"))
        sizes = {"vocab_size": vocab_size, "num_languages": num_languages}
        parts.append(_construct(module, "decoder", decoder | sizes))
    if head is not None:
        head = {"vocab_size": vocab_size, **head}
        for name in ("dtype", "vocab_multiple"):
            if name in shared:
                head[name] = shared[name]
        parts.append(_construct(TokenDistributionHead, "head", head))
    return CrossLingualModel(*parts)


def encoder_specials(family: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the special tokens around a sentence: in front and behind, (("bos",), ("eos",))."""
    return _lookup(_SPECIALS, "encoder", family)


def vocab_layout(family: str, *, translates: bool, masks: bool) -> str:
    """Where the vocabulary has its special tokens, a key of `data.vocab.SPECIALS`.

    Args:
        family: of the encoder.
        translates: whether the objective has a decoder, which needs </s>.
        masks: whether it hides tokens, which needs <MASK>.
    """
    needs_sentence_marks = translates or any(encoder_specials(family))
    if not needs_sentence_marks:
        return "dual"
    return "masked" if masks else "laser"
