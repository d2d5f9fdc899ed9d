"""`xling prepare`: its table, and which errors are wrong use."""

import argparse
import subprocess
import sys

import pytest

from xling_jax.cli import prepare_data
from xling_jax.options import OptionError

_CONFIG = """
from ml_collections import ConfigDict

def get_config(arg=""):
    return ConfigDict({{
        "seed": 1,
        "languages": ("de", "en"),
        "encoder": {{"family": "tlaser"}},
        "objective": {{
            "translation": {{"weight": 1.0}},
            "token_distribution": {{"weight": 0.0}},
        }},
        "data": {{"corpora": ("tsv:{corpus}",), "exclude": (), "pairs": ("de-en", "en-de")}},
        "cleaning": {{"max_words": 50}},
        "vocab": {{"size": 40}},
    }})
"""


@pytest.fixture
def config(tmp_path) -> str:
    corpus = tmp_path / "corpus.tsv"
    rows = ["Das Haus\tthe house", "Ein Baum\ta tree", "Ein Baum\tA tree", "OK\tOK"]
    corpus.write_text("\n".join(["de\ten", *rows]) + "\n")
    path = tmp_path / "config.py"
    path.write_text(_CONFIG.format(corpus=corpus))
    return str(path)


def arguments(config: str, workdir, *overrides: str, num_workers=1) -> argparse.Namespace:
    return argparse.Namespace(
        config=config,
        workdir=str(workdir),
        config_overrides=list(overrides),
        num_workers=num_workers,
        runner=None,
        beam_options="",
        distributed=False,
        coordinator=None,
        num_processes=None,
        process_id=None,
    )


def test_prints_what_was_used_and_dropped(config, tmp_path, capsys):
    prepare_data.run(arguments(config, tmp_path / "w"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["de-en", "4", "2"]
    assert lines[1].endswith("corpus.tsv: 1 identical, 1 duplicate")
    assert lines[-1].split()[:2] == ["de-en", "2"]


@pytest.mark.parametrize(
    "override, message",
    [
        ("--config.data.pairs=('de-xx',)", "unknown language 'xx'; known: de, en"),
        ("--config.cleaning.max_words=0", "cleaning.min_words=1 must be from 1 to"),
        ("--config.vocab.sizes=3", "sizes"),
    ],
)
def test_a_wrong_config_is_wrong_use(config, tmp_path, override, message):
    with pytest.raises(OptionError, match=message):
        prepare_data.run(arguments(config, tmp_path / "w", override))
    assert not (tmp_path / "w").exists()


def test_zero_workers_are_wrong_use(config, tmp_path):
    with pytest.raises(OptionError, match="--num-workers must be at least 1; found 0"):
        prepare_data.run(arguments(config, tmp_path / "w", num_workers=0))


def test_preparation_imports_neither_jax_nor_tensorflow():
    code = (
        "import sys, xling_jax.cli.prepare_data; "
        "print([m for m in ('jax', 'tensorflow', 'tensorflow_datasets') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
