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

from tests.cli.encoder_for_cli import write_encoder
from tests.hostile.damage import Files
from tests.hostile.text_files import LANGUAGES, NUM_ROWS, Target, texts
from xling_jax.corpora.prepared import load_prepared
from xling_jax.corpora.shards import PairTokens
from xling_jax.encode.model_directory import load_model
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


def _write_model(directory: Path) -> None:
    write_encoder(directory).rename(directory / "m")
    (directory / "v.model").unlink(missing_ok=True)


_model = made(_write_model)


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

    good = _model()
    expected = safetensors.numpy.load(good["m/encoder.safetensors"])
    found = flatten_dict(spec.params, sep="/")
    same = all(np.array_equal(found[name], expected[name]) for name in expected)
    same = same and spec.vocab.model_bytes == good["m/sentencepiece.model"]
    return "" if same and found.keys() == expected.keys() else "other parameters"


def _embed(model: str) -> Callable[[Path], list[str]]:
    def argv(directory: Path) -> list[str]:
        (directory / "in.txt").write_text("Ein Satz.\n")
        paths = ["--input", str(directory / "in.txt"), "--output", str(directory / "out.npy")]
        return ["embed", "--model", str(directory / model), *paths]

    return argv


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
    from xling_jax.formats.torch_file import load_torch

    read = read_laser_checkpoint(directory / "l.pt", load_torch(directory / "l.pt"))
    convert_laser(directory / "l.pt", directory / "out", max_length_tokens=32)
    return read, load_model(directory / "out")


def _check_laser(directory: Path, result: tuple) -> str:
    expected = _laser_state()["model"]["embed_tokens.weight"].numpy()
    read, spec = result
    found = spec.params["embedding"]
    if (directory / "l.pt").read_bytes()[:2] == b"PK" and not np.array_equal(found, expected):
        return "other parameters"
    return "" if np.array_equal(read.params["embedding"], found) else "lost in conversion"


def _write_huggingface(directory: Path) -> None:
    from tests.formats.huggingface_reference import save_model

    save_model(directory / "hf", "bert")


_huggingface = made(_write_huggingface)


def _read_huggingface(directory: Path) -> Any:
    from xling_jax.formats.huggingface import convert_huggingface

    convert_huggingface(directory / "hf", directory / "out")
    return load_model(directory / "out")


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
    lines = [{"step": 10 * i, "train/loss": 3.0 - i / 9, "dev/p": i / 9} for i in range(9)]
    config = {"seed": 0, "encoder": {"family": "tlaser"}, "train": {"total_steps": 90}}
    return {
        "run/results.json": json.dumps(retrieval).encode(),
        "run/metrics.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode(),
        "run/config.json": json.dumps(config).encode(),
    }


def _read_report(directory: Path) -> str:
    return make_page(load_runs([directory / "run"], []), title="T")


def _report(directory: Path) -> list[str]:
    return ["report", "--run", str(directory / "run"), "--output", str(directory / "out.html")]


MODEL_TARGETS = [
    Target("embeddings", _embeddings, _read_embeddings, _check_embeddings),
    Target("model directory", lambda kind: _model(), _read_model, _check_model, argv=_embed("m")),
    Target("prepared data", lambda kind: _prepared(), _read_prepared, _check_prepared),
    Target("report", _results, _read_report, argv=_report),
]
if importlib.util.find_spec("torch"):
    MODEL_TARGETS.append(Target("laser", _laser, _read_laser, _check_laser))
if importlib.util.find_spec("torch") and importlib.util.find_spec("transformers"):
    MODEL_TARGETS.append(Target("huggingface", lambda kind: _huggingface(), _read_huggingface))
