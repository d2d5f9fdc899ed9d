"""Beam's portable runner with an object store between workers that share no directory."""

import gzip
import importlib.util
import json
import subprocess
import sys

import pytest

from tests.cli.corpora_for_cli import arguments
from tests.corpora.beam.cluster import BUCKET, cluster
from tests.corpora.beam.test_prepare import published
from tests.corpora.small_corpus import write_corpus

pytestmark = [
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("apache_beam", "s3fs", "moto"))),
        reason="needs apache-beam, s3fs and moto",
    ),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def xling(there, tmp_path):
    """Runs `xling prepare` in a directory of its own; returns the process."""

    def run(corpora: tuple[str, ...], workdir: str, *words: str) -> subprocess.CompletedProcess:
        command = arguments("prepare", "tsv:none", workdir, "--config.vocab.size=100")
        command = [w for w in command if not w.startswith("--config.data.corpora")]
        home = tmp_path / "launcher"
        home.mkdir(exist_ok=True)
        return subprocess.run(
            [sys.executable, "-m", "xling_jax.cli.main", *command]
            + [f"--config.data.corpora={corpora!r}", *words],
            cwd=home,
            env={**there.environment, "HOME": str(home), "XDG_CACHE_HOME": str(home)},
            capture_output=True,
            text=True,
        )

    return run


def test_workers_that_share_no_directory_write_the_bytes_of_one_machine(there, xling, tmp_path):
    write_corpus(tmp_path / "first.tsv", 12_000, ("de", "en"))
    write_corpus(tmp_path / "second.tsv", 3000, ("de", "en", "fr"), seed=1)
    rows = [line.split("\t") for line in (tmp_path / "second.tsv").read_text().splitlines()[1:]]
    (tmp_path / "third.de").write_text("\n".join(row[0] + " x" for row in rows) + "\n")
    with gzip.open(tmp_path / "third.en.gz", "wt") as file:
        file.write("\n".join(row[1] for row in rows) + "\n")
    for path in tmp_path.iterdir():
        if path.is_file():
            there.store.pipe_file(f"{BUCKET}/text/{path.name}", path.read_bytes())
    names = ("tsv:{}/**/*.tsv", "moses:{}/third@de-en")
    local = xling(tuple(name.format(tmp_path) for name in names), str(tmp_path / "local"))
    assert local.returncode == 0, local.stderr
    beam = xling(
        tuple(name.format(f"s3://{BUCKET}/text") for name in names),
        f"s3://{BUCKET}/runs/w",
        "--runner=PortableRunner",
        f"--beam-options={' '.join(there.options)}",
    )
    assert beam.returncode == 0, beam.stderr
    expected, found = published(tmp_path / "local"), there.files("runs/w")
    found = {name: one for name, one in found.items() if not name.startswith("data/text/")}
    assert len(json.loads(found.pop("data/input_hashes.json")).keys() - {"seal"}) == 4
    assert found.keys() == expected.keys()
    # They name the corpora and the files that were read.
    told = {
        name for name in expected if name.endswith(("counts.json", "manifest.json", "pair.json"))
    }
    for name in expected.keys() - told:
        assert found[name] == expected[name], name
    for name in told:
        here = expected[name].decode().replace(str(tmp_path), f"s3://{BUCKET}/text")
        content = lambda text: json.loads(text) | {"seal": "of these names"}
        assert content(found[name]) == content(here), name
    assert local.stdout.replace(str(tmp_path), f"s3://{BUCKET}/text") == beam.stdout
    # Several workers of each of six pipelines, and nothing of it here.
    assert len(list(there.directory.glob("worker.*"))) == 6 * 3
    left = [path for path in (tmp_path / "launcher").rglob("*") if path.is_file()]
    assert all(".cache" in str(path) or "matplotlib" in str(path) for path in left), left
    # Once there is a checkpoint, the data stay.
    there.store.pipe_file(f"{BUCKET}/runs/w/checkpoints/00000002/state", b"x")
    refused = xling(
        tuple(name.format(f"s3://{BUCKET}/text") for name in names),
        f"s3://{BUCKET}/runs/w/",
        "--config.cleaning.max_words=6",
        "--runner=PortableRunner",
        f"--beam-options={' '.join(there.options)}",
    )
    assert refused.returncode == 1
    assert "its checkpoints were trained on other data: cleaning.max_words" in refused.stderr
    assert "data/manifest.json" in there.files("runs/w")


def test_errors_of_workers_are_one_line_here(there, xling, tmp_path):
    there.store.pipe_file(f"{BUCKET}/bad/a.tsv", b"de\ten\n\n")
    words = ("--runner=PortableRunner", f"--beam-options={' '.join(there.options)}")
    done = xling((f"tsv:s3://{BUCKET}/bad/*.tsv",), f"s3://{BUCKET}/runs/bad", *words)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("xling prepare: error")]
    assert f"s3://{BUCKET}/bad/a.tsv: no row holds text" in line
    done = xling((f"tsv:s3://{BUCKET}/none/*.tsv",), f"s3://{BUCKET}/runs/none", *words)
    assert done.returncode and f"s3://{BUCKET}/none/*.tsv: no such file" in done.stderr
    assert not [name for name in there.files("runs/bad") if "manifest" in name]
