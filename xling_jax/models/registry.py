"""Encoder and decoder families by name, and the model that an objective trains.

A family is a Linen module whose constructor arguments are its options in a config. Class attributes
of an encoder:

    specials         names of the special tokens before and after a sentence; an option of families
                     whose published encoders differ
    training_only    arguments that do not affect embeddings and are not exported
"""

from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax

from xling_jax import options
from xling_jax.models.dual import TokenDistributionHead
from xling_jax.registry import Registry

ENCODERS = Registry(
    "encoder.family",
    tlaser="xling_jax.models.tlaser:TLaserEncoder",
    laser="xling_jax.models.laser:LaserEncoder",
    dual="xling_jax.models.dual:DualEncoder",
    static="xling_jax.models.static:StaticEncoder",
    bert="xling_jax.models.bert:BertEncoder",
    rotary="xling_jax.models.rotary:RotaryEncoder",
    fairseq="xling_jax.models.tlaser:FairseqEncoder",
)
DECODERS = Registry(
    "decoder.family",
    tlaser="xling_jax.models.tlaser:TLaserDecoder",
    laser="xling_jax.models.laser:LaserDecoder",
)

# Arguments set by the vocabulary, the device or another section of the config.
SUPPLIED = ("vocab_size", "vocab_multiple", "pad_id", "dtype", "dropout_generator")
SUPPLIED += ("num_languages", "sentence_width")


class CrossLingualModel(nn.Module):
    """An encoder, with the decoder and head that the terms of an objective need.

    Attributes:
        encoder: tokens -> [batch, dim].
        decoder: (sentence, language, previous) -> (hidden, output_table, output_bias or None);
            None without translation.
        head: (sentence, table) -> (hidden, output_table, output_bias); None without a term that
            predicts the tokens of a sentence.
    """

    encoder: nn.Module
    decoder: nn.Module | None = None
    head: nn.Module | None = None

    def __call__(self, tokens: jax.Array, language: jax.Array, deterministic: bool = True):
        """Runs all parts on [batch, length] tokens, which creates all parameters."""
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
        self, sentence: jax.Array, language: jax.Array, previous: jax.Array, deterministic=True
    ) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        """Hidden states, output table and bias of the decoder."""
        return self.decoder(sentence, language, previous, deterministic)

    def token_distribution(self, sentence: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Hidden states, output table and bias of the head; see `dual.TokenDistributionHead`."""
        return self.head(sentence, self.encoder.table())


def build_encoder(family: str, *, vocab_size: int, **arguments: Any) -> nn.Module:
    """Builds an encoder of a family in `ENCODERS` with its constructor arguments."""
    return options.make(ENCODERS[family], arguments, "encoder", vocab_size=vocab_size)


def build_model(
    *,
    encoder: Mapping[str, Any],
    decoder: Mapping[str, Any] | None = None,
    head: Mapping[str, Any] | None = None,
    vocab_size: int,
    num_languages: int,
    **shared: Any,
) -> CrossLingualModel:
    """Builds a model of an encoder and, if given, a decoder and a head.

    These are constructor arguments, of encoder and decoder with a `family`; `shared` are arguments
    of every part that takes them, such as pad_id. ValueError for an unknown family or argument.
    """
    supplied = {"vocab_size": vocab_size, "num_languages": num_languages, **shared}

    def build(target: type[nn.Module], given: Mapping[str, Any], where: str) -> nn.Module:
        known = options.defaults(target)
        arguments = {name: value for name, value in supplied.items() if name in known}
        own = {name: value for name, value in given.items() if name != "family"}
        for name, value in own.items():
            _check_number(name, value, known.get(name), f"{where}.{name}")
        arguments |= own
        return options.make(target, arguments, where)

    parts = {"encoder": build(ENCODERS[encoder["family"]], encoder, "encoder")}
    needed = ("dim", "specials", "training_only", *(["table"] if head is not None else ()))
    for name in needed:
        if not hasattr(parts["encoder"], name):
            reader = ", which token_distribution reads" if name == "table" else ""
            raise ValueError(f"encoder.family={encoder['family']!r} must have `{name}`{reader}")
    if decoder is not None:
        supplied["sentence_width"] = parts["encoder"].dim
        parts["decoder"] = build(DECODERS[decoder["family"]], decoder, "decoder")
    if head is not None:
        parts["head"] = build(TokenDistributionHead, head, "head")
    return CrossLingualModel(**parts)


def _check_number(name: str, value: Any, default: Any, where: str) -> None:
    """Raises ValueError for a size, a probability or another number that no model can have."""
    if name.endswith("dropout"):
        options.check_number(value, where, at_least=0, below=1)
    elif isinstance(default, int) and not isinstance(default, bool):
        # A default of 0 disables something, and an encoder may do without layers.
        least = 0 if default == 0 or name == "layers" else 1
        options.check_number(value, where, least, below=1000 if name == "layers" else 1e6)
    else:
        options.check_number(value, where, at_least=0)


def vocab_layout(family: str, *, translates: bool, masks: bool) -> str:
    """The layout of special tokens in the vocabulary, a key of `text.vocab.SPECIALS`.

    An objective that `translates` has a decoder, which needs </s>; one that `masks` needs <MASK>.
    """
    if not (translates or any(ENCODERS[family].specials)):
        return "dual"
    return "masked" if masks else "laser"
