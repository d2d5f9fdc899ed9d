"""Preparation through Apache Beam: the bytes of the local path, one-line errors, nothing twice.

Most runs are on Beam's direct runner in this process, one is on its processes.
"""

import concurrent.futures
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.corpora_for_cli import arguments
from tests.corpora.small_corpus import WORDS, tree, write_corpus
from xling_jax.corpora.beam import runner as beam_runner
from xling_jax.corpora import pair_text, pair_tokens
from xling_jax.corpora import prepare as prepare_lib
from xling_jax.corpora.beam.runner import BeamRunner
from xling_jax.corpora.prepare import prepare
from xling_jax.corpora.shards import PairTokens

needs_beam = pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is None, reason="needs apache-beam"
)
_ROOT = Path(__file__).parents[2]


def settings(*specs: str, **changes) -> dict:
    """Keyword arguments for `prepare` that suit a tiny corpus."""
    return {
        "languages": ("de", "en", "fr"),
        "corpora": specs,
        "pairs": ("de-en", "fr-en"),
        "vocab": {"size": 80, "sample_sentences": 300},
        "num_workers": 1,
        **changes,
    }


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


@needs_beam
@pytest.mark.parametrize("options", [(), ("--direct_runner_bundle_repeat=2",)])
def test_bytes_are_those_of_the_local_path(corpora, tmp_path, small_chunks, options):
    """Also where the runner does each piece of work three times."""
    rules = {
        "exclude": [str(tmp_path / "dev.txt")],
        "cleaning": {"max_tokens_per_sentence": 30},
        "seed": 3,
    }
    local = prepare(workdir=tmp_path / "local", **settings(*corpora, **rules))
    runner = BeamRunner("DirectRunner", options)
    there = prepare(workdir=tmp_path / "beam", runner=runner, **settings(*corpora, **rules))
    assert there.counts == local.counts
    second = local.counts["corpora"][corpora[1]]["de-en"]
    assert (second["held_out"], second["duplicate"]) == (1, 119)
    expected = tree(tmp_path / "local")
    assert tree(tmp_path / "beam") == expected
    assert len([name for name in expected if name.endswith("tokens.npy")]) > 12


@needs_beam
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
    expected = tree(tmp_path / "local")
    assert tree(tmp_path / "beam") == expected
    assert len(PairTokens(tmp_path / "beam/data/de-en")) > 5000


@needs_beam
def test_after_a_broken_corpus_is_mended_only_it_is_cleaned(
    corpora, tmp_path, direct, small_chunks, monkeypatch
):
    broken = write_corpus(tmp_path / "broken.tsv", 100, seed=1)
    text = (tmp_path / "broken.tsv").read_text()
    (tmp_path / "broken.tsv").write_text(text + "one cell\n")
    specs = (broken, *corpora)
    with pytest.raises(ValueError) as local:
        prepare(workdir=tmp_path / "local", **settings(*specs))
    with pytest.raises(ValueError) as there:
        prepare(workdir=tmp_path / "beam", runner=direct, **settings(*specs))
    assert str(there.value) == str(local.value)
    assert "broken.tsv:102: a row must have 3 cells" in str(there.value)
    (tmp_path / "broken.tsv").write_text(text)
    sizes = []
    clean = pair_text.ChunkCleaner.__call__
    monkeypatch.setattr(
        pair_text.ChunkCleaner,
        "__call__",
        lambda self, chunk: sizes.append(len(chunk)) or clean(self, chunk),
    )
    prepare(workdir=tmp_path / "beam", runner=direct, **settings(*specs))
    assert sorted(sizes) == [20, 40, 40]
    prepare(workdir=tmp_path / "local", **settings(*specs))
    assert tree(tmp_path / "beam") == tree(tmp_path / "local")


@needs_beam
def test_a_failed_worker_is_one_line_and_finished_work_is_kept(
    corpora, tmp_path, direct, small_chunks, monkeypatch
):
    written, cleaned = [], []
    write, full_from = pair_tokens.write_shard, [3]

    def write_until_the_disk_is_full(directory, columns):
        if len(written) == full_from[0]:
            raise OSError(28, "No space left on device", "/mnt/00000")
        written.append(directory)
        write(directory, columns)

    monkeypatch.setattr(pair_tokens, "write_shard", write_until_the_disk_is_full)
    with pytest.raises(OSError, match="^/mnt/00000: No space left on device$"):
        prepare(workdir=tmp_path / "w", runner=direct, **settings(*corpora))
    assert len(written) == 3
    full_from[0] = -1
    monkeypatch.setattr(BeamRunner, "clean", lambda *_: cleaned.append(1))
    prepare(workdir=tmp_path / "w", runner=direct, **settings(*corpora))
    assert len(written) == len(set(written)) > 6 and not cleaned
    prepare(workdir=tmp_path / "local", **settings(*corpora))
    assert tree(tmp_path / "w") == tree(tmp_path / "local")


@needs_beam
@pytest.mark.parametrize("num_lost", [0, 1])
def test_of_an_interrupted_run_only_missing_chunks_are_cleaned(
    corpora, tmp_path, direct, small_chunks, monkeypatch, num_lost
):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare_lib.pair_text, "write_pair_text", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(workdir=tmp_path / "w", runner=direct, **settings(*corpora))
    chunks = sorted((tmp_path / "w/data/.clean.partial").glob("*/0*"))
    assert len(chunks) == 8 + 4
    for chunk in chunks[:num_lost]:
        chunk.unlink()
    cleaned = []
    clean = pair_text.ChunkCleaner.__call__
    with monkeypatch.context() as patch:
        patch.setattr(
            pair_text.ChunkCleaner,
            "__call__",
            lambda self, chunk: cleaned.append(chunk) or clean(self, chunk),
        )
        prepare(workdir=tmp_path / "w", runner=direct, **settings(*corpora))
    assert len(cleaned) == num_lost
    prepare(workdir=tmp_path / "local", **settings(*corpora))
    assert tree(tmp_path / "w") == tree(tmp_path / "local")


@needs_beam
def test_results_that_only_the_workers_see_are_an_error(
    corpora, tmp_path, direct, small_chunks, monkeypatch
):
    monkeypatch.setattr(beam_runner, "_clean_chunk", _do_nothing)
    with pytest.raises(FileNotFoundError, match="mount --workdir at the same path"):
        prepare(workdir=tmp_path / "w", runner=direct, **settings(*corpora))


def _do_nothing(cleaner, path, chunk):
    pass


class _TwoWorkersForEachShard(BeamRunner):
    """Stands for a runner that gives each shard to two workers at once."""

    def __post_init__(self):
        pass

    def write_shards(self, errors, writer, shards):
        errors.mkdir()
        with concurrent.futures.ThreadPoolExecutor(2) as workers:
            for shard in shards:
                arguments = writer, errors, shard
                both = [workers.submit(beam_runner._write_shard, *arguments) for _ in range(2)]
                for one in both:
                    one.result()
        return shards


def test_two_workers_with_the_same_shard_do_not_disturb_each_other(
    corpora, tmp_path, small_chunks, monkeypatch
):
    prepare(workdir=tmp_path / "w", **settings(*corpora))
    expected = tree(tmp_path / "w")
    for pair in ("de-en", "en-fr"):
        shutil.rmtree(tmp_path / "w/data" / pair)
    both_are_ready = threading.Barrier(2, timeout=30)
    num_written = []
    write = pair_tokens.write_shard

    def write_together(directory, columns):
        num_written.append(both_are_ready.wait())
        write(directory, columns)

    monkeypatch.setattr(pair_tokens, "write_shard", write_together)
    runner = _TwoWorkersForEachShard("two")
    prepare(workdir=tmp_path / "w", runner=runner, **settings(*corpora))
    assert tree(tmp_path / "w") == expected
    assert num_written.count(0) == num_written.count(1) > 6


@needs_beam
def test_a_dataset_that_beam_makes_is_made_by_the_runner(tmp_path, monkeypatch, small_chunks):
    beam = pytest.importorskip("apache_beam")
    tfds = pytest.importorskip("tensorflow_datasets")

    class BeamSentences(tfds.core.GeneratorBasedBuilder):
        """Made by Beam, as the large datasets of TFDS are."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = tfds.features.Translation(("de", "en"))
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, manager):
            return {"train": beam.Create(range(60)) | beam.Map(_make_example)}

        def _generate_examples(self):
            raise AssertionError("replaced by a pipeline")

    spec = f"tfds:beam_sentences?data_dir={tmp_path}/datasets"
    runner = BeamRunner("direct", ("--job_name=sentences",))
    names = []
    run = beam.Pipeline.run

    def note(pipeline, *arguments, **named):
        names.append(pipeline.options.get_all_options()["job_name"])
        return run(pipeline, *arguments, **named)

    monkeypatch.setattr(beam.Pipeline, "run", note)
    prepared = prepare(workdir=tmp_path / "w", runner=runner, **settings(spec, pairs=("de-en",)))
    assert prepared.counts["pairs"]["de-en"]["rows"] == 60
    assert names == ["sentences"] * 3  # The dataset, the cleaning, the shards.


def _make_example(number):
    words = [letters[number % 9 :] for letters in (WORDS["de"], WORDS["en"])]
    return number, dict(zip(("de", "en"), (f"{' '.join(w)} {number} {w[0]}" for w in words)))
