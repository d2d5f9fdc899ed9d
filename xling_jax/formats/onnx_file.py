"""An encoder as one ONNX file with its tokenizer beside it, for onnxruntime without JAX.

    model.onnx         `tokens` [batch, length] int32 -> `embeddings` [batch, dim] float32
    tokenizer.json     special tokens, the longest input and padding included; where a vocabulary
                       has no such form, its own files, read by `xling_jax.text`, which needs no JAX
    README.md          what it is, and how to run it in ten lines

jax2onnx converts the transformers. It cannot convert loops of unknown length, so the graphs of
static encoders and of LSTMs are written here, see `onnx_graphs`.
"""

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from xling_jax.encode.model_card import export_card
from xling_jax.encode.model_directory import CARD_FILE, PARAMS_FILE, ModelSpec, load_model
from xling_jax.formats.registry import export_directory
from xling_jax.formats.tokenizer_json import tokenizer_json, with_specials
from xling_jax.registry import import_extra
from xling_jax.text.huggingface_vocab import TOKENIZER_FILE, HuggingFaceVocab
from xling_jax.text.vocabularies import record, write_vocab

MODEL_FILE = "model.onnx"
_PACKAGES = ("onnx", "onnxruntime")
# Largest difference of an element from the encoder's own, relative to the largest element.
TOLERANCE = 1e-4
_MOST_BYTES = (1 << 31) - (1 << 24)  # a protocol buffer ends at 2 GB
_SAMPLE_SENTENCES, _SAMPLE_LENGTH = 16, 24

_WITH_TOKENIZER_JSON = """\
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
session = onnxruntime.InferenceSession("model.onnx")
sentences = ["Where is the station?", "Wo ist der Bahnhof?"]
rows = tokenizer.encode_batch({sentences})
tokens = np.array([row.ids for row in rows], np.int32)
vectors = session.run(None, {{"tokens": tokens}})[0]{cut}
"""
_WITH_XLING_JAX = """\
from pathlib import Path

import numpy as np
import onnxruntime
from xling_jax.text.vocabularies import read_vocab

vocab = read_vocab(Path("."), {preprocessing})
session = onnxruntime.InferenceSession("model.onnx")
sentences = ["Where is the station?", "Wo ist der Bahnhof?"]
rows = [[{before}*ids[{kept}]{after}] for ids in vocab.encode({sentences})]
longest = max(map(len, rows))
tokens = np.array([row + [{pad}] * (longest - len(row)) for row in rows], np.int32)
vectors = session.run(None, {{"tokens": tokens}})[0]{cut}
"""


def export_onnx(
    model: str | os.PathLike[str], output: str | os.PathLike[str], *, overwrite: bool = False
) -> dict[str, Any]:
    """Writes an encoder as an ONNX file with its tokenizer.

    The graph is run before it is written and compared with the encoder.

    Returns `megabytes`, and `largest_difference` from the encoder's vectors of random tokens.
    ImportError without onnx, onnxruntime or jax2onnx; ValueError if the model exceeds 2 GB, or its
    graph computes something else.
    """
    onnx, onnxruntime = (import_extra(name, "onnx", "--to onnx") for name in _PACKAGES)
    spec = load_model(model)
    num_bytes = (Path(model) / PARAMS_FILE).stat().st_size
    if num_bytes > _MOST_BYTES:
        raise ValueError(
            f"{os.fspath(model)}: has {num_bytes / 1e9:.1f} GB of parameters; an ONNX file holds "
            "2 GB; export a smaller encoder, or use --to sentence-transformers"
        )
    with export_directory(output, MODEL_FILE, overwrite) as fresh:
        path = fresh / MODEL_FILE
        onnx.save(_graph(spec), path)
        facts = {
            "largest_difference": _compare(spec, model, onnxruntime.InferenceSession(path)),
            "megabytes": round(path.stat().st_size / 1e6, 1),
        }
        script = _write_tokenizer(spec, fresh)
        pad_id = spec.vocab.pad_id
        rows = {
            "input": f"`tokens` [batch, length] int32, padded on the right with {pad_id}",
            "output": f"`embeddings` [batch, {spec.dim}] float32",
            "largest difference": f"{facts['largest_difference']:.1g} from the model's vectors",
            "size": f"{facts['megabytes']} MB",
        }
        card = export_card(spec.config, "onnx", script, rows)
        (fresh / CARD_FILE).write_text(card, encoding="utf-8")
    return facts


def _graph(spec: ModelSpec) -> Any:
    from xling_jax.formats.onnx_graphs import accept_empty, laser_graph, static_graph

    if spec.static:
        return static_graph(spec.static, spec.stored)
    if spec.config["family"] == "laser":
        graph = laser_graph(spec.module, spec.params)
    else:
        graph = _converted(spec)
    return accept_empty(graph, spec.vocab.pad_id)


def _converted(spec: ModelSpec) -> Any:
    """The graph of a transformer by jax2onnx."""
    jax2onnx = import_extra("jax2onnx", "onnx", "--to onnx of an encoder with layers")
    import jax
    import jax.numpy as jnp

    from xling_jax.encode.jax_backend import in_dtype
    from xling_jax.models.tlaser import SYMBOLIC_LENGTH

    if spec.config["family"] == "tlaser" and spec.max_length_tokens > SYMBOLIC_LENGTH:
        raise ValueError(
            f"max_length_tokens={spec.max_length_tokens}: a graph of T-LASER has {SYMBOLIC_LENGTH} "
            f"positions; shorten the model, xling_jax.load(M).with_max_length({SYMBOLIC_LENGTH})"
            ".save(DIR)"
        )
    module = in_dtype(spec.module, "float32")
    params = jax.tree.map(jnp.asarray, spec.params)

    def encode(tokens: jax.Array) -> jax.Array:
        return module.apply({"params": params}, tokens, deterministic=True).astype(jnp.float32)

    # With a limit, a table of positions can be cut at the length.
    limit = [f"length <= {spec.max_length_tokens}"]
    shape = jax.export.symbolic_shape("batch, length", constraints=limit)
    tokens = jax.ShapeDtypeStruct(shape, jnp.int32)
    names = {"input_names": ["tokens"], "output_names": ["embeddings"]}
    # It warns of every constant without a recorded type; the graph is checked when it has been run.
    logging.getLogger("onnx_ir").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # Its sums ask for float64, which JAX computes in float32 and says so.
        warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
        return jax2onnx.to_onnx(encode, [tokens], model_name="encoder", **names)


def _compare(spec: ModelSpec, directory: str | os.PathLike[str], session: Any) -> float:
    """The largest difference on random tokens; ValueError where it is one of what is computed."""
    from xling_jax.encode.encoder import Encoder
    from xling_jax.encode.texts import TokenWindow

    draw = np.random.default_rng(0)
    longest = min(_SAMPLE_LENGTH, spec.max_length_tokens)
    lengths = draw.integers(1, longest + 1, _SAMPLE_SENTENCES)
    pad_id, size = spec.vocab.pad_id, spec.vocab.size
    tokens = np.full((len(lengths), longest), pad_id, np.int32)
    real = np.arange(longest) < lengths[:, None]
    drawn = draw.integers(0, size - 1, real.sum())
    tokens[real] = drawn + (drawn >= pad_id)  # any but padding
    encoder = Encoder.from_directory(directory, "float32")
    ours = np.empty((len(lengths), spec.dim), np.float32)
    window = TokenWindow(tokens[real], np.concatenate([[0], np.cumsum(lengths)]))
    encoder.backend.run_window(window, ours, encoder.max_length_tokens)
    (theirs,) = session.run(None, {"tokens": tokens})
    difference = float(np.abs(ours - theirs).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(ours).max())):
        raise ValueError(
            f"the graph does not compute what the encoder does: vectors differ by {difference:.2g} "
            f"(at most {TOLERANCE:g}); nothing was written; this is a bug of xling_jax or jax2onnx"
        )
    return difference


def _write_tokenizer(spec: ModelSpec, fresh: Path) -> str:
    """Writes the files of the tokenizer; returns the script that runs the model with them."""
    vocab, (first, last) = spec.vocab, spec.special_ids
    prompt = spec.prompts.get(spec.default_prompt, "")
    prefix = vocab.text.prefix if isinstance(vocab, HuggingFaceVocab) else ""
    cut = f"[:, :{spec.truncate_dim}]" if spec.truncate_dim else ""
    limit = vocab.text.max_characters if isinstance(vocab, HuggingFaceVocab) else None
    try:
        content = tokenizer_json(vocab)
        content = with_specials(content, vocab, first, last, spec.max_length_tokens)
    except ValueError:  # it has no such form
        write_vocab(vocab, fresh)
        room = spec.max_length_tokens - len(first) - len(last)
        return _WITH_XLING_JAX.format(
            preprocessing=record(vocab),
            before="".join(f"{number}, " for number in first),
            kept=f"-{room}:" if vocab.truncation_side == "left" else f":{room}",
            after="".join(f", {number}" for number in last),
            pad=vocab.pad_id,
            sentences=_sentences(prompt),  # the vocabulary adds its prefix
            cut=cut,
        )
    (fresh / TOKENIZER_FILE).write_text(content, encoding="utf-8")
    return _WITH_TOKENIZER_JSON.format(sentences=_sentences(prefix + prompt, limit), cut=cut)


def _sentences(prompt: str, max_characters: int | None = None) -> str:
    """Python for what is encoded: the sentences behind a prompt, the first characters of each."""
    if not prompt and max_characters is None:
        return "sentences"
    sentence = f"{prompt!r} + sentence" if prompt else "sentence"
    if max_characters is not None:
        sentence = f"({sentence})[:{max_characters}]"
    return f"[{sentence} for sentence in sentences]"
