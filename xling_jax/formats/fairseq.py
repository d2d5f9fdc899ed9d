"""Transformer encoders of fairseq and fairseq2: LASER3 and SONAR's text encoder.

    LASER3  laser3-wol_Latn.v1.pt    laser3-wol_Latn.v1.spm, or laser2.spm, with their .cvocab
    SONAR   sonar_text_encoder.pt    sentencepiece.source.256000.model, NLLB's

A checkpoint of LASER3 is a dict: `model` (tensors in fairseq's names) and `cfg`, whose `model` has
the options of the encoder. In one of SONAR, `model` has tensors in fairseq2's names; heads are 64
wide, as published. A text of SONAR begins with the token of its language, here that of one language
for all.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.encode.model_directory import save_model
from xling_jax.files.untrusted import named
from xling_jax.formats.files import Tensors, load_torch
from xling_jax.registry import check_choice
from xling_jax.text.laser_vocab import (
    CODES_FILE,
    DICTIONARY_FILE,
    SPECIAL_IDS,
    VOCABULARY_FILE,
    LaserText,
    LaserVocab,
    dictionary_file,
)
from xling_jax.text.vocabularies import SENTENCEPIECE_FILE, load_sentencepiece

# Of a layer: our name -> that of fairseq, and that of fairseq2.
_LAYER = {
    "attention/query": ("self_attn.q_proj", "self_attn.q_proj"),
    "attention/key": ("self_attn.k_proj", "self_attn.k_proj"),
    "attention/value": ("self_attn.v_proj", "self_attn.v_proj"),
    "attention/output": ("self_attn.out_proj", "self_attn.output_proj"),
    "attention_norm": ("self_attn_layer_norm", "self_attn_layer_norm"),
    "ffn/inner": ("fc1", "ffn.inner_proj"),
    "ffn/outer": ("fc2", "ffn.output_proj"),
    "ffn_norm": ("final_layer_norm", "ffn_layer_norm"),
}
# Option of LASER3's encoder -> the only supported value, also where it is absent.
_REQUIRED = {
    "encoder_learned_pos": False,
    "no_token_positional_embeddings": False,
    "layernorm_embedding": False,
    "activation_fn": "relu",
    "encoder_layers_to_keep": None,
}
_POOLINGS = {"cls": "first", "maxpool": "max"}
_HEAD_WIDTH = 64  # of SONAR
# Behind the pieces, NLLB's table has a row for each of these in this order, and some more.
_NLLB_LANGUAGES = Path(__file__).with_name("nllb_languages.txt").read_text().split()
_NLLB_OTHERS = 3


def convert_laser3(
    state: Mapping[str, Any],
    checkpoint: Path,
    directory: str | os.PathLike[str],
    *,
    vocabulary: str | os.PathLike[str] | None,
    language: str,
    **settings: Any,
) -> dict[str, Any]:
    """Writes a model directory with the vectors of LASER3's code; see `laser.convert_laser`."""
    cfg = state["cfg"].get("model") if isinstance(state["cfg"], Mapping) else None
    cfg = cfg if isinstance(cfg, Mapping) else vars(cfg) if cfg else {}
    for name, value in _REQUIRED.items():
        if (found := cfg.get(name, value)) not in (value, None):
            raise ValueError(f"{checkpoint}: cfg: {name} must be {value!r}; found {found!r:.40}")
    criterion, begins = cfg.get("sentemb_criterion"), bool(cfg.get("prepend_bos"))
    check_choice(f"{checkpoint}: cfg: sentemb_criterion", criterion, _POOLINGS)
    if criterion == "cls" and not begins:
        raise ValueError(f"{checkpoint}: cfg: prepend_bos must be True with sentemb_criterion cls")
    tensors = Tensors(checkpoint, state["model"])
    tensors.begin_at("embed_tokens.weight")
    table = tensors.table(f"{tensors.prefix}embed_tokens.weight")
    params = _encoder(tensors, 0, "layers")
    if cfg.get("no_scale_embedding"):
        table = table / np.sqrt(table.shape[1]).astype(np.float32)
    path = Path(vocabulary) if vocabulary else find_beside(checkpoint, ".spm", "laser2")
    words = find_beside(path, ".cvocab", "laser2")
    lines = words.read_text(encoding="utf-8").splitlines()
    pieces = [line.rpartition(" ")[0] for line in lines]
    pieces += ["<mask>"] * ("final_norm" in params)
    dictionary = {piece: number for number, piece in enumerate([*SPECIAL_IDS, *pieces])}
    if len(dictionary) != len(table):
        raise ValueError(
            f"{words}: must be the dictionary of {checkpoint.name}, with {len(table)} entries; "
            f"found {len(dictionary)}"
        )
    options = {
        "heads": cfg.get("encoder_attention_heads"),
        "pooling": _POOLINGS[criterion],
        "norm": "pre" if cfg.get("encoder_normalize_before") else "post",
        "specials": [["bos"] if begins else [], ["eos"]],
    }
    vocab = read_vocabulary(path, dictionary, LaserText(language))
    recorded = {"converted_from": "LASER3 (facebookresearch/LASER)"}
    recorded |= {"checkpoint": checkpoint.name, "vocabulary": path.name}
    return _save(directory, vocab, table, params, options, recorded, **settings)


def convert_sonar(
    checkpoint: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    vocabulary: str | os.PathLike[str] | None = None,
    language: str = "eng_Latn",
    languages: Sequence[str] = (),
    max_length_tokens: int = 512,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes a model directory with the vectors of SONAR's text encoder; returns the record of it.

    `vocabulary` is NLLB's SentencePiece model, looked for beside the checkpoint; `language` is
    NLLB's code of the language whose token goes before every text. The others, and errors, are as
    for `laser.convert_laser`.
    """
    checkpoint = Path(checkpoint)
    state = load_torch(checkpoint)
    model = state.get("model", state) if isinstance(state, dict) else state
    tensors = Tensors(checkpoint, model)
    table = tensors.table("encoder_frontend.embed.weight")
    check_choice("language", language, _NLLB_LANGUAGES)
    path = Path(vocabulary) if vocabulary else find_beside(checkpoint, ".model")
    processor = load_sentencepiece(path.read_bytes(), str(path))
    count = processor.get_piece_size()
    rows = count + 1 + len(_NLLB_LANGUAGES) + _NLLB_OTHERS
    if len(table) != rows:
        raise ValueError(
            f"{path}: must be the vocabulary of {checkpoint.name}, whose table has {len(table)} "
            f"rows; with its {count} pieces, {rows} are expected"
        )
    # fairseq2 has padding, unknown, <s>, </s>; here are fairseq's <s>, padding, </s>, unknown. No
    # text has <s>, whose row is that of the language.
    first = count + 1 + _NLLB_LANGUAGES.index(language)
    table = np.concatenate([table[[first, 0, 3, 1]], table[4 : count + 1]])
    pieces = [processor.id_to_piece(number) for number in range(3, count)]
    dictionary = {piece: number for number, piece in enumerate([*SPECIAL_IDS, *pieces])}
    vocab = read_vocabulary(path, dictionary, LaserText(raw=True, lowercase=False))
    options = {"pooling": "mean", "norm": "pre", "specials": [["bos"], ["eos"]]}
    options["heads"] = table.shape[1] // _HEAD_WIDTH
    recorded = {"converted_from": "SONAR (facebookresearch/SONAR)", "language": language}
    recorded |= {"checkpoint": checkpoint.name, "vocabulary": path.name}
    settings = {"languages": languages, "max_length_tokens": max_length_tokens}
    params = _encoder(tensors, 1, "encoder.layers")
    return _save(
        directory, vocab, table, params, options, recorded, overwrite=overwrite, **settings
    )


def _encoder(tensors: Tensors, library: int, layers: str) -> dict[str, Any]:
    """Parameters of the layers and of the last norm, in the names of a library of `_LAYER`."""
    begin = f"{tensors.prefix}{layers}."
    numbers = {n.removeprefix(begin).split(".")[0] for n in tensors.names if n.startswith(begin)}
    first = lambda name: tensors.table(f"{begin}0.{_LAYER[name][library]}.weight")
    width, inner = first("attention_norm").size, len(first("ffn/inner"))
    sizes = {"ffn/inner": (width, inner), "ffn/outer": (inner, width)}
    params: dict[str, Any] = {}
    for number in range(len(numbers)):
        block: dict[str, Any] = {"attention": {}, "ffn": {}}
        for ours, names in _LAYER.items():
            name = f"{layers}.{number}.{names[library]}"
            part, _, own = ours.partition("/")
            if own:
                block[part][own] = tensors.dense(name, *sizes.get(ours, (width, width)))
            else:
                block[ours] = tensors.norm(name, width)
        params[f"blocks_{number}"] = block
    if f"{tensors.prefix}layer_norm.weight" in tensors.names:
        params["final_norm"] = tensors.norm("layer_norm", width)
    return params


def _save(
    directory: str | os.PathLike[str],
    vocab: LaserVocab,
    table: np.ndarray,
    params: dict[str, Any],
    options: Mapping[str, Any],
    recorded: dict[str, Any],
    **settings: Any,
) -> dict[str, Any]:
    width, heads = table.shape[1], options["heads"]
    if type(heads) is not int or heads < 1 or width % heads:
        raise ValueError(
            f"{recorded['checkpoint']}: the attention heads must divide the width {width}; found "
            f"{heads!r:.40}"
        )
    arguments = {
        "vocab_size": len(table),
        "vocab_multiple": 1,
        "width": width,
        "layers": sum(name.startswith("blocks_") for name in params),
        "ffn_width": params["blocks_0"]["ffn"]["inner"]["kernel"].shape[1],
        "last_norm": "final_norm" in params,
        **options,
    }
    params = {"embed": {"embedding": table}, **params}
    arguments = {"encoder_args": arguments, "params": params, "vocab": vocab, **settings}
    save_model(directory, family="fairseq", training=recorded, **arguments)
    return recorded


def find_beside(path: Path, suffix: str, shared: str = "") -> Path:
    """The file of a suffix with the name of another, with one that encoders share, or alone."""
    for found in (path.with_suffix(suffix), path.with_name(f"{shared}{suffix}")):
        if found.is_file():
            return found
    alone = sorted(path.parent.glob(f"*{suffix}"))
    if len(alone) != 1:
        found = ", ".join(file.name for file in alone) or "none"
        raise ValueError(
            f"{path}: needs its {suffix} file beside it; found {found}; name it with --vocabulary"
        )
    return alone[0]


def read_vocabulary(path: Path, dictionary: Mapping[str, int], text: LaserText) -> LaserVocab:
    """The vocabulary of a dictionary and the file of its splitter; ValueError if it is broken."""
    files = {DICTIONARY_FILE: dictionary_file(dictionary)}
    if path.suffix == ".fcodes":
        files[CODES_FILE] = path.read_bytes()
        files[VOCABULARY_FILE] = path.with_suffix(".fvocab").read_bytes()
    else:
        files[SENTENCEPIECE_FILE] = path.read_bytes()
    with named(path):
        return LaserVocab(files, text)
