"""What a checkpoint must share with the run that continues it."""

import json
from types import SimpleNamespace

import pytest

from xling_jax.config import load
from xling_jax.train.identity import difference, identity


def make(argument="ct_laser:smoke", overrides=(), vocab="v", data="d"):
    experiment = load(argument, [f"--config.{word}" for word in overrides])
    training = SimpleNamespace(experiment=experiment, schedule=experiment.schedule)
    return identity(training, experiment.compute_dtype, vocab, data)


def saved(found):
    return json.loads(json.dumps(found))


def test_the_same_settings_continue():
    assert difference(saved(make()), make()) is None


@pytest.mark.parametrize(
    "argument, override, where",
    [
        ("ct_laser:smoke", "objective.distance.margin=0.6", "objective.distance.margin"),
        ("ct_laser:smoke", "objective.distance.weight=0.0", "objective.distance"),
        ("ct_laser:smoke", "objective.similarity.weight=0.1", "objective.similarity"),
        ("ct_laser:smoke", "encoder.width=64", "encoder.width is 32 in the checkpoint, 64 now"),
        ("ct_laser:smoke", "decoder.language_at=input", "decoder.language_at"),
        ("lightweight:smoke", "head.tie_embeddings=False", "head.tie_embeddings"),
        ("ct_laser:smoke", "optimizer.b1=0.8", "optimizer.b1"),
        ("ct_laser:smoke", "schedule.peak_value=1e-3", "schedule.peak_value"),
        ("ct_laser:smoke", "data.max_tokens=1024", "data.max_tokens"),
        ("ct_laser:smoke", "seed=1", "seed"),
        ("ct_laser:smoke", "train.frozen=('embedding',)", "train.frozen is [] in the checkpoint"),
    ],
)
def test_what_changes_the_mathematics_is_another_run(argument, override, where):
    found = difference(saved(make(argument)), make(argument, [override]))
    assert found and f"{where}" in found


@pytest.mark.parametrize(
    "override",
    [
        "encoder.remat=True",
        "objective.translation.max_logits=1000",
        "data.reader=numpy",
        "data.corpora=('tsv:elsewhere/*.tsv',)",
        "train.total_steps=100",
        "train.keep_last=5",
    ],
)
def test_what_computes_the_same_does_not_count(override):
    assert difference(saved(make()), make(overrides=[override])) is None


def test_other_text_is_another_run():
    assert "data_fingerprint is 'd'" in difference(saved(make()), make(data="e"))
    assert "vocab_fingerprint" in difference(saved(make()), make(vocab="w"))


def test_an_option_younger_than_the_checkpoint_counts_with_its_default():
    old = saved(make())
    del old["config"]["objective"]["distance"]["margin"]
    del old["config"]["encoder"]["attention_hops"]
    del old["config"]["train"]
    assert difference(old, make()) is None
    changed = make(overrides=["objective.distance.margin=0.7"])
    assert "margin is 0.5 in the checkpoint" in difference(old, changed)


def test_an_option_that_is_gone_names_the_version_that_had_it():
    old = saved(make())
    old["version"] = "9.0"
    old["config"]["objective"]["distance"]["temperature"] = 2.0
    assert difference(old, make()).startswith("xling_jax 9.0 wrote it; this is ")
    assert "temperature" in difference(old, make())


def test_the_dtype_of_auto_is_known_to_checkpoints():
    computed = lambda dtype: make(overrides=[f"compute_dtype={dtype}"])
    found = difference(saved(computed("float16")), computed("bfloat16"))
    assert found == "config.compute_dtype is 'float16' in the checkpoint, 'bfloat16' now"


def test_a_run_is_extended_and_then_keeps_its_extensions():
    extended = lambda value: make(overrides=[f"train.extend_to={value}"])
    assert difference(saved(make()), extended(600)) is None
    assert difference(saved(extended(600)), extended((600, 900))) is None
    assert "train.extend_to is [600]" in difference(saved(extended(600)), make())
    assert "train.extend_to is [600]" in difference(saved(extended(600)), extended(900))
    longer = make("mini:smoke", ["schedule.decay_steps=9"])
    found = difference(saved(make("mini:smoke", ["schedule.decay_steps=8"])), longer)
    assert "to continue a finished run, leave that as it was and set train.extend_to" in found
