"""Bucket lengths that the text tells, from the prepared data to the compiled programs of a run."""

import json
import re

import pytest

from tests.train.synthetic import smoke_config, write_corpus
from xling_jax.cli.remote import Workdir
from xling_jax.cli.train import continued
from xling_jax.config import load_config
from xling_jax.train.loop import open_batches, train


def test_a_run_says_how_many_programs_it_compiles_and_records_its_lengths(tmp_path, caplog):
    corpus = write_corpus(tmp_path / "data", rows=400)
    config = smoke_config(total_steps=6, checkpoint_every_steps=6)
    with config.unlocked():
        config.data.bucket_lengths, config.data.longest_bucket = (), 24
        config.data.accumulation_steps = 2
    with caplog.at_level("INFO"):
        result = train(config, str(tmp_path), corpus)
    plan = open_batches(config, corpus).plan
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["data"]["bucket_lengths"] == [bucket.length for bucket in plan.buckets]
    expected = 2 * len(plan.shapes)
    assert f"{expected} programs to compile ({len(plan.shapes)} shapes" in caplog.text
    assert re.search(rf"program 1 of {expected} compiled in \d", caplog.text)
    said = re.findall(rf"compiling program (\d) of {expected}", caplog.text)
    first, more = ({plan[i].bucket for i in range(start, 12, 2)} for start in (0, 1))
    assert result.compilations == len(first) + len(more) + 1  # and the optimizer's
    assert said == [str(number) for number in range(1, result.compilations)]


def test_a_run_keeps_the_lengths_it_began_with(tmp_path):
    config = load_config("ct_laser:smoke", ["--config.data.bucket_lengths=()"])
    saved = {"version": "0.2.0", **config.to_dict()}
    saved["data"] = {**saved["data"], "bucket_lengths": [8, 16, 24]}
    del saved["data"]["longest_bucket"]  # unknown to 0.2
    (tmp_path / "config.json").write_text(json.dumps(saved))
    workdir = Workdir(str(tmp_path))
    assert continued(config, workdir).data.bucket_lengths == ()  # nothing was trained yet
    (tmp_path / "checkpoints/00000004").mkdir(parents=True)
    assert continued(config, workdir).data.bucket_lengths == (8, 16, 24)
    other = load_config("ct_laser:smoke", ["--config.data.bucket_lengths=(8, 24)"])
    with pytest.raises(ValueError, match=r"bucket_lengths.* is .* in the checkpoint.* now"):
        continued(other, workdir)
