"""Copies of files at URLs, with a store in memory: what is copied when, and what never counts."""

import argparse
import os
from pathlib import Path

import fsspec
import pytest
from ml_collections import ConfigDict
from xling_jax.cli.remote_arguments import local_arguments, local_config

from xling_jax.cli.common import UsageError
from xling_jax.files.urls import Mirror, cache_directory

URL = "memory://bucket/run"


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """The store, empty; copies go below `tmp_path`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


@pytest.fixture
def copied(monkeypatch) -> list[str]:
    """Names of what is copied, in either direction, in order."""
    names = []
    kind = type(fsspec.filesystem("memory"))
    for way in ("get", "put"):
        original = getattr(kind, way)

        def copy(self, sources, targets, *args, _way=way, _original=original, **more):
            remote = sources if _way == "get" else targets
            names.extend(f"{_way} {path.removeprefix('/bucket/run/')}" for path in remote)
            return _original(self, sources, targets, *args, **more)

        monkeypatch.setattr(kind, way, copy)
    return names


def put(files, **contents: str) -> None:
    for name, content in contents.items():
        files.pipe_file(f"/bucket/run/{name.replace('__', '/')}", content.encode())


def there(files) -> dict[str, str]:
    top = "/bucket/run/"
    return {path.removeprefix(top): files.cat_file(path).decode() for path in files.find(top)}


def here(mirror: Mirror, *prefixes: str) -> dict[str, str]:
    return {name: (mirror.directory / name).read_text() for name in mirror.local(*prefixes)}


def test_only_what_differs_is_copied(files, copied):
    put(files, a="1", data__b="2")
    mirror = Mirror(URL, "inputs")
    mirror.fetch_exactly("a", "data")
    assert sorted(copied) == ["get a", "get data/b"]
    mirror.fetch_exactly("a", "data")
    assert len(copied) == 2
    put(files, data__b="3")
    Mirror(URL, "inputs").fetch_exactly("a", "data")  # another process
    assert copied[2:] == ["get data/b"]
    assert here(mirror, "a", "data") == {"a": "1", "data/b": "3"}

    (mirror.directory / "a").write_text("new")
    mirror.put(["a", "data/b", "missing"])
    assert copied[3:] == ["put a"] and there(files) == {"a": "new", "data/b": "3"}
    mirror.put(["a"])
    mirror.fetch_exactly("a")
    assert len(copied) == 4


def test_json_takes_its_name_last(files, monkeypatch):
    """By it a reader sees that shards are whole, also of a copy that was interrupted."""
    put(files, **{"a.json": "1", "b__x.npy": "1", "c.npy": "1"})
    mirror, named = Mirror(URL, "workdirs"), []
    replace = os.replace

    def note(source, target):
        named.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr(os, "replace", note)
    mirror.fetch(mirror.objects())
    assert named[:3] == ["x.npy", "c.npy", "a.json"]


def test_what_the_store_lacks_is_removed_here_but_for_what_is_kept(files):
    put(files, data__b="2")
    mirror = Mirror(URL, "workdirs")
    for name in ("data/old", "data/text/kept", "data/.lock", "metrics.jsonl"):
        (mirror.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (mirror.directory / name).touch()
    mirror.fetch_exactly("data", "config.json", keep=("data/text",))
    assert here(mirror, "data") == {"data/b": "2", "data/text/kept": ""}
    assert (mirror.directory / "data/.lock").exists()
    assert (mirror.directory / "metrics.jsonl").exists()


def test_names_that_lead_elsewhere_or_begin_with_a_dot_are_left_alone(files):
    put(files, a="1", **{".versions.json": "{}", "x__..__..__evil": "!"})
    mirror = Mirror(URL, "inputs")
    assert list(mirror.objects()) == ["a"]
    for url in ("memory://bucket/../x", "gs:///x", "nothing"):
        with pytest.raises(UsageError, match="must be PROTOCOL://PATH"):
            cache_directory("inputs", url)


def test_the_seal_goes_first_and_comes_last(files, copied, monkeypatch):
    mirror = Mirror(URL, "workdirs")
    (mirror.directory / "data").mkdir(parents=True)
    for name in ("b", "c", "seal"):
        (mirror.directory / "data" / name).write_text("1")
    mirror.put_whole("data", seal="data/seal")
    assert copied == ["put data/b", "put data/c", "put data/seal"]
    mirror.put_whole("data", seal="data/seal")
    assert len(copied) == 3, "nothing changed"

    (mirror.directory / "data/b").write_text("22")
    (mirror.directory / "data/c").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(type(files), "put", lambda *_: (_ for _ in ()).throw(ValueError("no\nnet")))
        with pytest.raises(OSError, match="memory://bucket/run: ValueError: no net"):
            mirror.put_whole("data", seal="data/seal")
    assert there(files) == {"data/b": "1"}, "half of it must not count"
    mirror.put_whole("data", seal="data/seal")
    assert there(files) == {"data/b": "22", "data/seal": "1"}
    assert copied[3:] == ["put data/b", "put data/seal"]


def arguments(**given) -> argparse.Namespace:
    return argparse.Namespace(**{"command": "mine", "overwrite": False, "output": "-", **given})


def test_inputs_are_copied_and_outputs_appear_when_the_command_succeeds(files):
    put(files, **{"a.de.gz": "x", "results__results.json": "{}", "results__table.md": "|"})
    args = arguments(model="name", source=f"{URL}/a.de.gz", data=[f"{URL}/results", "here"])
    args.output, args.n_best = f"{URL}/out.tsv", f"{URL}/best"
    with local_arguments(args):
        assert Path(args.source).read_text() == "x" and Path(args.source).name == "a.de.gz"
        assert Path(args.data[0], "table.md").read_text() == "|"
        assert (args.data[1], args.model) == ("here", "name")
        Path(args.output).write_text("pairs")
        Path(args.n_best, "deep").mkdir(parents=True)
        Path(args.n_best, "deep/x").write_text("1")
        assert "out.tsv" not in there(files)
    assert there(files)["out.tsv"] == "pairs" and there(files)["best/deep/x"] == "1"


def test_a_command_that_fails_leaves_no_output(files):
    args = arguments(output=f"{URL}/out.tsv")
    with pytest.raises(ValueError, match="broken"), local_arguments(args):
        Path(args.output).write_text("half")
        raise ValueError("broken")
    assert there(files) == {}


def test_of_several_processes_the_first_copies_the_output(files):
    args = arguments(output=f"{URL}/out")
    with local_arguments(args):
        args.process_index = 1
    assert there(files) == {}
    with local_arguments(args := arguments(output=f"{URL}/out")):
        put(files, **{"out.exchange__left": "by one that was killed"})
        with args.exchange.cleared(True):
            Path(args.output).write_text("1")
            args.exchange.send(Path(args.output))
            assert there(files) == {"out.exchange/out": "1"}
            Path(args.output).write_text("own")
            args.exchange.receive(Path(args.output))
        args.process_index = 0
    assert there(files) == {"out": "1"}


def test_wrong_use_is_found_before_any_work(files):
    put(files, **{"out": "1"})
    wrong = {
        "exists; choose another --output": arguments(output=f"{URL}/out"),
        "no such file or directory": arguments(source=f"{URL}/missing"),
        "needs a local directory": arguments(workdir="gs://bucket/run"),
        "nonsense:// cannot be read here": arguments(source="nonsense://bucket/x"),
    }
    for message, args in wrong.items():
        with pytest.raises(UsageError, match=message), local_arguments(args):
            raise AssertionError("the command ran")
    args = arguments(output=f"{URL}/out", overwrite=True)
    with local_arguments(args):
        Path(args.output).write_text("2")
    assert there(files) == {"out": "2"}


def test_a_workdir_as_input_is_copied_without_what_only_training_needs(files):
    put(files, metrics="", **{"metrics.jsonl": "{}", "encoder__config.json": "{}"})
    put(files, checkpoints__1="state", data__manifest="{}", vocab__v="")
    args = arguments(model=URL)
    with local_arguments(args):
        names = Mirror(URL, "inputs").local("")
    assert names == ["encoder/config.json", "metrics", "metrics.jsonl"]


def test_corpora_of_a_config_are_copied_by_pattern_and_by_prefix(files):
    names = ("a.tsv", "b.tsv", "c.txt", "deep/d.tsv", "x.de-en.de", "x.de-en.en", "x.de-enough")
    put(files, **{name: name for name in names})
    config = ConfigDict({"data": {"corpora": (), "count": 3}, "vocab": {"model": ""}})
    config.data.corpora = (f"tsv:{URL}/*.tsv", f"moses:{URL}/x.de-en@de-en", "tsv:here/*.tsv")
    config.vocab.model = f"{URL}/c.txt"
    local = local_config(config, "data", "vocab")
    top = Mirror(URL, "inputs").directory
    assert local.data.corpora == (
        f"tsv:{top}/*.tsv",
        f"moses:{top}/x.de-en@de-en",
        "tsv:here/*.tsv",
    )
    assert local.vocab.model == f"{top}/c.txt" and local.data.count == 3
    assert config.vocab.model == f"{URL}/c.txt", "the run's own config keeps the URLs"
    assert sorted(path.name for path in top.iterdir() if path.name[0] != ".") == [
        *("a.tsv", "b.tsv", "c.txt", "x.de-en.de", "x.de-en.en"),
    ]
    files.rm("/bucket/run/b.tsv")
    local_config(config, "data")
    assert not (top / "b.tsv").exists(), "the pattern must match what the store has"
    config.data.corpora = (f"gettext:{URL}/wheels",)
    with pytest.raises(UsageError, match="gettext reads no URLs"):
        local_config(config, "data")
    config.data.corpora = (f"tsv:{URL}/*.csv",)
    with pytest.raises(UsageError, match=r"\*\.csv: no such file"):
        local_config(config, "data")
