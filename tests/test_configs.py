"""Every config loads in every size, builds, and takes one step in its `:smoke` form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train.synthetic import VOCAB_SIZE, write_corpus
from xling_jax.cli.common import UsageError, load_config
from xling_jax.config import SIZES, apply_size, default_config
from xling_jax.train import loop
from xling_jax.train.mesh import make_mesh
from xling_jax.train.optimizer import make_optimizer, make_schedule
from xling_jax.train.state import abstract_state, count_parameters
from xling_jax.train.step import make_steps

IDS = {"bos": 0, "pad": 1, "eos": 2}
SIZED = ("configs/ct_laser.py", "configs/ct_laser_bilingual.py", "configs/t_laser.py")
ARGUMENTS = [
    *(f"{file}:{size}" for file in SIZED for size in SIZES),
    *SIZED,
    "configs/ct_laser_bilingual.py:t_laser,small",
    "configs/quickstart.py",
    "configs/quickstart.py:smoke",
]
SMOKE = (
    "configs/ct_laser.py:smoke",
    "configs/ct_laser_bilingual.py:t_laser,smoke",
    "configs/quickstart.py:smoke",
)


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)


def test_all_configs_are_tried(request):
    files = {f"configs/{path.name}" for path in (request.config.rootpath / "configs").glob("*.py")}
    assert files == {argument.split(":")[0] for argument in ARGUMENTS}


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_a_config_loads_and_builds(argument):
    config = load_config(argument)
    model, _ = loop.build(config, config.vocab.size, IDS)
    shapes = jax.eval_shape(loop.init_params(model), jax.random.key(0))
    assert count_parameters(shapes) > 0
    make_optimizer(schedule=make_schedule(**config.schedule), **config.optimizer)
    assert bool(config.train.total_steps) != bool(config.train.total_epochs)
    expected = 1.0 if "t_laser" in argument.replace("ct_laser", "") else 0.5
    assert config.objective.translation_weight == expected
    assert bool(config.objective.distance_weight) == (expected == 0.5)


@pytest.mark.parametrize("argument", SMOKE)
def test_a_smoke_config_takes_a_step(argument, tmp_path):
    config = load_config(argument, ["--config.data.reader=numpy"])
    corpus = write_corpus(tmp_path, rows=60, languages=sorted(config.languages))
    batches = loop.open_corpus(config, corpus)
    model, loss_fn = loop.build(config, VOCAB_SIZE, IDS)
    optimizer = make_optimizer(schedule=make_schedule(**config.schedule), **config.optimizer)
    init, shapes = abstract_state(loop.init_params(model), optimizer, config.seed)
    steps = make_steps(loss_fn, optimizer, make_mesh(), shapes, config.seed)
    batch = batches[0]
    state, sums = steps.train(jax.jit(init)(), batch, np.int32(0))
    assert state.step == 1
    assert np.isfinite(sums["gradient_norm"]) and sums["gradient_norm"] > 0
    # A model that knows nothing yet: about log V per token.
    per_token = sums["translation_loss"] / sums["translation_loss_count"]
    np.testing.assert_allclose(per_token, np.log(VOCAB_SIZE), rtol=0.2)


def test_the_paper_sizes_are_the_published_ones():
    config = load_config("configs/ct_laser.py")
    assert (config.encoder.width, config.encoder.layers, config.encoder.heads) == (1024, 6, 16)
    assert (config.objective.margin, config.objective.num_negatives) == (0.5, 20)
    assert len(config.data.pairs) == 8
    assert config.data.max_tokens * config.data.accumulation_steps == 131_072


def test_bilingual_trains_two_languages_in_both_directions():
    config = load_config("configs/ct_laser_bilingual.py")
    assert config.data.pairs == ("en-es", "es-en")
    assert config.languages == ("en", "es")


def test_compute_dtype_is_float32_on_cpu_unless_named():
    assert loop.compute_dtype("auto") == jnp.float32
    assert loop.compute_dtype("bfloat16") == jnp.bfloat16
    with pytest.raises(ValueError, match="compute_dtype='float16'"):
        loop.compute_dtype("float16")


@pytest.mark.parametrize(
    "argument, override, message",
    [
        ("configs/ct_laser.py:huge", None, "'huge' must be one of paper, base, small, smoke"),
        ("configs/ct_laser_bilingual.py:de", None, "'de' is neither"),
        ("configs/quickstart.py:paper", None, "'paper' must be 'smoke'"),
        ("configs/t_laser.py", "--config.encoder.width=wide", "width"),
        ("configs/t_laser.py", "--config.encoder.widht=8", "widht"),
    ],
)
def test_wrong_arguments_and_overrides_are_errors_of_use(argument, override, message):
    with pytest.raises(UsageError, match=message):
        load_config(argument, [override] if override else [])


def test_a_key_that_is_not_there_cannot_be_set():
    config = default_config()
    apply_size(config, "small")
    with pytest.raises(AttributeError, match="warmup"):
        config.train.warmup = 3
