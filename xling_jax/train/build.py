"""Model and objective of a config."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from ml_collections import ConfigDict

from xling_jax.models.registry import CrossLingualModel, build_model, encoder_specials
from xling_jax.train.objective import LossFn, make_objective, parts_read
from xling_jax.train.terms import Setting


def compute_dtype(name: str) -> Any:
    """`auto`, `float32` or `bfloat16` to a dtype; auto is bfloat16 but on CPU."""
    if name == "auto":
        return jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
    if name not in ("float32", "bfloat16"):
        raise ValueError(f"compute_dtype={name!r} must be 'auto', 'float32' or 'bfloat16'")
    return jnp.dtype(name)


def build(
    config: ConfigDict,
    vocab_size: int,
    special_ids: Mapping[str, int],
    never_masked: Sequence[int] = (),
    num_devices: int = 1,
) -> tuple[CrossLingualModel, LossFn]:
    """Model and objective of a config; a decoder or head exists only if a term reads it.

    Args:
        config: from `xling_jax.config.default_config`.
        vocab_size: V.
        special_ids: `pad`, and `bos`, `eos`, `mask` where the vocabulary has them -> id.
        never_masked: ids that are not hidden from the encoder, such as punctuation.
        num_devices: that share a batch; each may have `max_logits` logits at a time. Cut into more
            pieces than that, the batch would have its devices add up the output table's gradient
            once a piece.

    Raises:
        ValueError: for settings that do not fit each other.
    """
    terms = config.objective.to_dict()
    shared = {name: terms.pop(name) for name in ("reduction", "encode_chunks")}
    decoder_bos = terms["translation"].pop("decoder_bos")
    for options in terms.values():
        if "max_logits" in options:
            options["max_logits"] *= num_devices
    prefix, suffix = encoder_specials(config.encoder.family)
    if decoder_bos and "bos" not in prefix:
        raise ValueError(
            f"objective.translation.decoder_bos=True needs sentences that begin with <s>; those of "
            f"the {config.encoder.family} encoder do not"
        )
    reads = parts_read(terms)
    model = build_model(
        encoder=config.encoder.to_dict(),
        decoder=config.decoder.to_dict() if "decoder" in reads else None,
        head=config.head.to_dict() if "head" in reads else None,
        vocab_size=vocab_size,
        num_languages=len(config.languages),
        pad_id=special_ids["pad"],
        dropout_generator=config.dropout_generator,
        dtype=compute_dtype(config.compute_dtype),
    )
    maskable = np.ones(vocab_size, bool)
    maskable[[*never_masked, *(i for i in special_ids.values() if i is not None)]] = False
    setting = Setting(
        model=model,
        vocab_size=vocab_size,
        special_ids=special_ids,
        drop_first="bos" in prefix and not decoder_bos,
        append_eos="eos" not in suffix,
        maskable=maskable,
        **shared,
    )
    return model, make_objective(setting, terms)


def put_word_vectors(params: Any, vectors: np.ndarray, found: np.ndarray) -> Any:
    """Parameters whose input token tables start from word vectors.

    Args:
        params: nested dict; tables are its leaves named `embedding`.
        vectors: [vocab, width] float32.
        found: [vocab] bool; other rows, and tables of another width, stay as they are.

    Raises:
        ValueError: if no table is that wide.
    """
    flat = flatten_dict(params)
    tables = [
        path
        for path, leaf in flat.items()
        if path[-1] == "embedding" and leaf.shape[1] == vectors.shape[1]
    ]
    if not tables:
        raise ValueError(f"train.word_vectors: no token table is {vectors.shape[1]} wide")

    def put(table: jax.Array) -> jax.Array:
        known = np.zeros((table.shape[0], 1), bool)
        known[: len(found), 0] = found
        rows = np.zeros(table.shape, np.float32)
        rows[: len(vectors)] = vectors
        mixed = jax.jit(lambda table, known, rows: jnp.where(known, rows, table))
        return jax.device_put(mixed(table, known, rows), table.sharding)

    return unflatten_dict(flat | {path: put(flat[path]) for path in tables})


def put_encoder(params: Any, encoder: Any) -> tuple[Any, int]:
    """Parameters whose encoder begins with another's, where names and shapes agree.

    Args:
        params: nested dict with an `encoder`.
        encoder: parameters of a trained encoder; what this one has not is left out.

    Returns:
        The parameters, and how many of the encoder's arrays were taken.

    Raises:
        ValueError: if none could be.
    """
    flat, found = flatten_dict(params), flatten_dict({"encoder": encoder})
    taken = {
        path: jax.device_put(jnp.asarray(found[path], leaf.dtype), leaf.sharding)
        for path, leaf in flat.items()
        if path in found and found[path].shape == leaf.shape
    }
    if not taken:
        raise ValueError(
            "train.model_init: no array of its encoder has the name and shape of one here; "
            "are family and width the same?"
        )
    return unflatten_dict(flat | taken), len(taken)


def init_params(model: CrossLingualModel) -> Callable[[jax.Array], Any]:
    """Returns key -> parameters, shapes taken from a batch of the smallest shape."""
    tokens, language = jnp.zeros((1, 4), jnp.int32), jnp.zeros((1,), jnp.int32)
    return lambda key: model.init(key, tokens, language)["params"]
