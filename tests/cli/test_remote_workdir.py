"""Workdirs, inputs and outputs in an object store: real processes against a local emulator."""

import gzip
import json
import re
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.cli.corpora_for_cli import arguments, write_tsv
from tests.cli.object_store import ObjectStore, object_store
from tests.train.processes import metrics_without_timing, wait_for

pytest.importorskip("gcsfs")
pytest.importorskip("gcp_storage_emulator")

STEPS = 12
SETTINGS = (f"--config.train.total_steps={STEPS}", "--config.train.checkpoint_every_steps=3")


@pytest.fixture(scope="module")
def store():
    with object_store() as store:
        yield store


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> dict[str, str]:
    """Where all processes keep their compiled programs."""
    return {"JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("programs"))}


@pytest.fixture(scope="module")
def local(store, programs, tmp_path_factory) -> Path:
    """A run in a directory that nothing disturbs."""
    top = tmp_path_factory.mktemp("local")
    corpus = write_tsv(top / "corpus.tsv")
    finish(store.start(*train(f"tsv:{corpus}", top / "w"), cache=top, **programs))
    return top / "w"


def train(corpus: str, workdir: object, *overrides: str) -> list[str]:
    return arguments("train", corpus, workdir, *SETTINGS, *overrides)


def finish(process: subprocess.Popen, status: int = 0) -> str:
    """Waits for a command; returns what it logged."""
    _, errors = process.communicate(timeout=240)
    assert process.returncode == status, errors
    return errors


def whole_checkpoints(store: ObjectStore, workdir: str) -> list[int]:
    found = (
        re.fullmatch(r"(\d+)/commit_success.txt", n) for n in store.names(f"{workdir}/checkpoints")
    )
    return sorted(int(match[1]) for match in found if match)


def download(store: ObjectStore, directory: str, target: Path) -> Path:
    for name in store.names(directory):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(store.read(f"{directory}/{name}"))
    return target


def test_killed_and_continued_on_a_fresh_machine_it_equals_a_local_run(
    store, local, programs, tmp_path
):
    corpus = gzip.compress((local.parent / "corpus.tsv").read_bytes())
    store.write("text/corpus.tsv.gz", corpus)
    command = train("tsv:gs://bucket/text/*.tsv.gz", "gs://bucket/runs/killed")

    process = store.start(*command, cache=tmp_path / "first", **programs)
    seen = lambda: whole_checkpoints(store, "runs/killed")
    assert wait_for(lambda: seen() or process.poll() is not None, 120, interval_s=0.05)
    process.kill()
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    saved = seen()[-1]
    lines = [json.loads(line) for line in store.read("runs/killed/metrics.jsonl").splitlines()]
    assert {line["step"] for line in lines} >= set(range(1, saved + 1))

    # Another machine takes over: it has neither the copy nor the corpus.
    shutil.rmtree(tmp_path / "first")
    store.files.rm("bucket/text/corpus.tsv.gz")
    errors = finish(store.start(*command, cache=tmp_path / "second", **programs))
    assert f"continuing from checkpoint {saved}" in errors

    assert whole_checkpoints(store, "runs/killed") == [STEPS - 3, STEPS]
    found = download(store, "runs/killed", tmp_path / "found")
    assert metrics_without_timing(found) == metrics_without_timing(local)
    for name in ("encoder/encoder.safetensors", "vocab/sentencepiece.model"):
        assert (found / name).read_bytes() == (local / name).read_bytes(), name
    assert json.loads((found / "config.json").read_text())["data"]["corpora"] == [
        "tsv:gs://bucket/text/*.tsv.gz"
    ]
    assert sorted(path.name for path in (found / "checkpoints").iterdir()) == [
        f"{STEPS - 3:08d}",
        f"{STEPS:08d}",
    ]
    assert not (found / "data/text").exists()


def test_embed_reads_model_and_text_and_writes_vectors_there(store, local, programs, tmp_path):
    for path in (local / "encoder").iterdir():
        store.write(f"runs/done/encoder/{path.name}", path.read_bytes())
    store.write("runs/done/metrics.jsonl", b"")
    store.write("runs/done/data/large.npy", b"not to be copied")
    text = "\n".join(["abcd efgh", "", "kkkk"])
    store.write("text/three.txt.gz", gzip.compress(text.encode()))
    command = ["embed", "--model", "gs://bucket/runs/done", "--input"]
    command += ["gs://bucket/text/three.txt.gz", "--output", "gs://bucket/vectors/three.npy"]
    finish(store.start(*command, cache=tmp_path, **programs))
    assert not list(tmp_path.rglob("large.npy"))
    (tmp_path / "three.npy").write_bytes(store.read("vectors/three.npy"))

    (tmp_path / "three.txt").write_text(text)
    command = ["embed", "--model", local, "--input", tmp_path / "three.txt"]
    finish(store.start(*command, "--output", tmp_path / "local.npy", cache=tmp_path, **programs))
    expected = np.load(tmp_path / "local.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "three.npy"), expected)
    assert expected.shape == (3, 16)


def test_two_processes_with_a_copy_each_train_like_one(store, local, programs, tmp_path):
    store.write("text/corpus.tsv", (local.parent / "corpus.tsv").read_bytes())
    command = train("tsv:gs://bucket/text/corpus.tsv", "gs://bucket/runs/two")
    command += ["--coordinator", "127.0.0.1:29517", "--num-processes", "2", "--process-id"]
    pair = [
        store.start(*command, number, cache=tmp_path / f"{number}", **programs)
        for number in range(2)
    ]
    for process in pair:
        finish(process)
    assert not list((tmp_path / "1").rglob("corpus.tsv")), "only process 0 needs the corpus"
    found = download(store, "runs/two", tmp_path / "found")
    for a, b in zip(metrics_without_timing(found), metrics_without_timing(local), strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_allclose(a[name], b[name], rtol=2e-4, atol=1e-5, err_msg=name)
    assert {path.name for path in found.glob("checkpoints/*/state/ocdbt.process_*")} == {
        "ocdbt.process_0",
        "ocdbt.process_1",
    }
