"""URLs among the arguments of commands and in configs, with a store in memory."""

import argparse
from pathlib import Path

import fsspec
import pytest

from tests.files.test_urls import URL, there, write
from xling_jax.cli.arguments import local_arguments
from xling_jax.config import load
from xling_jax.corpora.specs import local_name, local_names
from xling_jax.encode.model_directory import SHIPPED
from xling_jax.options import OptionError


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """The store, empty; copies go below `tmp_path`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


def arguments(**given) -> argparse.Namespace:
    return argparse.Namespace(**{"command": "mine", "overwrite": False, "output": "-", **given})


def test_inputs_are_copied_and_outputs_appear_when_the_command_succeeds(store):
    write(store, **{"a.de.gz": "x", "results__results.json": "{}", "results__table.md": "|"})
    args = arguments(model="name", source=f"{URL}/a.de.gz", data=[f"{URL}/results", "here"])
    args.words = ["mine", "--source", f"{URL}/a.de.gz"]  # what a record of the command shows
    args.output = f"{URL}/best"
    with local_arguments(args):
        assert Path(args.source).read_text() == "x" and Path(args.source).name == "a.de.gz"
        assert Path(args.data[0], "table.md").read_text() == "|"
        assert (args.data[1], args.model) == ("here", "name")
        assert args.words[-1] == f"{URL}/a.de.gz"
        assert Path(args.output).name == "best"
        Path(args.output, "deep").mkdir(parents=True)
        Path(args.output, "deep/x").write_text("1")
        assert "best/deep/x" not in there(store)
    assert there(store)["best/deep/x"] == "1"


def test_a_command_that_fails_leaves_no_output(store):
    args = arguments(output=f"{URL}/out.tsv")
    with pytest.raises(ValueError, match="broken"), local_arguments(args):
        Path(args.output).write_text("half")
        raise ValueError("broken")
    assert there(store) == {} and not Path(args.output).exists()


def test_wrong_use_is_found_before_any_work(store):
    write(store, out="1")
    wrong = {
        "exists; choose another --output": arguments(output=f"{URL}/out"),
        "no such file or directory": arguments(source=f"{URL}/missing"),
        "needs a local directory": arguments(workdir="gs://bucket/run"),
        "nonsense:// is not supported here": arguments(source="nonsense://bucket/x"),
    }
    for message, args in wrong.items():
        with pytest.raises(OptionError, match=message), local_arguments(args):
            raise AssertionError("the command ran")
    args = arguments(output=f"{URL}/out", overwrite=True)
    with local_arguments(args):
        Path(args.output).write_text("2")
    assert there(store) == {"out": "2"}


def test_a_workdir_as_input_is_copied_without_what_only_training_needs(store):
    write(store, **{"metrics.jsonl": "{}", "encoder__config.json": "{}"})
    write(store, checkpoints__1="state", data__manifest="{}", vocab__v="")
    args = arguments(model=URL)
    with local_arguments(args):
        files = [path for path in Path(args.model).rglob("*") if path.is_file()]
        assert sorted(path.name for path in files) == ["config.json", "metrics.jsonl"]


def test_corpora_of_a_config_are_copied_by_pattern_and_by_prefix(store):
    names = ("a.tsv", "b.tsv", "c.txt", "deep/d.tsv", "x.de-en.de", "x.de-en.en", "x.de-enough")
    write(store, **{name: name for name in names}, wheels__deep__a="whl")
    data = {"count": 3, "model": f"{URL}/c.txt"}
    data["corpora"] = (
        f"tsv:{URL}/*.tsv?quotes=no",
        f"moses:{URL}/x.de-en@de-en",
        f"gettext:{URL}/wheels",
        "tsv:here/*.tsv",
    )
    local = local_names(data)
    tsv, moses, gettext, here = local["corpora"]
    tsv, _, options = tsv.partition("?")
    found = lambda pattern: sorted(p.name for p in Path(pattern).parent.glob(Path(pattern).name))
    assert tsv.startswith("tsv:/") and found(tsv[4:]) == ["a.tsv", "b.tsv"]
    assert moses.endswith("/x.de-en@de-en")
    assert found(moses[6:].replace("@de-en", "*")) == ["x.de-en.de", "x.de-en.en"]
    assert Path(gettext[8:], "deep/a").read_text() == "whl" and options == "quotes=no"
    assert here == "tsv:here/*.tsv" and local["count"] == 3
    assert Path(local["model"]).read_text() == "c.txt"
    with pytest.raises(OptionError, match=r"\*\.csv: no such file"):
        local_names((f"tsv:{URL}/*.csv",))


@pytest.mark.parametrize("place", ["", "encoder/"])
def test_a_model_at_a_url_gives_encoder_and_vocabulary_as_one_in_a_directory(store, place):
    for path in SHIPPED["mini"].iterdir():
        store.pipe_file(f"/bucket/run/{place}{path.name}", path.read_bytes())
    here, there = (
        load("finetune", [f"--config.train.model_init={model}"])
        for model in (SHIPPED["mini"], f"{URL}/")
    )
    model = there.preparation.vocab.model
    assert model == f"{URL}/{place}sentencepiece.model"
    content = Path(here.preparation.vocab.model).read_bytes()
    assert Path(local_name(model)).read_bytes() == content
    here = here.replace({"vocab.model": model, "train.model_init": there.train.model_init})
    assert there.config == here.config and there.preparation.vocab.lowercase
