"""`devices=N`: what becomes of an update, and what is said about it."""

import logging

import pytest

from xling_jax.config import ConfigError, load


def spread(argument, caplog, overrides=()):
    """A config's data and mesh, and the lines of the log."""
    caplog.clear()
    with caplog.at_level(logging.INFO):
        experiment = load(argument, overrides)
    return experiment.data, experiment.mesh, caplog.messages


def test_few_devices_share_the_published_micro_batches(caplog):
    data, mesh, lines = spread("ct_laser:devices=8", caplog)
    assert (data.max_tokens, data.accumulation_steps, data.batch_multiple) == (4096, 32, 8)
    assert (mesh["data"], mesh["fsdp"]) == (8, 1)
    assert not lines


def test_a_pod_joins_micro_batches_and_keeps_the_tokens_of_an_update(caplog):
    data, mesh, lines = spread("ct_laser:devices=256", caplog, ["--config.mesh.fsdp=4"])
    # 256 rows of the longest bucket, 128 tokens, are 32,768 tokens: eight micro-batches.
    assert (data.max_tokens, data.accumulation_steps, data.batch_multiple) == (32_768, 4, 256)
    assert data.max_tokens * data.accumulation_steps == 32 * 4096
    assert (mesh["data"], mesh["fsdp"]) == (64, 4)
    assert "4 x 32,768 tokens a side per update, not 32 x 4,096" in lines[0]
    assert "negatives of distance come from the 1,024 sentences" in lines[-1]
    assert lines[-1].endswith("not from 128")


def test_more_devices_than_an_update_has_rows_for_make_it_larger(caplog):
    data, _, lines = spread("t_laser:devices=2048", caplog)
    assert (data.max_tokens, data.accumulation_steps) == (262_144, 1)
    assert "devices=2048: 8,192 pairs per update, not 4,096 (sentences of 32 tokens)" in lines
    assert not any("negatives" in line for line in lines)  # translation has none


@pytest.mark.parametrize(("devices", "pairs"), [(64, 128), (48, 144), (256, 256)])
def test_a_fixed_number_of_pairs_is_rounded_up(caplog, devices, pairs):
    data, _, lines = spread(f"lightweight:devices={devices}", caplog)
    assert (data.batch_size, data.batch_multiple) == (pairs, devices)
    if pairs == 128:
        assert not lines
        return
    assert f"devices={devices}: {pairs} pairs per update" in lines[0]
    # The objective has a similarity distribution as well, without negatives.
    assert "negatives of alignment come from" in lines[-1]


def test_fsdp_must_divide_the_devices():
    with pytest.raises(ConfigError, match="devices=8 must be a multiple of mesh.fsdp=3"):
        load("ct_laser:devices=8", ["--config.mesh.fsdp=3"])
