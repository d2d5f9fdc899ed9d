"""Options of a class as arguments and back; commands import what they run and nothing else."""

import argparse
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xling_jax.cli.main import COMMANDS, main, make_parser
from xling_jax.cli.options import add_options, options_from
from xling_jax.options import OptionError, option


@dataclasses.dataclass(frozen=True)
class Settings:
    name: str = option("a", "what it is", ("a", "b"))
    k: int = option(4, "how many", positive=True)
    ks: tuple[int, ...] = option((1, 5), positive=True)
    names: tuple[str, ...] = option(("x",), "some", ("x", "y"))
    rate: float | None = option(None)
    flag: bool = option(False, "whether")
    gold: Path | None = option(None)
    more: tuple[Path, ...] = option((), metavar="NAME.txt")
    counts: tuple[int, ...] | None = option(None, nargs="?", const=(3, 2))
    internal: int = 7


def settings(*words, config=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="c.py")
    add_options(parser, Settings)
    return options_from(parser.parse_args(words), Settings, config)


def test_types_and_defaults_follow_from_the_fields(tmp_path):
    assert settings() == Settings()
    words = ["--name", "b", "--k", "2", "--ks", "3, 1,3", "--names", "y,x", "--rate", "0.5"]
    words += ["--flag", "--gold", str(tmp_path), "--more", str(tmp_path), "/", "--counts"]
    more = (tmp_path, Path("/"))
    expected = Settings("b", 2, (3, 1, 3), ("y", "x"), 0.5, True, tmp_path, more, (3, 2))
    assert settings(*words) == expected
    assert settings("--no-flag", "--counts", "9,8") == Settings(counts=(9, 8))


def test_a_config_gives_what_the_command_line_does_not():
    config = {"k": 9, "ks": (2,), "flag": True, "rate": None}
    assert settings("--k", "3", config=config) == Settings(k=3, ks=(2,), flag=True)
    with pytest.raises(OptionError, match="--names='z' must be one of x, y"):
        settings(config={"names": ("z",)})
    with pytest.raises(
        OptionError, match="--config c.py: config key='nmes' .*; did you mean names"
    ):
        settings(config={"nmes": ("x",)})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--k", "0"], "--k=0 must be positive"),
        (["--ks", "1,-2"], "--ks=-2 must be positive"),
        (["--ks", "1,x"], "must be a whole number; got 'x'"),
        (["--rate", "x"], "must be a number; got 'x'"),
        (["--names", "x,z"], "--names='z' must be one of x, y"),
        (["--names", ","], "must have at least one value"),
        (["--name", "c"], "invalid choice: 'c' (choose from"),
    ],
)
def test_values_out_of_range_are_wrong_use(words, message, capsys):
    with pytest.raises((SystemExit, OptionError)) as error:
        settings(*words)
    assert message in capsys.readouterr().err + str(error.value)


def parsers(parser):
    """A parser and all of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                if command._fill:
                    command._fill, fill = None, command._fill
                    fill(command)
                yield from parsers(command)


def test_a_list_that_is_given_twice_is_joined():
    lists = [
        (parser.prog, action.option_strings[0], action)
        for parser in parsers(make_parser())
        for action in parser._actions
        if action.nargs == "+" and action.option_strings
    ]
    found = {(prog, flag) for prog, flag, _ in lists}
    assert {("xling mine", "--source"), ("xling evaluate retrieval", "--data")} <= found
    for *where, action in lists:
        assert isinstance(action, argparse._ExtendAction), where
    assert settings("--more", "/", "--more", "/", "/").more == 3 * (Path("/"),)


def test_home_is_expanded_where_the_shell_does_not(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.txt").write_text("Ja.\n")
    words = ["embed", "--model=mini", "--input=~/a.txt", "--output=~/a.npy"]
    assert main(words) == 0 and (tmp_path / "a.npy").exists()
    data = ["evaluate", "retrieval", "--model=mini", "--data=~/b.tsv", "--output", str(tmp_path)]
    assert main(data) == 2 and f"--data {tmp_path}/b.tsv: no such file" in capsys.readouterr().err


def test_help_names_choices_and_defaults(capsys):
    with pytest.raises(SystemExit):
        settings("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "--name {a,b} what it is (default: a)" in text and "--gold FILE --more NAME.txt" in text
    assert "some (default: x)" in text and "--internal" not in text


def test_the_list_of_commands_imports_none_of_them():
    program = "import sys; from xling_jax.cli.main import main; main(sys.argv[1:])"
    trace = [sys.executable, "-X", "importtime", "-c", program]
    for words, absent in (
        (["--help"], ["numpy", "ml_collections", *(f"cli.{name}" for name in COMMANDS)]),
        (["evaluate", "--help"], ["numpy", "jax", "eval.retrieval", "eval.mining"]),
        (["evaluate", "mining", "--help"], ["jax", "eval.classification", "sklearn"]),
    ):
        # In a narrow terminal descriptions are on lines of their own.
        wide = os.environ | {"COLUMNS": "80"}
        run = subprocess.run([*trace, *words], capture_output=True, text=True, env=wide)
        assert run.returncode == 0, run.stderr
        loaded = {line.split("|")[-1].strip() for line in run.stderr.splitlines()}
        for name in absent:
            assert not {name, f"xling_jax.{name}"} & loaded, (words, name)
        for name in COMMANDS if not words[1:] else ():
            assert f"    {name}" in run.stdout and COMMANDS.help(name) in run.stdout


def test_a_misspelt_argument_is_named_rather_than_what_is_missing_without_it(capsys):
    train, embed = "train --config c --workdir w", "embed --model m --input a --output b"
    for words, message in (
        (f"{embed} --overwite".split(), "unknown argument --overwite; did you mean --overwrite?"),
        (f"{train} --confg.encoder.width=8".split(), "--confg.encoder.width=8"),
        (f"{train} --workdri=w".split(), "--workdri=w"),
        (f"{train} --config.seed 5".split(), "--config.seed needs a value: --config.seed=VALUE"),
        (
            ["mine", "--source", "a", "--target", "b", "--output", "c", "--precison", "0.9"],
            "unknown argument --precison; did you mean --precision",
        ),
        (["embed", "--mdoel=mini", "--quiet"], "unknown argument --mdoel=mini; did you mean --mod"),
        (["evaluate", "retrieval", "--modl", "m"], "unknown argument --modl; did you mean --mod"),
        (["embed", "--inp", "a", "--config.a=1"], "error: the following arguments are required"),
    ):
        with pytest.raises(SystemExit) as exit:
            main(words)
        error = capsys.readouterr().err
        assert exit.value.code == 2 and message in error
        assert ("required" in error) == ("required" in message)


def test_an_unknown_command_names_the_near_ones_or_all(capsys):
    for words, expected in (
        (["evalute"], "unknown command evalute; did you mean evaluate?"),
        (["evaluate", "retreival"], "unknown command retreival; did you mean retrieval?"),
        (["qqq"], "'evaluate'"),
    ):
        with pytest.raises(SystemExit) as exit:
            main(words)
        assert exit.value.code == 2 and expected in capsys.readouterr().err


def test_train_says_how_to_choose_text_unless_it_was_chosen(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("xling_jax.cli.train.train_experiment", lambda *_: 0)
    caplog.set_level("INFO")
    words = ["train", "--config=static:smoke", f"--workdir={tmp_path}"]
    words += ["--config.languages=('de','en')", "--config.data.pairs=('de-en',)"]
    assert main(words) == 0 and caplog.messages[-1].endswith("--config.data.corpora choose others")
    assert main([*words, "--config.data.corpora=tsv:a.tsv"]) == 0
    assert caplog.messages[-1] == "static:smoke trains on de-en from tsv:a.tsv"
