"""Encoders of LASER's own code (facebookresearch/LASER): theirs in, ours out.

    LASER  (2018)  bilstm.93langs.2018-12-26.pt   93langs.fcodes, 93langs.fvocab
    LASER2 (2022)  laser2.pt                      laser2.spm
    LASER3 (2022)  laser3-wol_Latn.v1.pt          see `fairseq`
    exported       encoder.pt                     encoder.spm, or .fcodes and .fvocab of fastBPE

A checkpoint is a dict: `params` (constructor arguments), `model` (tensors), `dictionary` ({piece:
id}).
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.encode.model_directory import ModelSpec, load_model, save_model
from xling_jax.formats.fairseq import convert_laser3, find_beside, read_vocabulary
from xling_jax.formats.files import Tensors, import_torch, load_torch
from xling_jax.formats.registry import export_directory, refuse
from xling_jax.text import laser_vocab
from xling_jax.text.laser_vocab import CODES_FILE, VOCABULARY_FILE, LaserText, LaserVocab
from xling_jax.text.vocabularies import SENTENCEPIECE_FILE

CHECKPOINT_FILE = "encoder.pt"

_SUFFIXES = {SENTENCEPIECE_FILE: ".spm", CODES_FILE: ".fcodes", VOCABULARY_FILE: ".fvocab"}
_SUPPORTED = (
    "LASER (bilstm.93langs…), LASER2 (laser2.pt) and LASER3 (laser3-….pt) are supported, and SONAR "
    "with --from sonar"
)

# Of the pieces that the splitter knows, the share that the dictionary of its checkpoint must hold.
_MIN_KNOWN_SHARE = 0.5


def convert_laser(
    checkpoint: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    vocabulary: str | os.PathLike[str] | None = None,
    language: str = "en",
    languages: Sequence[str] = (),
    max_length_tokens: int = 2048,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes a model directory with the vectors of LASER's own code; returns the record of it.

    Without a `vocabulary`, its `.spm` or `.fcodes` file (with the `.fvocab` beside it) is looked
    for beside the checkpoint. The Moses rules of `language` are applied to all text; `el` also
    romanizes for an encoder with fastBPE, as LASER does. `languages` are for information. Texts are
    cut at `max_length_tokens`; LASER itself has no limit.

    ImportError without PyTorch; ValueError if files are broken or do not belong together.
    """
    checkpoint = Path(checkpoint)
    if checkpoint.is_dir():
        files = sorted(checkpoint.glob("*.pt"))
        if len(files) != 1:
            found = ", ".join(file.name for file in files) or "none"
            raise ValueError(f"{checkpoint}: must hold one .pt file; found {found}; name the file")
        (checkpoint,) = files
    state = load_torch(checkpoint, f"; {_SUPPORTED}")
    if isinstance(state, dict) and {"cfg", "model"} <= state.keys():
        settings = {"languages": languages, "max_length_tokens": max_length_tokens}
        settings |= {"vocabulary": vocabulary, "language": language, "overwrite": overwrite}
        return convert_laser3(state, checkpoint, directory, **settings)
    encoder_args, params, dictionary = read_laser_checkpoint(checkpoint, state)
    # SentencePiece marks where a word begins, fastBPE where it goes on.
    suffix = ".spm" if any(piece.startswith("▁") for piece in dictionary) else ".fcodes"
    path = Path(vocabulary) if vocabulary is not None else find_beside(checkpoint, suffix)
    words = path.suffix == ".fcodes"
    text = LaserText(language, moses_tokenizer=words, romanize_greek=words and language == "el")
    vocab = read_vocabulary(path, dictionary, text)
    pieces = vocab.splitter_pieces()
    known = sum(piece in vocab.dictionary for piece in pieces)
    if known < _MIN_KNOWN_SHARE * len(pieces):
        raise ValueError(
            f"{path}: must be the vocabulary of {checkpoint.name}; that knows {known:,} of its "
            f"{len(pieces):,} pieces; name the right one with --vocabulary"
        )
    training = {
        "converted_from": "LASER (facebookresearch/LASER)",
        "checkpoint": checkpoint.name,
        "vocabulary": path.name,
        "pieces_in_dictionary": f"{known} of {len(pieces)}",
    }
    save_model(
        directory,
        family="laser",
        encoder_args=encoder_args,
        params=params,
        vocab=vocab,
        languages=languages,
        max_length_tokens=max_length_tokens,
        training=training,
        overwrite=overwrite,
    )
    return training


def read_laser_checkpoint(
    path: Path, state: Any
) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Arguments and parameters of a `LaserEncoder`, and {piece: id}, of what `load_torch` read.

    ValueError if it is another model.
    """
    found = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
    if not isinstance(state, dict) or not {"params", "model", "dictionary"} <= state.keys():
        raise ValueError(
            f"{path}: a LASER checkpoint holds params, model and dictionary; found {found}; "
            f"{_SUPPORTED}"
        )
    given, dictionary = state["params"], state["dictionary"]
    padding = given.get("padding_idx") if isinstance(given, dict) else None
    if padding != laser_vocab.SPECIAL_IDS["<pad>"]:
        raise ValueError(f"{path}: padding_idx must be 1; found {padding!r:.40}")
    tensors = Tensors(path, state["model"])
    tensors.begin_at("embed_tokens.weight")
    prefix, names = tensors.prefix, tensors.names
    # Zeros where a tensor is none of a table's, for `take` to refuse.
    shape = lambda name: (*tensors.table(f"{prefix}{name}").shape, 0, 0)[:2]
    (rows, width), (_, hidden) = map(shape, ("embed_tokens.weight", "lstm.weight_hh_l0"))
    directions = 1 + (f"{prefix}lstm.weight_hh_l0_reverse" in names)
    layers = sum(name.startswith(f"{prefix}lstm.weight_hh_l") for name in names) // directions
    ids = dictionary.values() if isinstance(dictionary, dict) else [None]
    if rows < 4 or not all(type(number) is int and 0 <= number < rows for number in ids):
        raise ValueError(f"{path}: ids of the dictionary must be below the {rows} embeddings")
    if not all(isinstance(piece, str) for piece in dictionary):
        raise ValueError(f"{path}: the dictionary must map pieces of text to ids")
    for piece, number in laser_vocab.SPECIAL_IDS.items():
        if dictionary.get(piece, number) != number:
            raise ValueError(f"{path}: {piece} must have id {number}; found {dictionary[piece]}")
    params: dict[str, Any] = {"embedding": tensors.take("embed_tokens.weight", rows, width)}
    for layer in range(layers):
        inputs = directions * hidden if layer else width
        params[f"layers_{layer}"] = _layer(tensors, layer, directions, inputs, hidden)
    encoder_args = {
        "vocab_size": rows,
        "vocab_multiple": 1,
        "embedding_width": width,
        "width": directions * hidden,
        "layers": layers,
        "unidirectional_layers": 0 if directions == 2 else layers,
    }
    return encoder_args, params, dictionary


def _layer(
    tensors: Tensors, layer: int, directions: int, inputs: int, hidden: int
) -> dict[str, np.ndarray]:
    """Parameters of one layer; gates are in PyTorch's order, its two biases are added."""
    ends = (f"_l{layer}", f"_l{layer}_reverse")[:directions]
    take = lambda name, *shape: np.stack(
        [tensors.take(f"lstm.{name}{end}", 4 * hidden, *shape) for end in ends]
    )
    return {
        "input_kernel": take("weight_ih", inputs).swapaxes(1, 2),
        "recurrent_kernel": take("weight_hh", hidden).swapaxes(1, 2),
        "bias": take("bias_ih") + take("bias_hh"),
    }


def export_laser(
    model: str | os.PathLike[str], output: str | os.PathLike[str], *, overwrite: bool = False
) -> dict[str, Any]:
    """Writes an encoder as the checkpoint and vocabulary files of LASER; returns `files`.

    ImportError without PyTorch; ValueError if LASER's code would compute other vectors.
    """
    spec = load_model(model)
    _check(spec, os.fspath(model))
    torch = import_torch("--to laser writes a PyTorch file, which")
    module, params = spec.module, spec.params
    tensors = {"embed_tokens.weight": params["embedding"]}
    bidirectional = module.unidirectional_layers == 0
    for number in range(module.layers):
        layer = params[f"layers_{number}"]
        for place, suffix in enumerate(("", "_reverse")[: 1 + bidirectional]):
            end = f"_l{number}{suffix}"
            tensors[f"lstm.weight_ih{end}"] = layer["input_kernel"][place].T
            tensors[f"lstm.weight_hh{end}"] = layer["recurrent_kernel"][place].T
            bias, second = layer["bias"][place], layer.get("recurrent_bias")
            tensors[f"lstm.bias_ih{end}"] = bias
            tensors[f"lstm.bias_hh{end}"] = bias * 0 if second is None else second[place]
    state = {
        "params": {
            "num_embeddings": len(params["embedding"]),
            "padding_idx": module.pad_id,
            "embed_dim": module.embedding_width,
            "hidden_size": module.width // (1 + bidirectional),
            "num_layers": module.layers,
            "bidirectional": bidirectional,
        },
        "model": {
            name: torch.from_numpy(np.array(value, np.float32, order="C"))
            for name, value in tensors.items()
        },
        "dictionary": dict(spec.vocab.dictionary),
    }
    with export_directory(output, CHECKPOINT_FILE, overwrite) as fresh:
        torch.save(state, fresh / CHECKPOINT_FILE)
        for name in spec.vocab.files.keys() & _SUFFIXES.keys():
            path = (fresh / CHECKPOINT_FILE).with_suffix(_SUFFIXES[name])
            path.write_bytes(spec.vocab.files[name])
        files = sorted(path.name for path in fresh.iterdir())
    return {"files": files}


def _check(spec: ModelSpec, where: str) -> None:
    """Raises OptionError for an encoder that LASER's code has no form for."""
    family, module = spec.config["family"], spec.module
    prompt = spec.prompts.get(spec.default_prompt)
    refuse(
        where, {f"is of family {family}; --to laser writes only family laser": family != "laser"}
    )
    one_way = module.unidirectional_layers
    problems = {
        "LASER's code prepares text in its own way and looks pieces up in its own dictionary, "
        "which gives other tokens than this vocabulary": not isinstance(spec.vocab, LaserVocab),
        f"keeps truncate_dim={spec.truncate_dim} dimensions, and LASER's code keeps all": (
            spec.truncate_dim is not None
        ),
        f"puts {prompt!r:.60} in front of a text, and LASER's code has no prompts": prompt,
        f"encoder.pooling={module.pooling!r} must be 'max', LASER's only one": (
            module.pooling != "max"
        ),
        f"encoder.unidirectional_layers={one_way} of {module.layers}: LASER has no mixture of "
        "directions": one_way not in (0, module.layers),
    }
    refuse(where, {f"{message}; use --to onnx": there for message, there in problems.items()})
