"""Preparation through Apache Beam: the bytes of one machine, one-line errors, nothing twice.

Most runs are on Beam's direct runner in this process, one is on its processes.
"""

import gzip
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.corpora_for_cli import arguments
from tests.corpora.small_corpus import (
    preparation,
    prepare,
    settings,
    tree,
    write_corpus,
)
from xling_jax.cli.main import main
from xling_jax.corpora import beam, pair_text, pair_tokens
from xling_jax.corpora import prepare as prepare_lib
from xling_jax.corpora.beam import BeamEngine, BeamRunner
from xling_jax.corpora.shards import PairTokens

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("apache_beam") is None, reason="needs apache-beam"),
    pytest.mark.usefixtures("small_chunks"),
]
_ROOT = Path(__file__).parents[3]


def prepare_on(runner, *, workdir, keep=False, **given):
    """Prepares on Beam, from plain values."""
    del given["num_workers"]
    how = {"workdir": workdir, "keep": keep, "engine": BeamEngine(runner, workdir)}
    return prepare_lib.prepare(preparation(**given), **how).counts


def published(workdir: Path) -> dict[str, bytes]:
    """What preparation leaves, but for the times of files."""
    files = tree(workdir)
    assert not any("partial" in name for name in files)
    return {name: content for name, content in files.items() if "input_hashes" not in name}


@pytest.fixture(scope="module")
def direct() -> BeamRunner:
    return BeamRunner("direct")


@pytest.fixture
def corpora(tmp_path) -> tuple[str, ...]:
    """Two corpora with duplicates, broken rows and text that is held out."""
    first = write_corpus(tmp_path / "first.tsv", 300)
    with open(tmp_path / "first.tsv", "ab") as file:
        file.write(b"kaputt\xff\tbroken\tcasse\nOK\tOK\tOK\n\t\t\nnur Deutsch\t\t\n")
    lines = (tmp_path / "first.tsv").read_bytes().splitlines()[1:120]
    for column, code in enumerate(("de", "en")):
        texts = [line.split(b"\t")[column] for line in lines]
        texts += [f"{code} words {number}".encode() for number in range(30)]
        (tmp_path / f"second.{code}").write_bytes(b"\n".join(texts) + b"\n")
    (tmp_path / "dev.txt").write_text("de words 7\n")
    return first, f"moses:{tmp_path}/second"


@pytest.mark.parametrize(
    "changes",
    [
        {"exclude": "dev.txt"},
        {"validation_pairs": 15, "cleaning": {"drop_duplicates": False}, "evaluation": "dev.txt"},
        {
            "pairs": ("de-en", "en-en", "de-fr"),
            "vocab": {"size": 80, "sampling_exponent": 0.3},
        },
    ],
    ids=lambda changes: ",".join(changes),
)
def test_bytes_are_those_of_one_machine(corpora, tmp_path, monkeypatch, changes):
    """Also where the runner does each piece of work three times."""
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "fourth.tsv", 90, seed=6)
    (tmp_path / "packed.tsv.gz").write_bytes(gzip.compress((tmp_path / "fourth.tsv").read_bytes()))
    write_corpus(tmp_path / "plain.tsv", 50, seed=7)
    (tmp_path / "alone.tsv").write_text("en\tde\n" + "a house\t\n" * 3 + "a tree is here\t\n" * 40)
    specs = (*corpora, "tsv:p*.tsv*", "first.tsv[:50]")
    specs += ("alone.tsv",) if "pairs" in changes else ()
    local = prepare(workdir=tmp_path / "local", **settings(*specs, **changes))
    options = ("--direct_runner_bundle_repeat=2",) if "exclude" in changes else ()
    runner = BeamRunner("DirectRunner", options)
    counts = prepare_on(runner, workdir=tmp_path / "beam", **settings(*specs, **changes))
    assert counts == local.counts
    if "exclude" in changes:
        second = counts["corpora"][corpora[1]]["de-en"]
        assert (second["held_out"], second["duplicate"]) == (1, 119)
    expected = published(tmp_path / "local")
    assert published(tmp_path / "beam") == expected
    assert len([name for name in expected if name.endswith("tokens.npy")]) > 12


def test_processes_of_the_command_write_the_same_bytes(tmp_path):
    """The command, with paths from where it was started, on two processes of Beam's."""
    write_corpus(tmp_path / "corpus.tsv", 10_500, ("de", "en"))
    beam = [
        "--runner=direct",
        "--beam-options=--direct_running_mode=multi_processing --direct_num_workers=2",
    ]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    for workdir, words in (("local", ["--num-workers=1"]), ("beam", beam)):
        command = arguments("prepare", "tsv:corpus.tsv", workdir, "--config.vocab.size=80")
        done = subprocess.run(
            [sys.executable, "-m", "xling_jax.cli.main", *command, *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "10,500" in done.stdout
    assert published(tmp_path / "beam") == published(tmp_path / "local")
    assert len(PairTokens(tmp_path / "beam/data/de-en")) > 5000


def test_what_is_finished_is_not_done_again(corpora, tmp_path, direct, monkeypatch):
    first = prepare_on(direct, workdir=tmp_path / "w", **settings(*corpora))
    run, cleaned, times = BeamRunner.run, [], []
    monkeypatch.setattr(BeamRunner, "run", lambda *given: times.append(1) or run(*given))
    clean = pair_text.ChunkCleaner.__call__
    monkeypatch.setattr(
        pair_text.ChunkCleaner,
        "__call__",
        lambda self, chunk: cleaned.append(len(chunk)) or clean(self, chunk),
    )
    assert prepare_on(direct, workdir=tmp_path / "w", **settings(*corpora)) == first
    assert not times
    # Processes of this machine find the same stages done, or make what is missing.
    shutil.rmtree(tmp_path / "w/data/de-en")
    assert prepare(workdir=tmp_path / "w", **settings(*corpora)).counts == first
    assert not cleaned
    with open(tmp_path / "first.tsv", "a") as file:
        file.write("ein Haus\ta house\tune maison\n")
    prepare_on(direct, workdir=tmp_path / "w", **settings(*corpora))
    # Files are hashed, one corpus is read, cleaned and finished, text sampled and tokenized.
    assert len(times) == 6
    assert sum(cleaned) == 302  # but the broken row, and the one of one language
    prepare(workdir=tmp_path / "local", **settings(*corpora))
    assert published(tmp_path / "w") == published(tmp_path / "local")


def test_what_is_missing_is_made_again(corpora, tmp_path, direct):
    given = settings(*corpora, validation_pairs=9)
    counts = prepare_on(direct, workdir=tmp_path / "w", **given)
    made = published(tmp_path / "w")
    for name in ("vocab/sentencepiece.model", "data/de-en", "data/text"):
        path = tmp_path / "w" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        assert prepare_on(direct, workdir=tmp_path / "w", **given) == counts
        assert published(tmp_path / "w") == made, name


@pytest.mark.parametrize(
    "error, status, message",
    [
        (KeyboardInterrupt(), 130, "xling prepare: interrupted; run the same command to resume"),
        (
            OSError(28, "No space left", "/tmp"),
            1,
            "xling prepare: error: --runner direct: the pipeline failed: OSError: [Errno 28] "
            "No space left: '/tmp' [while running 'Call']; run the same command again: finished "
            "work is kept",
        ),
    ],
)
def test_what_stops_a_step_is_one_line(
    corpora, tmp_path, monkeypatch, capsys, caplog, error, status, message
):
    """Beam adds the step to an error, of whatever kind, and logs its traceback."""

    def stop(*_):
        raise error

    monkeypatch.setattr(pair_text.ChunkCleaner, "__call__", stop)
    command = arguments("prepare", corpora[0], tmp_path / "w", "--config.vocab.size=80")
    assert main([*command, "--runner=direct"]) == status
    assert capsys.readouterr().err.splitlines()[-1] == message
    assert not [record for record in caplog.records if record.name.startswith("apache_beam")]


def test_data_of_other_settings_are_replaced(corpora, tmp_path, direct):
    prepare_on(direct, workdir=tmp_path / "w", **settings(*corpora, validation_pairs=9))
    changes = {"pairs": ("de-fr", "de-en"), "vocab": {"size": 90}, "cleaning": {"max_words": 6}}
    prepare_on(direct, workdir=tmp_path / "w", **settings(*corpora, **changes))
    prepare(workdir=tmp_path / "local", **settings(*corpora, **changes))
    assert published(tmp_path / "w") == published(tmp_path / "local")
    for pair in ("de-fr", "de-en"):  # no empty shards are left of the others
        assert len(PairTokens(tmp_path / "w/data" / pair)) > 0
    assert not (tmp_path / "w/data/en-fr").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"corpora": ("tsv:no.tsv",)},
        {"corpora": ("moses:unequal",)},
        {"pairs": ("de-fr",), "corpora": ("moses:second",)},
        {"validation_pairs": 5000},
    ],
    ids=lambda changes: ",".join(map(str, changes.values())),
)
def test_what_cannot_be_prepared_is_told_as_on_one_machine(
    corpora, tmp_path, direct, monkeypatch, changes
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unequal.de").write_text("a b c\n" * 900)
    (tmp_path / "unequal.en").write_text("a b c\n" * 901)
    given = settings(*corpora) | {"pairs": ("de-en",)} | changes
    with pytest.raises((ValueError, OSError)) as local:
        prepare(workdir="local", **given)
    with pytest.raises((ValueError, OSError)) as there:
        prepare_on(direct, workdir="beam", **given)
    found = str(there.value).replace(f"{tmp_path}/", "")
    assert found == str(local.value).replace(f"{tmp_path}/", "")
    assert not (tmp_path / "beam/data/manifest.json").exists()


def test_a_failed_worker_is_one_line_and_finished_work_is_kept(
    corpora, tmp_path, direct, monkeypatch
):
    written, cleaned = [], []
    write, full_from = pair_tokens.ShardWriter.__call__, [3]

    def write_until_the_disk_is_full(self, shard):
        if len(written) == full_from[0]:
            raise OSError(28, "No space left on device", "/mnt/00000")
        written.append((shard.pair, shard.number))
        return write(self, shard)

    monkeypatch.setattr(pair_tokens.ShardWriter, "__call__", write_until_the_disk_is_full)
    with pytest.raises(OSError, match="failed: OSError: .* No space left on device: '/mnt/00000'"):
        prepare_on(direct, workdir=tmp_path / "w", **settings(*corpora))
    assert len(written) == 3
    full_from[0] = -1
    clean = pair_text.ChunkCleaner.__call__
    monkeypatch.setattr(
        pair_text.ChunkCleaner,
        "__call__",
        lambda self, chunk: cleaned.append(1) or clean(self, chunk),
    )
    prepare_on(direct, workdir=tmp_path / "w", **settings(*corpora))
    assert len(written) == len(set(written)) > 6 and not cleaned
    prepare(workdir=tmp_path / "local", **settings(*corpora))
    assert published(tmp_path / "w") == published(tmp_path / "local")


def test_results_that_only_the_workers_see_are_an_error(corpora, tmp_path, direct, monkeypatch):
    monkeypatch.setattr(beam, "_call", lambda *_: None)
    with pytest.raises(FileNotFoundError, match="mount --workdir at the same path"):
        prepare_on(direct, workdir=tmp_path / "w", **settings(*corpora))
