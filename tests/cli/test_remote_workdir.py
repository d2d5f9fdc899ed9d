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
from tests.cli.processes_for_cli import free_address
from tests.train.processes import metrics_without_timing, wait_for

pytestmark = pytest.mark.slow

pytest.importorskip("gcsfs")
pytest.importorskip("gcp_storage_emulator")

STEPS = 12
SETTINGS = (f"--config.train.total_steps={STEPS}", "--config.train.checkpoint_every_steps=3")


@pytest.fixture(scope="module")
def store():
    with object_store() as store:
        yield store


@pytest.fixture(scope="module")
def local(store, tmp_path_factory) -> Path:
    """A run in a directory that nothing disturbs."""
    top = tmp_path_factory.mktemp("local")
    corpus = write_tsv(top / "corpus.tsv")
    finish(store.start(*train(f"tsv:{corpus}", top / "w"), cache=top))
    return top / "w"


def train(corpus: str, workdir: object, *overrides: str) -> list[str]:
    return arguments("train", corpus, workdir, *SETTINGS, *overrides)


KILLED = train("tsv:gs://bucket/text/*.tsv.gz", "gs://bucket/runs/killed")


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


@pytest.fixture(scope="module")
def continued(store, local, tmp_path_factory) -> Path:
    """What `gs://bucket/runs/killed` holds after a kill and a new start on a fresh machine."""
    tmp_path = tmp_path_factory.mktemp("killed")
    corpus = gzip.compress((local.parent / "corpus.tsv").read_bytes())
    store.write("text/corpus.tsv.gz", corpus)
    process = store.start(*KILLED, cache=tmp_path / "first")
    seen = lambda: whole_checkpoints(store, "runs/killed")
    assert wait_for(lambda: seen() or process.poll() is not None, 120, interval_s=0.05)
    process.kill()
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    saved = seen()[-1]
    assert saved < STEPS, "the run ended before it could be killed"
    lines = [json.loads(line) for line in store.read("runs/killed/metrics.jsonl").splitlines()]
    assert {line["step"] for line in lines} >= set(range(1, saved + 1))

    # Another machine takes over: it has neither the copy nor the corpus.
    shutil.rmtree(tmp_path / "first")
    store.files.rm("bucket/text/corpus.tsv.gz")
    errors = finish(store.start(*KILLED, cache=tmp_path / "second"))
    assert f"resuming from checkpoint {saved}" in errors
    return download(store, "runs/killed", tmp_path / "found")


@pytest.mark.exhaustive
def test_killed_and_continued_on_a_fresh_machine_it_equals_a_local_run(local, continued):
    assert metrics_without_timing(continued) == metrics_without_timing(local)
    for name in ("encoder/encoder.safetensors", "vocab/sentencepiece.model"):
        assert (continued / name).read_bytes() == (local / name).read_bytes(), name
    config = json.loads((continued / "config.json").read_text())
    assert config["data"]["corpora"] == ["tsv:gs://bucket/text/*.tsv.gz"]
    kept = sorted(path.name for path in (continued / "checkpoints").iterdir())
    assert kept == [f"{STEPS - 3:08d}", f"{STEPS:08d}"]
    assert all((continued / "checkpoints" / name / "commit_success.txt").exists() for name in kept)
    assert not (continued / "data/text").exists()


def test_a_bucket_that_is_not_there_is_one_line(store, tmp_path):
    command = train("tsv:corpus.tsv", "gs://another/run")
    errors = finish(store.start(*command, cache=tmp_path), status=2)
    assert "gs://another/run: no such bucket, or no permission" in errors.splitlines()[-1], errors


def run_on_two_machines(store, command, directory) -> list[str]:
    """Runs two processes, each with copies of its own; returns what they logged."""
    command = [*command, "--coordinator", free_address(), "--num-processes", "2", "--process-id"]
    pair = [
        store.start(*command, number, cache=directory / f"{number}", JAX_COMPILATION_CACHE_DIR="")
        for number in range(2)
    ]
    said = [process.communicate(timeout=240)[1] for process in pair]
    assert [process.returncode for process in pair] == [0, 0], "\n".join(reversed(said))
    return said


@pytest.mark.exhaustive
def test_two_processes_with_a_copy_each_train_like_one(store, local, tmp_path):
    store.write("text/corpus.tsv", (local.parent / "corpus.tsv").read_bytes())
    command = train("tsv:gs://bucket/text/corpus.tsv", "gs://bucket/runs/two")
    said = run_on_two_machines(store, command, tmp_path)
    assert ["rows of 1 pair in" in text for text in said] == [True, False], (
        "only the first prepares"
    )
    found = download(store, "runs/two", tmp_path / "found")
    assert not [name for name in store.names("runs/two") if "/." in name or "data/text" in name]
    for a, b in zip(metrics_without_timing(found), metrics_without_timing(local), strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_allclose(a[name], b[name], rtol=2e-4, atol=1e-5, err_msg=name)
    assert {path.name for path in found.glob("checkpoints/*/state/ocdbt.process_*")} == {
        "ocdbt.process_0",
        "ocdbt.process_1",
    }


@pytest.mark.exhaustive
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_continues(store, continued, tmp_path):
    newest = f"runs/killed/checkpoints/{STEPS:08d}"
    for name in store.names(f"{newest}/state"):
        if "/d/" in f"/{name}":
            content = store.read(f"{newest}/state/{name}")
            store.write(f"{newest}/state/{name}", content[: len(content) // 2])
    errors = finish(store.start(*KILLED, cache=tmp_path))
    assert f"checkpoint {STEPS} in gs://bucket/runs/killed/checkpoints is damaged" in errors
    assert f"resuming from checkpoint {STEPS - 3}" in errors
    kept = {name.split("/")[0] for name in store.names("runs/killed/checkpoints")}
    assert kept == {f"{STEPS - 3:08d}", f"{STEPS:08d}", f"broken-{STEPS:08d}"}
    encoder = "encoder/encoder.safetensors"
    assert store.read(f"runs/killed/{encoder}") == (continued / encoder).read_bytes()
