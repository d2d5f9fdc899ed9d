"""Training runs in processes of their own, for tests that stop, kill and resume them.

Processes are forked from a server that has imported everything but started no device, which saves
seconds of imports in each.
"""

import json
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from tests.train.synthetic import VOCAB_SIZE, smoke_config
from xling_jax.config import set_width

_ROOT = str(Path(__file__).parents[2])
TIMING = ("tokens_per_second", "sentences_per_second", "steps_per_second", "mfu")


def tiny_config(settings: Mapping[str, Any]) -> ConfigDict:
    """The smallest model, one bucket; `settings` maps dotted keys to values."""
    config = smoke_config(log_every_steps=1)
    set_width(config, width=16, layers=1, heads=2, ffn_width=32)
    config.data.bucket_lengths = (24,)
    config.schedule.peak_value = 1e-2
    config.update_from_flattened_dict(settings)
    return config


def start(
    workdir: Path,
    corpus: Path,
    settings: Mapping[str, Any],
    *,
    cache: Path,
    num_devices: int = 1,
    distributed: Sequence[Any] | None = None,
) -> multiprocessing.process.BaseProcess:
    """Starts a training run.

    Args:
        workdir: of the run; what it prints goes to `log.txt`, final parameters to `final.npz`.
        corpus: from `synthetic.write_corpus`.
        settings: see `tiny_config`.
        cache: directory of compiled programs.
        num_devices: CPU devices of the process.
        distributed: address, number of processes and number of this one.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["tests.train.processes", "xling_jax.train.loop", "tensorboardX"]
    )
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    process = context.Process(
        target=_run,
        args=(str(workdir), str(corpus), dict(settings), str(cache), num_devices, distributed),
        daemon=True,
    )
    process.start()
    return process


def _run(workdir, corpus, settings, cache, num_devices, distributed) -> None:
    Path(workdir).mkdir(parents=True, exist_ok=True)
    number = distributed[2] if distributed else 0
    log = os.open(f"{workdir}/log{number}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    import jax

    jax.config.update("jax_num_cpu_devices", num_devices)
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, force=True)
    for noisy in ("jax", "orbax", "absl"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    stopped = []
    if distributed:
        address, count, number = distributed
        jax.distributed.initialize(address, count, number)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    from xling_jax.train.loop import Corpus, train

    def evaluator(params, step):
        return {"dev/score": float(sum(np.sum(leaf) for leaf in jax.tree.leaves(params)))}

    ids = {"bos": 0, "pad": 1, "eos": 2}
    result = train(
        tiny_config(settings),
        workdir,
        Corpus(corpus, "data", "vocab", VOCAB_SIZE, ids),
        evaluators=[evaluator],
        should_stop=lambda: bool(stopped),
    )
    if distributed:
        jax.distributed.shutdown()
    if result.step < result.total_steps:
        sys.exit(143)
    leaves = jax.tree_util.tree_leaves_with_path(result.encoder_params)
    if number == 0:
        summary = {"exported_step": result.exported_step, "metrics": result.metrics}
        Path(workdir, "result.json").write_text(json.dumps(summary))
        np.savez(
            f"{workdir}/final.npz", **{jax.tree_util.keystr(path): leaf for path, leaf in leaves}
        )


def finish(process: multiprocessing.process.BaseProcess, timeout_s: float = 120.0) -> int:
    """Waits for a run; returns its exit status."""
    process.join(timeout_s)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError(f"a training run did not end within {timeout_s} s")
    return process.exitcode


def log_text(workdir: Path, number: int = 0) -> str:
    """What a run printed."""
    return (workdir / f"log{number}.txt").read_text()


def metrics_without_timing(workdir: Path) -> list[dict[str, float]]:
    """Records of `metrics.jsonl` with what depends on the clock taken out."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    timing = {f"train/{name}" for name in TIMING}
    return [{k: v for k, v in json.loads(line).items() if k not in timing} for line in lines]


def check_metrics_close(workdir: Path, reference: Path) -> None:
    """Compares the records of two runs that sum in another order."""
    found, expected = metrics_without_timing(workdir), metrics_without_timing(reference)
    assert [record.keys() for record in found] == [record.keys() for record in expected]
    for a, b in zip(found, expected):
        for name in a:
            where = f"{name} of step {a['step']}"
            np.testing.assert_allclose(a[name], b[name], rtol=2e-4, atol=1e-5, err_msg=where)


def wait_for(condition, timeout_s: float = 60.0, interval_s: float = 0.002) -> bool:
    """Polls until a condition holds; False if it never does."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(interval_s)
    return False
