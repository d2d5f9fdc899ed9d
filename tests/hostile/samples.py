"""Undamaged files of every kind that we read, and how they are read."""

import collections
import functools
import io
import itertools
import json
import pickle
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.cli.encoder_for_cli import write_encoder
from tests.corpora.small_corpus import prepare, settings, vocab_path, write_corpus
from xling_jax.corpora.held_out import file_hashes
from xling_jax.corpora.shards import PairTokens
from xling_jax.corpora.specs import read_corpus
from xling_jax.corpora.stages import load_prepared
from xling_jax.documents import records
from xling_jax.encode.model_directory import load_model
from xling_jax.files.embeddings import read_embeddings
from xling_jax.files.lines import read_line_blocks
from xling_jax.report.page import make_page
from xling_jax.report.runs import load_runs
from xling_jax.text.vocab import Vocab, train_vocab

Files = dict[str, bytes]
LANGUAGES = ("de", "en")
ROWS = 12


class Sample(NamedTuple):
    """Files, path inside a directory -> content, and what reads them there."""

    files: Callable[[], Files]
    read: Callable[[Path], Any]


def texts(language: str) -> list[str]:
    """Row i of one language."""
    words = {"de": "Der Satz über Äpfel Nr.", "en": "The phrase on apples no."}
    return [f"{words[language]} {1000 + i} ({'x' * (i % 5)})" for i in range(ROWS)]


def table(*columns: list[str]) -> bytes:
    return "".join("\t".join(row) + "\n" for row in zip(*columns)).encode()


def made(make: Callable[[Path], Any]) -> Callable[[], Files]:
    """The files that a function writes into a directory; written once."""

    @functools.cache
    def files() -> Files:
        with tempfile.TemporaryDirectory() as name:
            make(directory := Path(name))
            paths = (p for p in directory.rglob("*") if p.is_file() and p.name != ".lock")
            return {p.relative_to(directory).as_posix(): p.read_bytes() for p in paths}

    return files


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def zipped(members: Files) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def _tmx() -> Files:
    variant = '<tuv xml:lang="{}"><seg>{}</seg></tuv>'.format
    rows = zip(*map(texts, LANGUAGES))
    units = "".join(f"<tu>{''.join(map(variant, LANGUAGES, row))}</tu>\n" for row in rows)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return {"a.tmx": f'{head}<tmx version="1.4"><body>\n{units}</body></tmx>\n'.encode()}


def _gettext() -> Files:
    head = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    entries = (f'\nmsgid "{en}"\nmsgstr "{de}"\n' for de, en in zip(*map(texts, LANGUAGES)))
    catalog = (head + "".join(entries)).encode()
    return {"p-1.0-py3-none-any.whl": zipped({"p/locale/de/LC_MESSAGES/a.po": catalog})}


def _documents() -> Files:
    def lines(code: str, prefix: str) -> bytes:
        bodies = ({"text": f"{text} One more."} for text in texts(code))
        rows = ({"id": f"{prefix}{i}", "lang": code, **body} for i, body in enumerate(bodies))
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)

    gold = table(*([f"{p}{i}" for i in range(ROWS)] for p in ("s", "t")))
    return {"s.jsonl": lines("de", "s"), "t.jsonl": lines("en", "t"), "gold.tsv": gold}


def _read_documents(directory: Path) -> None:
    paths = [directory / name for name in ("s.jsonl", "t.jsonl", "gold.tsv")]
    records.load_document_pairs(*paths)
    file_hashes(str(paths[0]))


def _report() -> Files:
    results = {
        "task": "retrieval",
        "model": {"path": "m", "fingerprint": "ab" * 32, "dim": 8},
        "settings": {"similarity": "cosine"},
        "data": [{"name": "toy", "num_rows": 8}],
        "metrics": {"toy/p_at_1": 0.4, "toy/error": 0.5},
    }
    lines = [{"step": 10 * i, "train/loss": 3.0 - i / 9} for i in range(9)]
    config = {"seed": 0, "encoder": {"family": "tlaser"}, "train": {"total_steps": 90}}
    return {
        "run/results.json": json.dumps(results).encode(),
        "run/metrics.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode(),
        "run/config.json": json.dumps(config).encode(),
    }


def _prepare(directory: Path) -> None:
    prepare(workdir=directory, **settings(write_corpus(directory / "c.tsv", 60)))


def _read_prepared(directory: Path) -> None:
    data = load_prepared(directory)
    size = Vocab(vocab_path(data)).size
    for pair in data.pairs:
        tokens = PairTokens(data.directory / pair, size)
        for code in tokens.languages:
            tokens.gather(code, np.arange(len(tokens)), 40, 1)


def _write_huggingface(directory: Path) -> None:
    from tests.formats.huggingface_reference import save_model

    save_model(directory / "hf", "bert")


def _read_huggingface(directory: Path) -> None:
    from xling_jax.formats.huggingface import convert_huggingface

    convert_huggingface(directory / "hf", directory / "out")


# LASER's checkpoints, which are pickles.


@functools.cache
def vocab() -> Vocab:
    return train_vocab([text for code in LANGUAGES for text in texts(code) * 3], size=60)


class _Command:
    """What an attacker would put into a pickle."""

    def __reduce__(self):
        return sys.exit, ("executed",)


def _saved(state: Any, legacy: bool = False) -> bytes:
    import torch

    stream = io.BytesIO()
    torch.save(state, stream, _use_new_zipfile_serialization=not legacy)
    return stream.getvalue()


@functools.cache
def laser_checkpoints() -> list[bytes]:
    """A checkpoint in both formats of torch, and what only a hand can make of it."""
    import torch

    pieces = ["<s>", "<pad>", "</s>", "<unk>", *vocab().pieces()[4:]]
    params = {"num_embeddings": len(pieces), "padding_idx": 1, "embed_dim": 6, "hidden_size": 4}
    params |= {"bidirectional": True, "num_layers": 2}
    lstm = torch.nn.LSTM(6, 4, 2, bidirectional=True).state_dict()
    model = collections.OrderedDict({f"lstm.{name}": value for name, value in lstm.items()})
    model["embed_tokens.weight"] = torch.randn(len(pieces), 6)
    ids = {piece: number for number, piece in enumerate(pieces)}
    state = {"params": params, "model": model, "dictionary": ids}
    whole = [_saved(state), _saved(state, legacy=True)]
    sizes = [("num_layers", n) for n in (10**9, -1, 10**30, True)]
    sizes += [("hidden_size", n) for n in (10**9, 0, 2**63)]
    sizes += [("num_embeddings", 10**12), ("embed_dim", 10**12), ("bidirectional", 10**6)]
    states = [{**state, "params": {**params, name: value}} for name, value in sizes]
    # Four bytes in the file that claim to be gigabytes once they are copied; no numbers at all.
    huge = torch.zeros(1).expand(10**9, 10)
    weights = [huge, [1, 2], torch.zeros(2).to_sparse(), torch.zeros(64, 6, device="meta")]
    states += [{**state, "model": {**model, "embed_tokens.weight": value}} for value in weights]
    states += [{**state, "model": value} for value in ({**model, 3: huge[:2]}, [1, 2], None)]
    odd = ([("a", 1)], {"a": -1}, {"a": 10**12}, {3: 5}, None, {"a": "b"}, "ab", {})
    states += [{**state, "dictionary": value} for value in odd]
    states += [_Command(), [_Command()], None, 3, {"args": 1}, {"params": None}]
    commands = [_saved(_Command(), legacy=True), pickle.dumps(_Command())]
    claims = [
        _with_storage_size(whole[0], *claim) for claim in ((0, 2**31 - 1), (3, 1000), (-1, 1))
    ]
    return [*whole, *map(_saved, states), *commands, *claims, b"\x80\x02" + b"(" * 100_000]


def _with_storage_size(content: bytes, which: int, size: int) -> bytes:
    """A zip checkpoint whose pickle claims another number of elements for one storage."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    (name,) = (name for name in members if name.endswith("data.pkl"))
    data = members[name]
    # The last item of a storage's description: a number, the end of a tuple, its memo, BINPERSID.
    found = [*re.finditer(rb"(?:K.|M..|J....)(?=t(?:q.|r....)?Q)", data, re.DOTALL)][which]
    members[name] = data[: found.start()] + b"J" + size.to_bytes(4, "little") + data[found.end() :]
    return zipped(members)


def _laser() -> Files:
    return {"l.pt": laser_checkpoints()[0], "l.spm": vocab().model_bytes}


def _read_laser(directory: Path) -> None:
    from xling_jax.formats.laser import convert_laser

    convert_laser(directory / "l.pt", directory / "out", max_length_tokens=32)


SAMPLES = {
    "tsv": Sample(
        lambda: {"a.tsv": table(*(["de", *texts("de")], ["en", *texts("en")]))},
        lambda directory: list(read_corpus(f"tsv:{directory}/*.tsv", LANGUAGES)),
    ),
    "tmx": Sample(_tmx, lambda directory: list(read_corpus(f"tmx:{directory}/*.tmx", LANGUAGES))),
    "gettext": Sample(
        _gettext, lambda directory: list(read_corpus(f"gettext:{directory}", LANGUAGES))
    ),
    "lines": Sample(
        lambda: {"a.txt": table(texts("de"))},
        lambda directory: list(itertools.chain(*read_line_blocks(f"{directory}/a.txt"))),
    ),
    "documents": Sample(_documents, _read_documents),
    "embeddings": Sample(
        lambda: {"t.de.npy": npy(np.ones((ROWS, 8), np.float32))},
        lambda directory: read_embeddings(directory / "t.de.npy", 8),
    ),
    "report": Sample(
        _report, lambda directory: make_page(load_runs([directory / "run"], []), title="T")
    ),
    "prepared data": Sample(made(_prepare), _read_prepared),
    "model directory": Sample(
        made(lambda directory: write_encoder(directory).rename(directory / "m")),
        lambda directory: load_model(directory / "m"),
    ),
    "laser": Sample(_laser, _read_laser),
    "huggingface": Sample(made(_write_huggingface), _read_huggingface),
}
