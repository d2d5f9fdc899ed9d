import json
import os
import shutil
from pathlib import Path

import pytest

import xling_jax
from xling_jax.config import load
from xling_jax.files import urls
from xling_jax.runs import workdir
from xling_jax.runs.workdir import Workdir, open_run


def test_a_run_opens_with_the_defaults_of_today_and_one_with_other_options_names_its_version(
    tmp_path,
):
    saved = json.loads(json.dumps({"version": "0.3.0", **load("laser:smoke").config}))
    del saved["vocab"]["moses"]
    (tmp_path / "config.json").write_text(json.dumps(saved))
    (tmp_path / "vocab").mkdir()
    shutil.copy(
        Path(xling_jax.__file__).parent / "shipped/mini/sentencepiece.model", tmp_path / "vocab"
    )
    experiment, vocab = open_run(tmp_path)
    assert experiment.config == load("laser:smoke").config
    assert experiment.terms == load("laser:smoke").terms and vocab.size > 30_000
    saved["train"]["writers"] = []
    (tmp_path / "config.json").write_text(json.dumps(saved))
    with pytest.raises(ValueError, match="config.json: xling_jax 0.3.0 wrote it: train.writers is"):
        open_run(tmp_path)


def test_prepared_data_serve_when_what_they_were_made_from_is_gone(tmp_path, monkeypatch, caplog):
    (tmp_path / "data").mkdir()
    (tmp_path / "here.tsv").touch()
    manifest = {"inputs": {str(tmp_path / "here.tsv"): "1", "gone.tsv": "2"}}
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(manifest))
    run, prepared = Workdir(str(tmp_path)), []
    for is_same in (True, False):
        monkeypatch.setattr(workdir, "is_made_with", lambda *_, is_same=is_same: is_same)
        run.ensure_prepared(None, lambda: prepared.append("again"))
        assert prepared == ([] if is_same else ["again"])
        assert "gone.tsv: no such file; training on" in caplog.text

    def prepare():
        raise FileNotFoundError("gone.tsv: no such file")

    with pytest.raises(FileNotFoundError):
        run.ensure_prepared(None, prepare)


def test_a_start_that_is_refused_leaves_the_copy_of_a_url_as_it_is(tmp_path, monkeypatch):
    stored = {"metrics.jsonl": b"stored", "config.json": b"{}"}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(urls, "exists", lambda *_: True)
    content_of = lambda url: stored.get(url.rpartition("/")[2])
    fetch = lambda url, path: content_of(url) and path.write_bytes(content_of(url))
    monkeypatch.setattr(urls, "read", content_of)
    monkeypatch.setattr(urls, "get", fetch)
    first = Workdir("gs://bucket/run")
    assert first.read_config() == b"{}"
    with first.in_use():
        metrics = first.path / "metrics.jsonl"
        assert metrics.read_bytes() == b"stored"
        metrics.write_bytes(b"stored, and more")
        second = Workdir("gs://bucket/run")
        with pytest.raises(OSError, match="in use since"), second.in_use():
            pass
        assert metrics.read_bytes() == b"stored, and more"


def test_what_is_new_is_published_whatever_the_clock_says_and_once_the_store_is_back(
    tmp_path, monkeypatch
):
    put = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name, found in (("exists", True), ("read", None), ("get", None)):
        monkeypatch.setattr(urls, name, lambda *_, found=found: found)
    run = Workdir("gs://bucket/run")
    with run.in_use():
        metrics = run.path / "metrics.jsonl"
        metrics.write_text("1\n")
        monkeypatch.setattr(urls, "put", lambda *_: (_ for _ in ()).throw(OSError("down")))
        with pytest.raises(OSError, match="down"):
            run.publish()
        monkeypatch.setattr(urls, "put", lambda path, url: put.append(path.read_text()))
        run.publish()
        run.publish()
        metrics.write_text("1\n2\n")
        os.utime(metrics, (1, 1))  # the clock was set back
        run.publish()
    assert put == ["1\n", "1\n2\n"]
