import json
import shutil
from pathlib import Path

import xling_jax
from xling_jax.config import load_config
from xling_jax.runs.workdir import open_run


def test_a_run_of_an_earlier_version_opens_with_the_defaults_of_today(tmp_path):
    saved = {"version": "0.2.0", **load_config("laser:smoke").to_dict()}
    saved["encoder"]["lstm_implementation"] = "auto"
    del saved["vocab"]["moses"]
    (tmp_path / "config.json").write_text(json.dumps(saved))
    (tmp_path / "vocab").mkdir()
    shutil.copy(
        Path(xling_jax.__file__).parent / "shipped/mini/sentencepiece.model", tmp_path / "vocab"
    )
    config, vocab = open_run(tmp_path)
    assert "lstm_implementation" not in config.encoder and config.vocab.moses is False
    assert config.train.total_steps == saved["train"]["total_steps"] and vocab.size > 30_000
