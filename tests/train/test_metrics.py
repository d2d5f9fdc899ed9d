import json

import pytest

from xling_jax.train.metrics import MetricsWriter, means, read_metrics


def test_sums_are_divided_by_their_count_or_the_normalizer():
    sums = {
        "loss": 12.0,
        "normalizer": 4.0,
        "distance_loss": 6.0,
        "distance_loss_count": 3.0,
        "tokens": 100.0,
        "gradient_norm": 1.0,
    }
    assert means(sums) == {"loss": 3.0, "distance_loss": 2.0}


def write(workdir, resume_step, *records):
    writer = MetricsWriter(workdir, resume_step)
    for step, values in records:
        writer.write(step, values)
    writer.close()


def test_a_resumed_run_drops_later_steps_and_a_torn_last_line(tmp_path):
    write(tmp_path, 0, *((step, {"train/loss": step}) for step in range(1, 7)))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "train/lo')
    write(tmp_path, 4, (5, {"train/loss": 50.0}))
    found = [(record["step"], record["train/loss"]) for record in read_metrics(tmp_path)]
    assert found == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 50)]


def test_an_evaluation_that_is_done_again_is_not_there_twice(tmp_path):
    """Step 2 was saved by SIGTERM before its evaluation; the run that made up for it was killed."""
    dev = {"dev/accuracy": 0.5}
    write(tmp_path, 0, (1, {"train/loss": 1.0}), (1, dev), (2, {"train/loss": 2.0}), (2, dev))
    for saved, evaluations in (({2: dev}, [1, 2]), ({}, [1])):
        MetricsWriter(tmp_path, 2, evaluations=saved).close()
        found = read_metrics(tmp_path)
        assert [r["step"] for r in found if "dev/accuracy" in r] == evaluations
        assert [r["step"] for r in found if "train/loss" in r] == [1, 2]


def test_every_line_is_on_disk_when_written(tmp_path):
    writer = MetricsWriter(tmp_path, 0)
    writer.write(1, {"train/loss": 1.5})
    line = (tmp_path / "metrics.jsonl").read_text()
    writer.close()
    assert json.loads(line) == {"step": 1, "train/loss": 1.5}


@pytest.mark.parametrize("lost", ["file", "end", "middle", "first byte"])
def test_what_is_lost_is_said_and_restored_from_the_checkpoints(tmp_path, lost, caplog):
    dev = {step: {"dev/accuracy": step / 7} for step in (2, 4)}
    losses = {step: {"train/loss": step / 3} for step in range(1, 7)}
    write(
        tmp_path,
        0,
        *(x for step in losses for x in [(step, losses[step]), (step, dev.get(step))] if x[1]),
    )
    whole, path = read_metrics(tmp_path), tmp_path / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    broken = {
        "file": "",
        "end": "".join(lines[:4]) + lines[4][:9],
        "middle": "".join(lines[:2] + lines[3:]),
        "first byte": "".join(lines[:2]) + "y" + lines[2][1:] + "".join(lines[3:]),
    }[lost]
    path.write_text(broken)
    resumed = MetricsWriter(tmp_path, 4, expected=6, evaluations=dev)
    resumed.close()
    (message,) = caplog.messages
    assert f"{path}: " in message and "of 6 lines up to step 4 are lost" in message
    found = read_metrics(tmp_path)
    assert [record for record in found if "train/loss" not in record] == [whole[2], whole[5]]
    assert found == sorted(found, key=whole.index) and resumed.num_records == len(found)
    caplog.clear()
    MetricsWriter(tmp_path, 4, expected=resumed.num_records, evaluations=dev).close()
    assert not caplog.messages


@pytest.mark.parametrize("damaged", ['{"step": 1, "tr\n', '{"step": null}\n', '{"a": 1}\n'])
def test_a_damaged_line_is_named(tmp_path, damaged):
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{damaged}{{"step": 2}}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2: .*remove the line"):
        MetricsWriter(tmp_path, 2)
