"""Arguments of `Encoder.encode` in the words of sentence-transformers: translated, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ALL_DEVICES = (
    "the encoder uses all cores, or all local devices of JAX; leave it out, or choose by "
    "load(..., backend='numpy') or, before the start, by CUDA_VISIBLE_DEVICES=0"
)
MANY_PROCESSES = (
    "encode uses all local devices and CPU cores from one process; call it with all sentences, or "
    "share a file between processes with xling embed --num-processes"
)

# Arguments of sentence-transformers 6 that have no meaning here: the value that changes nothing,
# and the way out for others.
_OTHERS: dict[str, tuple[Any, str]] = {
    "convert_to_numpy": (True, "vectors are a NumPy array; list(vectors) makes a list of them"),
    "convert_to_tensor": (
        False,
        "vectors are a NumPy array; torch.from_numpy(vectors) shares them with PyTorch",
    ),
    "output_value": (
        "sentence_embedding",
        "there are vectors of sentences only, none of tokens; leave it out",
    ),
    "device": (None, _ALL_DEVICES),
    "pool": (None, MANY_PROCESSES),
    "chunk_size": (None, MANY_PROCESSES),
    "task": (
        None,
        "no encoder routes by task; choose prompt_name, encode_query or encode_document",
    ),
    "processing_kwargs": (None, "use encoder.with_max_length(tokens) for shorter inputs"),
}


def either(name: str, value: bool | None, peer: str, peer_value: bool | None) -> bool:
    """The value of an argument with two names, False if neither is given.

    Raises:
        ValueError: if both are given and differ.
    """
    if value is not None and peer_value is not None and bool(value) != bool(peer_value):
        raise ValueError(
            f"{name}={value!r} and {peer}={peer_value!r} are the same argument; give one of them"
        )
    return bool(peer_value if value is None else value)


def refuse(others: Mapping[str, Any]) -> None:
    """Refuses arguments without a meaning here, unless their value changes nothing.

    Raises:
        ValueError: for one that sentence-transformers has.
        TypeError: for any other.
    """
    for name, value in others.items():
        if name not in _OTHERS:
            raise TypeError(f"encode() got an unexpected keyword argument {name!r}")
        neutral, way_out = _OTHERS[name]
        if value != neutral:
            raise ValueError(f"{name}={value!r:.40} does not apply: {way_out}")


def find_prompt(prompts: Mapping[str, str], prompt: str | None, prompt_name: str | None) -> str:
    """The prompt that is given or named, one of the two.

    Raises:
        ValueError: if both are given, the prompt is not a text, or there is none of that name.
    """
    if prompt is not None and prompt_name is not None:
        raise ValueError(f"give prompt or prompt_name={prompt_name!r}, not both")
    if prompt is not None:
        if not isinstance(prompt, str):
            raise ValueError(f"prompt must be a text; found {prompt!r:.40}")
        return prompt
    if prompt_name not in prompts:
        known = ", ".join(map(repr, prompts)) or "none"
        raise ValueError(
            f"prompt_name={prompt_name!r} must be one of the model's prompts ({known}); "
            "or give the text itself as prompt"
        )
    return prompts[prompt_name]
