"""Training runs in processes of their own, for tests that stop, kill and resume them.

Processes are forked from a server that has imported everything but started no device, which saves
seconds of imports in each.
"""

import argparse
import functools
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.train.synthetic import VOCAB_SIZE, OnStep, smoke_experiment
from xling_jax.train.experiment import Experiment

_ROOT = str(Path(__file__).parents[2])
TIMING = ("tokens_per_second", "sentences_per_second", "steps_per_second")


def tiny_experiment(values: Mapping[str, Any]) -> Experiment:
    """The smallest model, one bucket; `values` maps dotted keys to values."""
    sizes = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 32, "init_stddev": 0.16}
    given = {f"{side}.{k}": v for side in ("encoder", "decoder") for k, v in sizes.items()}
    given |= {"data.bucket_lengths": (24,), "schedule.peak_value": 1e-2, "train.log_every_steps": 1}
    return smoke_experiment({**given, **values})


def start(
    workdir: Path,
    corpus: Path,
    settings: Mapping[str, Any],
    *,
    cache: Path,
    num_devices: int = 1,
    distributed: Sequence[Any] | None = None,
    at_step: Callable[[int, int], None] | None = None,
    heartbeat_timeout_s: int = 60,
) -> multiprocessing.process.BaseProcess:
    """Starts a training run.

    Args:
        workdir: of the run; what it prints goes to `log.txt`, final parameters to `final.npz`.
        corpus: from `synthetic.write_corpus`.
        settings: see `tiny_experiment`.
        cache: directory of compiled programs.
        num_devices: CPU devices of the process.
        distributed: address, number of processes and number of this one.
        at_step: called with the number of the process and that of each step when it is under way;
            a function of a module.
        heartbeat_timeout_s: after which a process that is not heard of is taken for dead.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "tests.train.processes",
            "xling_jax.train.loop",
            "xling_jax.cli.distributed",
            "tensorboardX",
        ]
    )
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    run = functools.partial(
        _run,
        *(str(workdir), str(corpus), dict(settings), str(cache), num_devices, distributed),
        *(at_step, heartbeat_timeout_s),
    )
    process = context.Process(target=run, daemon=True)
    process.start()
    return process


def start_several(
    count: int, *arguments: Any, **settings: Any
) -> list[multiprocessing.process.BaseProcess]:
    """Starts a training run in several processes; arguments as for `start`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return [
        start(*arguments, **settings, distributed=(address, count, number))
        for number in range(count)
    ]


def _run(
    workdir, corpus, settings, cache, num_devices, distributed, at_step, heartbeat_timeout_s
) -> None:
    Path(workdir).mkdir(parents=True, exist_ok=True)
    address, count, number = distributed or (None, None, None)
    log = os.open(f"{workdir}/log{number or 0}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    import jax

    from xling_jax.cli import distributed as cli_distributed

    cli_distributed.HEARTBEAT_TIMEOUT_S = heartbeat_timeout_s
    jax.config.update("jax_num_cpu_devices", num_devices)
    # Programs that are read and programs that are compiled do not meet in the same collectives.
    jax.config.update("jax_compilation_cache_dir", None if distributed else cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, force=True)
    for noisy in ("jax", "orbax", "absl"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    stopped = []
    if not distributed:
        signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    options = argparse.Namespace(
        distributed=False, coordinator=address, num_processes=count, process_id=number
    )
    with cli_distributed.joined(options):
        result = _train(workdir, corpus, settings, stopped, at_step, number or 0)
    if not result.finished:
        sys.exit(143)
    leaves = jax.tree_util.tree_leaves_with_path(result.encoder_params)
    if not number:
        summary = {"exported_step": result.exported_step, "metrics": result.metrics}
        Path(workdir, "result.json").write_text(json.dumps(summary))
        np.savez(
            f"{workdir}/final.npz", **{jax.tree_util.keystr(path): leaf for path, leaf in leaves}
        )


def _train(workdir, corpus, settings, stopped, at_step, number):
    import jax
    import jax.numpy as jnp

    from xling_jax.train.loop import Corpus, train
    from xling_jax.train.training import VocabFacts

    @jax.jit
    def sum_of_all(params):
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(params))

    return train(
        tiny_experiment(settings),
        workdir,
        Corpus(corpus, "data", VocabFacts(VOCAB_SIZE, "vocab", {"bos": 0, "pad": 1, "eos": 2})),
        evaluators=[lambda params, step: {"dev/score": float(sum_of_all(params))}],
        should_stop=lambda: bool(stopped),
        callbacks=[OnStep(lambda step: at_step(number, step))] if at_step else (),
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


def log_texts(workdir: Path) -> str:
    """What the processes of a run printed, one after the other."""
    return "\n".join(path.read_text() for path in sorted(workdir.glob("log*.txt")))


def newest(workdir: Path) -> int:
    """Step of the newest checkpoint that is whole, 0 if there is none."""
    names = (path.name for path in (workdir / "checkpoints").glob("*"))
    return max((int(name) for name in names if name.isdigit()), default=0)


def check_same_training(workdir: Path, reference: Path) -> None:
    """Compares metrics and the exported encoders of two runs that sum in another order."""
    check_metrics_close(workdir, reference)
    with np.load(workdir / "final.npz") as a, np.load(reference / "final.npz") as b:
        # Softmax does not see the bias of the keys: its gradient is rounding, which Adam enlarges.
        for name in (name for name in b if "['key']['bias']" not in name):
            np.testing.assert_allclose(a[name], b[name], rtol=1e-3, atol=2e-4, err_msg=name)


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
