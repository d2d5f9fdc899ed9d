"""`xling prepare` as several processes writes what one process writes, each doing its share."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.cli import processes_for_cli as processes
from tests.cli.corpora_for_cli import arguments, write_tsv
from tests.corpora.small_corpus import tree
from tests.train.processes import wait_for

pytestmark = pytest.mark.slow

ROWS, CHUNK, SHARD = 1000, 100, 200
CHUNKS = 10 + 5  # of the first and of the second corpus


def small_chunks(number):
    """So that few rows are enough for all processes, and who dies is soon missed."""
    from xling_jax.cli import distributed
    from xling_jax.corpora import jobs, pair_text, pair_tokens

    distributed.HEARTBEAT_TIMEOUT_S, jobs._SEEN_WITHIN_S = 5, 1
    pair_text._CHUNK_ROWS, pair_tokens.SHARD_ROWS = CHUNK, SHARD


@pytest.fixture(scope="module")
def corpora(tmp_path_factory) -> Path:
    """Two corpora with common rows, and texts that are held out."""
    directory = tmp_path_factory.mktemp("corpora")
    first = write_tsv(directory / "first.tsv", ROWS).read_text().splitlines()
    (directory / "second.tsv").write_text("\n".join([first[0], *first[600:], "x\t", "a\tb c"]))
    (directory / "dev.txt").write_text(first[7].split("\t")[1] + "\n")
    return directory


def prepare(corpora: Path, workdir: Path, *overrides: str) -> list[str]:
    words = arguments("prepare", "", workdir, "--config.data.corpora=" + names(corpora), *overrides)
    return [*words, f"--config.data.exclude=('{corpora}/dev.txt',)", "--num-workers", "1"]


def names(corpora: Path) -> str:
    return f"('tsv:{corpora}/first.tsv','tsv:{corpora}/second.tsv')"


@pytest.fixture(scope="module")
def expected(corpora, tmp_path_factory) -> dict[str, bytes]:
    """What one process makes."""
    top = tmp_path_factory.mktemp("one")
    processes.run(top / "logs", 1, prepare(corpora, top / "w"), small_chunks)
    assert len(list((top / "w/data/de-en").glob("0*"))) > 5
    return tree(top / "w")


def shares(said: str, job: str) -> list[int]:
    """How many pieces of a job each process has done."""
    return [int(pieces) for pieces in re.findall(rf"{job}, share of .*: (\d+) pieces", said)]


@pytest.mark.parametrize("count", [2, 4])
def test_several_processes_write_the_same_bytes_each_its_share(count, corpora, expected, tmp_path):
    command = prepare(corpora, tmp_path / "w")
    processes.run(tmp_path / "logs", count, command, small_chunks)
    assert tree(tmp_path / "w") == expected
    said = processes.said(tmp_path / "logs")
    cleaned, tokenised = (shares(said, job) for job in ("corpora", "shards"))
    assert len(cleaned) == count and sum(cleaned) == CHUNKS
    assert min(cleaned) >= CHUNKS // count - 1
    assert len(tokenised) == count and max(tokenised) - min(tokenised) <= 1 <= min(tokenised)
    assert said.count("corpus, rows dropped") == 1, "one process prints the table"

    # Nothing is left to be done.
    processes.run(tmp_path / "again", count, command, small_chunks)
    assert tree(tmp_path / "w") == expected and not shares(processes.said(tmp_path / "again"), "")


def killed_while_it_cleans(number):
    from xling_jax.corpora import prepare_jobs

    small_chunks(number)
    clean = prepare_jobs._clean_chunk

    paths = []

    def clean_or_die(path, *rest):
        paths.append(path)
        if number == 1 and len(paths) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        clean(path, *rest)

    prepare_jobs._clean_chunk = clean_or_die


def killed_while_it_tokenises(number):
    from xling_jax.corpora import prepare_jobs

    small_chunks(number)
    if number == 1:
        prepare_jobs._write_shard = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)


def first_killed_while_it_joins(number):
    from xling_jax.corpora import prepare_jobs

    small_chunks(number)
    prepare_jobs.join_chunks = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


def no_room_in_the_second(number):
    import resource

    small_chunks(number)
    if number == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))


@pytest.mark.parametrize(
    "setup, number, status, complaint, chunks_of_the_second",
    [
        (killed_while_it_cleans, 1, -signal.SIGKILL, "", 2),
        (killed_while_it_tokenises, 1, -signal.SIGKILL, "", None),
        (first_killed_while_it_joins, 0, -signal.SIGKILL, "", None),
        (no_room_in_the_second, 1, 1, "File too large", 0),
    ],
)
def test_what_ends_one_ends_all_and_the_next_run_goes_on(
    setup, number, status, complaint, chunks_of_the_second, corpora, expected, tmp_path
):
    command = prepare(corpora, tmp_path / "w")
    started = processes.start(tmp_path / "logs", 2, command, setup)
    processes.check_that_all_end(started, number, status, complaint, tmp_path / "logs")
    assert not (tmp_path / "w/data/manifest.json").exists()

    processes.run(tmp_path / "again", 3, command, small_chunks)
    assert tree(tmp_path / "w") == expected
    cleaned = sum(shares(processes.said(tmp_path / "again"), "corpora"))
    if chunks_of_the_second is None:
        assert cleaned == 0
    else:
        (before,) = shares(processes.said(tmp_path / "logs"), "corpora")
        assert cleaned == CHUNKS - before - chunks_of_the_second


def test_a_broken_corpus_is_one_line_of_the_first_process(corpora, tmp_path):
    broken = tmp_path / "broken.tsv"
    broken.write_text((corpora / "first.tsv").read_text() + "a\tb\tc\n")
    command = prepare(
        corpora, tmp_path / "w", f"--config.data.corpora=('tsv:{corpora}/first.tsv','tsv:{broken}')"
    )
    started = processes.start(tmp_path / "logs", 2, command, small_chunks)
    statuses = processes.finish(started, 60)
    assert 0 not in statuses and None not in statuses
    first, second = ((tmp_path / f"logs/{i}.txt").read_text() for i in range(2))
    assert f"broken.tsv:{ROWS + 2}" in first and "broken.tsv:" not in second


def another_corpus_in_the_second(number):
    from xling_jax.corpora import prepare_jobs

    small_chunks(number)
    if number == 1:
        prepare_jobs.hash_file = lambda path: "of another file"


def test_a_corpus_that_is_another_for_one_of_them_is_an_error(corpora, tmp_path):
    command = prepare(corpora, tmp_path / "w")
    started = processes.start(tmp_path / "logs", 2, command, another_corpus_in_the_second)
    statuses = processes.finish(started, 60)
    assert 0 not in statuses and None not in statuses
    first = (tmp_path / "logs/0.txt").read_text()
    assert "has another content than where the work was begun" in first
    assert not list((tmp_path / "w/data").glob("text/*"))


def endless_cleaning(number):
    from xling_jax.corpora import prepare_jobs

    small_chunks(number)

    def clean(*_):
        print("cleaning now", flush=True)
        time.sleep(100)

    prepare_jobs._clean_chunk = clean


@pytest.mark.parametrize("command", ["prepare", "train"])
def test_sigterm_ends_them_before_they_train(command, corpora, tmp_path):
    words = arguments(command, f"tsv:{corpora}/first.tsv", tmp_path / "w")
    started = processes.start(tmp_path / "logs", 2, words, endless_cleaning)
    assert wait_for(lambda: processes.said(tmp_path / "logs").count("cleaning now") == 2)
    for process in started:
        process.terminate()
    assert set(processes.finish(started, 20)) <= {-signal.SIGTERM, -signal.SIGABRT}


def own_directory(number):
    small_chunks(number)
    Path(str(number)).mkdir()
    os.chdir(str(number))


def test_a_workdir_that_the_others_do_not_see_is_told(corpora, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started = processes.start(tmp_path / "logs", 2, prepare(corpora, Path("w")), own_directory)
    statuses = processes.finish(started, 60)
    assert 0 not in statuses and None not in statuses
    said = (tmp_path / "logs/1.txt").read_text()
    assert "choose a --workdir on a file system that all processes share" in said


def test_beam_does_not_share_with_processes(corpora, tmp_path):
    command = [*prepare(corpora, tmp_path / "w")[:-2], "--runner", "direct"]
    started = processes.start(tmp_path / "logs", 2, command, small_chunks)
    assert processes.finish(started, 60) == [2, 2]
    assert "--runner direct spreads the work itself" in processes.said(tmp_path / "logs")
    assert not (tmp_path / "w").exists()
