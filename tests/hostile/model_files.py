"""Loaders of models, vectors, prepared data and results: undamaged files, made once a process."""

import collections
import functools
import importlib.util
import io
import json
import pickle
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import safetensors.numpy

from tests.hostile.damage import Files
from tests.hostile.text_files import LANGUAGES, NUM_ROWS, Target, texts, unequal
from xling_jax.align.precision import Calibration, ScoreCurve, Threshold
from xling_jax.config import load
from xling_jax.corpora.prepare import load_prepared
from xling_jax.corpora.shards import PairTokens
from xling_jax.corpora.specs import read_corpus
from xling_jax.encode.model_directory import load_model, save_model, write_calibration
from xling_jax.eval.stored_embeddings import StoredEmbeddings
from xling_jax.files.embeddings import read_embeddings
from xling_jax.report.page import make_page
from xling_jax.report.runs import load_runs
from xling_jax.text.vocab import Vocab, train_vocab

DIM = 8


def tree(directory: Path) -> Files:
    """The files below a directory."""
    paths = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in paths
        if path.name != ".lock"
    }


def made(make: Callable[[Path], None]) -> Callable[[], Files]:
    """The files that a function writes into a directory; written once."""

    @functools.cache
    def files() -> Files:
        with tempfile.TemporaryDirectory() as directory:
            make(Path(directory))
            return tree(Path(directory))

    return files


# Vectors.


@functools.cache
def _vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(NUM_ROWS, DIM)).astype("<f4")


def _embeddings(kind: int) -> Files:
    if kind % 4 == 0:
        return {"t.de.bin": _vectors().tobytes()}
    stream = io.BytesIO()
    np.save(stream, _vectors().astype(["<f4", "<f4", "<f2", "<f8"][kind % 4]))
    return {"t.de.npy": stream.getvalue()}


def _read_embeddings(directory: Path) -> np.ndarray:
    path = next(iter(directory.glob("t.de.*")), directory / "t.de.npy")
    vectors = read_embeddings(path, DIM)
    stored = StoredEmbeddings(directory, {"t.de": texts("de")}, dim=DIM)
    return vectors, stored.encode(texts("de"))


def _check_embeddings(directory: Path, result: tuple) -> str:
    (path,) = directory.glob("t.de.*")
    raw = path.read_bytes()
    if raw[:6] == b"\x93NUMPY":
        with np.errstate(over="ignore"):
            expected = np.load(io.BytesIO(raw), allow_pickle=False).astype(np.float32)
    else:
        expected = np.frombuffer(raw, "<f4").reshape(-1, DIM)
    same = [np.array_equal(found, expected) for found in result]
    return "" if all(same) and np.isfinite(expected).all() else f"{result} must be {expected}"


# Vocabularies and models.


@functools.cache
def vocab() -> Vocab:
    return train_vocab([text for code in LANGUAGES for text in texts(code) * 3], size=60)


_FAMILIES = {
    "tlaser": {"width": 8, "layers": 1, "heads": 2, "ffn_width": 8},
    "laser": {"width": 8, "layers": 1, "embedding_width": 8},
    "dual": {"width": 8, "layers": 1, "heads": 2, "ffn_width": 8},
    "bert": {"width": 8, "layers": 1, "heads": 2, "ffn_width": 8, "max_length_tokens": 32},
}


_CALIBRATION = Calibration(
    k=4,
    languages=("de", "en"),
    data=({"name": "dev", "sha256": "0", "num_rows": 9, "languages": ["de", "en"]},),
    curves={"ratio": ScoreCurve(((1.5, -4.5), (1.25, -4.0)))},
    thresholds={"ratio": (Threshold(1.1, 0.9, 0.8, 0.5),)},
)


@functools.cache
def model_files(family: str) -> Files:
    import jax

    from xling_jax.models import registry

    arguments = {**_FAMILIES[family]}
    module = registry.build_encoder(family, vocab_size=vocab().size, **arguments)
    tokens = jax.ShapeDtypeStruct((1, 8), np.int32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), tokens)["params"]
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as directory:
        save_model(
            Path(directory) / "m",
            family=family,
            encoder_args=arguments,
            params=jax.tree.map(lambda s: rng.normal(0, 0.3, s.shape).astype(s.dtype), shapes),
            vocab=vocab(),
            languages=("de", "en"),
            max_length_tokens=32,
            training={"steps": 0},
        )
        if family == "dual":
            write_calibration(Path(directory) / "m", _CALIBRATION)
        return tree(Path(directory) / "m")


def _model(kind: int) -> Files:
    return {f"m/{n}": c for n, c in model_files([*_FAMILIES][kind % 4]).items()}


def _read_model(directory: Path) -> Any:
    from xling_jax.encode.encoder import Encoder

    spec = load_model(directory / "m")
    assert spec.vocab.encode(texts("de"))
    Encoder(
        mock.Mock(),
        spec.vocab,
        specials=spec.module.specials,
        max_length_tokens=spec.max_length_tokens,
        languages=spec.languages,
        fingerprint=spec.fingerprint,
        dim=spec.dim,
    )
    return spec


def _check_model(directory: Path, spec: Any) -> str:
    from flax.traverse_util import flatten_dict

    good = model_files(spec.config["family"])
    expected = safetensors.numpy.load(good["encoder.safetensors"])
    found = flatten_dict(spec.params, sep="/")
    same = all(np.array_equal(found[name], expected[name]) for name in expected)
    same = same and spec.vocab.model_bytes == good["sentencepiece.model"]
    return "" if same and found.keys() == expected.keys() else "other parameters"


def _embed(model: str) -> Callable[[Path], list[str]]:
    def argv(directory: Path) -> list[str]:
        (directory / "in.txt").write_text("Ein Satz.\n")
        paths = ["--input", str(directory / "in.txt"), "--output", str(directory / "out.npy")]
        return ["embed", "--model", str(directory / model), *paths]

    return argv


def _sentencepiece(kind: int) -> Files:
    return {"s.model": vocab().model_bytes}


def _read_sentencepiece(directory: Path) -> tuple:
    found = Vocab(directory / "s.model")
    ids = found.encode(texts("de") + ["", "☃ \ud800 x", "a" * 3000])
    return found, ids, found.pieces()


def _check_sentencepiece(directory: Path, result: tuple) -> str:
    found, ids, pieces = result
    if len(pieces) != found.size or any(len(row) and row.max() >= found.size for row in ids):
        return f"{found.size} pieces, ids to {max(max(row, default=0) for row in ids)}"
    return ""


# Published checkpoints.

_LASER_PARAMS = {"padding_idx": 1, "embed_dim": 6, "hidden_size": 4, "bidirectional": True}
_LASER_PARAMS["num_layers"] = 2


@functools.cache
def _laser_state() -> dict[str, Any]:
    import torch

    pieces = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    for piece in vocab().pieces()[4:]:
        pieces[piece] = len(pieces)
    params = {**_LASER_PARAMS, "num_embeddings": len(pieces)}
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(6, 4, 2, bidirectional=True)
    model = collections.OrderedDict({f"lstm.{k}": v for k, v in lstm.state_dict().items()})
    model["embed_tokens.weight"] = torch.randn(len(pieces), 6)
    return {"params": params, "model": model, "dictionary": pieces}


class _Command:
    """What an attacker would put into a pickle."""

    def __reduce__(self):
        return sys.exit, ("executed",)


def _saved(state: Any, legacy: bool) -> bytes:
    import torch

    stream = io.BytesIO()
    torch.save(state, stream, _use_new_zipfile_serialization=not legacy)
    return stream.getvalue()


@functools.cache
def laser_checkpoints() -> list[bytes]:
    """The checkpoint in both formats, and what only a hand can make of it."""
    import torch

    state = _laser_state()
    found = [_saved(state, legacy) for legacy in (False, True)]
    for name, value in (
        *(("num_layers", n) for n in (10**9, -1, 10**30, True, 3)),
        *(("hidden_size", n) for n in (10**9, 0, -4, 2**63)),
        ("num_embeddings", 10**12),
        ("embed_dim", 10**12),
        ("bidirectional", 10**6),
        ("padding_idx", 7),
    ):
        found.append(_saved({**state, "params": {**state["params"], name: value}}, False))
    # One number that claims to be many: four bytes in the file, gigabytes once it is copied.
    for number in (torch.zeros(1, dtype=torch.float16), torch.zeros(1)):
        huge = number.expand(10**9, 10)
        model = {**state["model"], "embed_tokens.weight": huge}
        found.append(_saved({**state, "model": model}, False))
    for model in (
        {**state["model"], "embed_tokens.weight": [1, 2]},
        {**state["model"], 3: torch.zeros(2)},
        {**state["model"], "embed_tokens.weight": torch.zeros(2).to_sparse()},
        {**state["model"], "embed_tokens.weight": torch.zeros(64, 6, device="meta")},
        {**state["model"], "embed_tokens.weight": state["model"]["embed_tokens.weight"].long()},
        [1, 2],
        None,
    ):
        found.append(_saved({**state, "model": model}, False))
    odd = ([("a", 1)], {"a": -1}, {"a": 10**12}, {3: 5}, None, {"a": "b"}, {"a": [1]}, "ab", {})
    found += [_saved({**state, "dictionary": dictionary}, False) for dictionary in odd]
    found += [_saved(other, legacy) for other in (_Command(), [_Command()]) for legacy in (0, 1)]
    found += [_saved(other, False) for other in (None, [], 3, {"args": 1}, {"params": None})]
    found += [pickle.dumps(_Command()), pickle.dumps({"a": 1}), b"\x80\x02" + b"(" * 100_000]
    for which, size in ((0, 2**31 - 1), (0, 10**6), (3, 1000), (-1, 400), (-1, 1), (1, 0)):
        found.append(_with_storage_size(found[0], which, size))
    return found


def _laser(kind: int) -> Files:
    """As published, for most numbers; a checkpoint made by hand for others."""
    kinds = laser_checkpoints()
    return {"l.pt": kinds[kind % 2 if kind % 3 else kind // 3 % len(kinds)]} | {
        "l.spm": vocab().model_bytes
    }


def _with_storage_size(content: bytes, which: int, size: int) -> bytes:
    """A zip checkpoint whose pickle claims another number of elements for one storage."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    (name,) = (name for name in members if name.endswith("data.pkl"))
    data = members[name]
    # The last item of a storage's description: a number, the end of a tuple, its memo, BINPERSID.
    found = [*re.finditer(rb"(?:K.|M..|J....)(?=t(?:q.|r....)?Q)", data, re.DOTALL)][which]
    data = data[: found.start()] + b"J" + size.to_bytes(4, "little") + data[found.end() :]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for member, value in (members | {name: data}).items():
            archive.writestr(member, value)
    return stream.getvalue()


def _read_laser(directory: Path) -> Any:
    from xling_jax.formats.laser import convert_laser, read_laser_checkpoint

    read = read_laser_checkpoint(directory / "l.pt")
    convert_laser(directory / "l.pt", directory / "out", max_length_tokens=32)
    return read, load_model(directory / "out")


def _check_laser(directory: Path, result: tuple) -> str:
    expected = _laser_state()["model"]["embed_tokens.weight"].numpy()
    read, spec = result
    found = spec.params["embedding"]
    if (directory / "l.pt").read_bytes()[:2] == b"PK" and not np.array_equal(found, expected):
        return "other parameters"
    return "" if np.array_equal(read.params["embedding"], found) else "lost in conversion"


_BERT_CONFIG = {
    "model_type": "bert",
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
_BERT_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##s", "der", "satz"]


def _bert_tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(_BERT_PIECES), 8),
        "embeddings.position_embeddings.weight": (32, 8),
        "embeddings.token_type_embeddings.weight": (2, 8),
    }

    def dense(name: str, out: int, inputs: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (out, inputs), (out,)

    def norm(name: str) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (8,)

    norm("embeddings.LayerNorm")
    for layer in (f"encoder.layer.{i}" for i in range(2)):
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            dense(f"{layer}.attention.{part}", 8, 8)
        dense(f"{layer}.intermediate.dense", 16, 8)
        dense(f"{layer}.output.dense", 8, 16)
        norm(f"{layer}.attention.output.LayerNorm")
        norm(f"{layer}.output.LayerNorm")
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@functools.cache
def _huggingface_files(kind: int) -> Files:
    """A whole file; shards; sentence-transformers; a PyTorch file; word pieces or XLM's pieces."""
    tensors = _bert_tensors()
    config = {**_BERT_CONFIG, "vocab_size": len(_BERT_PIECES)}
    files = {
        "config.json": json.dumps(config).encode(),
        "vocab.txt": "\n".join([*_BERT_PIECES, ""]).encode(),
        "tokenizer_config.json": json.dumps(
            {"model_max_length": 30, "cls_token": "[CLS]"}
        ).encode(),
        "special_tokens_map.json": json.dumps({"pad_token": {"content": "[PAD]"}}).encode(),
    }
    if kind in (0, 2):
        from tokenizers import BertWordPieceTokenizer

        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "vocab.txt").write_bytes(files.pop("vocab.txt"))
            tokenizer = BertWordPieceTokenizer(f"{directory}/vocab.txt")
        files["tokenizer.json"] = tokenizer.to_str().encode()
    if kind == 1:
        names = sorted(tensors)
        parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
        files |= {
            part: safetensors.numpy.save({name: tensors[name] for name in own})
            for part, own in parts.items()
        }
        index = {name: part for part, own in parts.items() for name in own}
        files["model.safetensors.index.json"] = json.dumps({"weight_map": index}).encode()
    elif kind == 3:
        import torch

        state = {name: torch.from_numpy(value) for name, value in tensors.items()}
        files["pytorch_model.bin"] = _saved(state, False)
    else:
        files["model.safetensors"] = safetensors.numpy.save(tensors)
    if kind == 2:
        modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")]
        rows = [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
            for i, (path, name) in enumerate([*modules, ("3_Normalize", "Normalize")])
        ]
        dense = {"in_features": 8, "out_features": 5, "bias": True}
        dense["activation_function"] = "torch.nn.modules.activation.Tanh"
        weights = {"linear.weight": np.ones((5, 8), np.float32), "linear.bias": np.ones(5, "f4")}
        prompts = {"prompts": {"q": "query: "}, "default_prompt_name": "q"}
        files |= {
            "modules.json": json.dumps(rows).encode(),
            "1_Pooling/config.json": json.dumps({"pooling_mode_mean_tokens": True}).encode(),
            "2_Dense/config.json": json.dumps(dense).encode(),
            "2_Dense/model.safetensors": safetensors.numpy.save(weights),
            "config_sentence_transformers.json": json.dumps(prompts).encode(),
            "sentence_bert_config.json": json.dumps({"max_seq_length": 20}).encode(),
        }
    if kind == 4:
        config = {**config, "model_type": "roberta", "max_position_embeddings": 32}
        pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *"abcdefgh", "ab", "cd", "x"]
        files = {"model.safetensors": files["model.safetensors"]} | {
            "config.json": json.dumps({**config, "pad_token_id": 1}).encode(),
            "vocab.json": json.dumps({piece: i for i, piece in enumerate(pieces)}).encode(),
            "merges.txt": b"#version: 0.2\na b\nc d\n",
        }
    return files


def _huggingface(kind: int) -> Files:
    return {f"hf/{name}": content for name, content in _huggingface_files(kind % 5).items()}


def _read_huggingface(directory: Path) -> Any:
    from xling_jax.formats.huggingface import convert_huggingface

    convert_huggingface(directory / "hf", directory / "out")
    return load_model(directory / "out")


def _check_huggingface(directory: Path, spec: Any) -> str:
    if not all(np.isfinite(spec.vocab.encode(["a b der satz"])[0])):
        return "no ids"
    return ""


# Prepared data, results, configs.


def _prepare(directory: Path) -> None:
    from tests.corpora.small_corpus import prepare, settings, write_corpus

    corpus = write_corpus(directory / "c.tsv", 60)
    prepare(workdir=directory, **settings(corpus))
    (directory / "c.tsv").unlink()


_prepared = made(_prepare)


def _read_prepared(directory: Path) -> dict[str, dict[str, np.ndarray]]:
    data = load_prepared(directory)
    vocab = Vocab(data.vocab_path)
    rows = {}
    for pair in data.pairs:
        tokens = PairTokens(data.directory / pair, vocab.size)
        order = np.arange(len(tokens))
        rows[pair] = {code: tokens.gather(code, order, 40, 1) for code in tokens.languages}
        for code, found in rows[pair].items():
            lengths = np.minimum(tokens.lengths[code], 40)
            assert (found[np.arange(40) >= lengths[:, None]] == 1).all()
    return rows, vocab.size


def _check_prepared(directory: Path, result: tuple) -> str:
    rows, size = result
    for pair, sides in rows.items():
        if len({len(side) for side in sides.values()}) != 1:
            return f"{pair}: sides of { {len(s) for s in sides.values()} } rows"
        if any(side.size and side.max() >= size for side in sides.values()):
            return f"{pair}: ids beyond the vocabulary of {size}"
    return ""


def _results(kind: int) -> Files:
    cells = {"en": {"de": 0.5}, "de": {"en": 0.25}}
    matrix = {"languages": ["en", "de"], "p_at_1": cells, "error": {"en": {"de": 0.5}}}
    retrieval = {
        "task": "retrieval",
        "model": {"path": "m", "fingerprint": "ab" * 32, "dim": 8},
        "settings": {"similarity": "cosine"},
        "data": [{"name": "toy", "num_rows": 8}],
        "metrics": {"toy/p_at_1": 0.4, "toy/error": 0.5},
        "matrices": {"toy": matrix | {"mean": {"p_at_1": 0.4, "error": 0.5}, "num_queries": {}}},
    }
    accuracy = {"en": {"en": 0.9, "de": 0.7}, "de": {"en": 0.6, "de": 0.8}}
    mean = {"accuracy": {"same": 0.85, "cross": 0.65, "all": 0.75}}
    labels = {
        "task": "classification",
        "model": {"path": "m"},
        "settings": {},
        "metrics": {"toy/accuracy_all": 0.75},
        "matrices": {"toy": {"accuracy": accuracy, "mean": mean}},
    }
    lines = [
        {
            "step": 10 * i,
            "train/loss": 3.0 - i / 9,
            "train/tokens_per_second": 900.0,
            "dev/p": i / 9,
        }
        for i in range(9)
    ]
    config = {"seed": 0, "encoder": {"family": "tlaser"}, "train": {"total_steps": 90}}
    return {
        "run/results.json": json.dumps(retrieval).encode(),
        "run/eval/results.json": json.dumps(labels).encode(),
        "run/metrics.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode(),
        "run/config.json": json.dumps(config).encode(),
    }


def _read_report(directory: Path) -> str:
    return make_page(load_runs([directory / "run"], []), title="T")


def _report(directory: Path) -> list[str]:
    return ["report", "--run", str(directory / "run"), "--output", str(directory / "out.html")]


_CONFIG = b"""\
from xling_jax.configs import ct_laser

def get_config(arg=""):
    config = ct_laser.get_config("smoke")
    config.encoder.width = 16
    config.data.pairs = ("de-en", "en-de")
    config.languages = ("de", "en")
    config.train.total_steps = 8
    config.optimizer.name = "adamw"
    return config
"""


def _train(directory: Path) -> list[str]:
    argv = ["train", "--config", str(directory / "config.py"), "--workdir", str(directory / "w")]
    return [*argv, "--dry-run"]


# TensorFlow Datasets.


def _no_download(*arguments: Any) -> None:
    raise OSError("tfds:opus_tatoeba/en-es: no network")


def _write_dataset(directory: Path) -> None:
    import tensorflow_datasets as tfds

    dummy = Path(__file__).parents[1] / "corpora" / "tfds_dummy_data" / "opus"
    with mock.patch.object(tfds.download.DownloadManager, "download_and_extract", lambda *_: dummy):
        list(read_corpus(f"tfds:opus_tatoeba/en-es?data_dir={directory}", ("en", "es")))


_dataset = made(_write_dataset)


def _read_dataset(directory: Path) -> list:
    import tensorflow_datasets as tfds

    with mock.patch.object(tfds.download.DownloadManager, "download_and_extract", _no_download):
        return list(read_corpus(f"tfds:opus_tatoeba/en-es?data_dir={directory}", ("en", "es")))


def _check_dataset(directory: Path, rows: list) -> str:
    good = [
        {"en": "Where is the station?", "es": "¿Dónde está la estación?"},
        {"en": "It is late.", "es": "Es tarde."},
    ]
    return "" if len(rows) == len(good) else unequal([row.texts for row in rows], good)


def _installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) for module in modules)


MODEL_TARGETS = [
    Target("embeddings", _embeddings, _read_embeddings, _check_embeddings),
    Target("sentencepiece", _sentencepiece, _read_sentencepiece, _check_sentencepiece),
    Target("model directory", _model, _read_model, _check_model, argv=_embed("m")),
    Target("prepared data", lambda kind: _prepared(), _read_prepared, _check_prepared),
    Target("report", _results, _read_report, argv=_report),
    Target(
        "config",
        lambda kind: {"config.py": _CONFIG},
        lambda d: load(str(d / "config.py")),
        argv=_train,
    ),
]
if _installed("torch"):
    MODEL_TARGETS.append(
        Target(
            "laser",
            _laser,
            _read_laser,
            _check_laser,
            argv=lambda d: [
                "convert",
                "--from",
                "laser",
                str(d / "l.pt"),
                "--output",
                str(d / "out"),
            ],
        )
    )
if _installed("torch", "tokenizers"):
    MODEL_TARGETS.append(
        Target(
            "huggingface",
            _huggingface,
            _read_huggingface,
            _check_huggingface,
            argv=lambda d: [
                "convert",
                "--from",
                "huggingface",
                str(d / "hf"),
                "--output",
                str(d / "out"),
            ],
        )
    )
if _installed("tensorflow_datasets"):
    MODEL_TARGETS.append(Target("tfds", lambda kind: _dataset(), _read_dataset, _check_dataset))
