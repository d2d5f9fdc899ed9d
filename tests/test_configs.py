"""Every config loads in every size, builds, and takes one step in its `:smoke` form."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train.synthetic import VOCAB_SIZE, write_corpus
from xling_jax.cli import align
from xling_jax.cli.common import UsageError, load_config
from xling_jax.config import SIZES, apply_size, default_config
from xling_jax.documents import lawdr
from xling_jax.encode.documents import MODES
from xling_jax.text import splitting as sentence_splitting
from xling_jax.train import loop
from xling_jax.train.build import put_encoder, put_word_vectors
from xling_jax.train.check import check_config
from xling_jax.train.mesh import make_mesh
from xling_jax.train.optimizer import make_optimizer, make_schedule
from xling_jax.train.state import abstract_state, count_parameters
from xling_jax.train.step import make_steps

IDS = {"bos": 0, "pad": 1, "eos": 2, "mask": 4}
SIZED = ("claser", "ct_laser", "ct_laser_bilingual", "laser", "lightweight", "mixed")
SIZED += ("lightweight_multilingual", "similarity_loss", "t_laser")
DUAL = {"token_distribution", "alignment", "similarity_distribution"}
# Argument -> terms of the objective.
ARGUMENTS = {
    **{f"configs/{name}.py:{size}": None for name in SIZED for size in SIZES},
    **{f"configs/{name}.py": None for name in SIZED},
    "configs/quickstart.py": {"translation", "distance"},
    "configs/quickstart.py:smoke": {"translation", "distance"},
    "configs/ct_laser_bilingual.py:objective=t_laser,small": {"translation"},
    "configs/ct_laser.py:base": {"translation", "distance"},
    "configs/t_laser.py:base": {"translation"},
    "configs/laser.py:layers=6,small": {"translation"},
    "configs/claser.py:layers=1": {"translation", "distance"},
    "configs/similarity_loss.py": {"translation", "similarity"},
    "configs/similarity_loss.py:loss=encoder_l2": {"translation", "encoder_l2"},
    "configs/similarity_loss.py:loss=none,base": {"translation"},
    "configs/mixed.py:encoder=tlaser,decoder=laser,base": {"translation"},
    "configs/lightweight.py:pair=en-it": DUAL,
    "configs/lightweight.py:objective=mlm+xtr,layers=3,small": {"token_distribution"},
    "configs/lightweight.py:objective=ugt+align": {"token_distribution", "alignment"},
    "configs/static.py": {"alignment"},
    "configs/static.py:smoke": {"alignment"},
    "configs/static.py:phase=2": {"alignment"},
    "configs/contextual.py:layers=2": {"alignment", "token_distribution"},
}
# Those that align and train nothing -> what the argument changes.
ALIGNMENT = {
    "configs/lawdr_wmt16.py": {"encoder": "mbert", "debias": 64, "domain": "domain"},
    "configs/lawdr_wmt16.py:encoder=xlm,pooling=first": {"debias": 32, "pooling": "first"},
    "configs/lawdr_wmt19.py": {"debias": 64, "domain": None, "document_mode": "sentences"},
    "configs/lawdr_wmt19.py:encoder=xlmr,pooling=mean": {"debias": 256, "pooling": "mean"},
    "configs/lawdr_wmt19.py:encoder=xlm,document_mode=packed": {"document_mode": "packed"},
}
SMOKE = (
    "configs/claser.py:layers=2,smoke",
    "configs/ct_laser_bilingual.py:objective=t_laser,smoke",
    "configs/similarity_loss.py:smoke",
    "configs/similarity_loss.py:loss=encoder_l2,smoke",
    "configs/mixed.py:encoder=tlaser,decoder=laser,smoke",
    "configs/quickstart.py:smoke",
    *(f"configs/lightweight.py:objective={task},smoke" for task in ("mlm", "xtr", "all")),
    "configs/lightweight_multilingual.py:objective=smlm,smoke",
    "configs/static.py:smoke",
    "configs/contextual.py:smoke",
    "configs/static.py:phase=2,smoke",
)


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)


def test_all_configs_are_tried(request):
    files = {f"configs/{path.name}" for path in (request.config.rootpath / "configs").glob("*.py")}
    assert files == {argument.split(":")[0] for argument in (*ARGUMENTS, *ALIGNMENT)}


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_a_config_loads_and_builds(argument):
    config = load_config(argument)
    model, _ = loop.build(config, config.vocab.size, IDS)
    shapes = jax.eval_shape(loop.init_params(model), jax.random.key(0))
    assert count_parameters(shapes) > 0
    make_optimizer(schedule=make_schedule(**config.schedule), **config.optimizer)
    assert bool(config.train.total_steps) != bool(config.train.total_epochs)
    if ARGUMENTS[argument] is not None:
        terms = {k: v for k, v in config.objective.to_dict().items() if isinstance(v, dict)}
        assert {k for k, v in terms.items() if v["weight"]} == ARGUMENTS[argument]


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
    if "translation_loss" in sums:  # a model that knows nothing yet: about log V per token
        per_token = sums["translation_loss"] / sums["translation_loss_count"]
        np.testing.assert_allclose(per_token, np.log(VOCAB_SIZE), rtol=0.3)


def test_the_paper_sizes_are_the_published_ones():
    config = load_config("configs/ct_laser.py")
    assert (config.encoder.width, config.encoder.layers, config.encoder.heads) == (1024, 6, 16)
    assert (config.objective.distance.margin, config.objective.distance.num_negatives) == (0.5, 20)
    assert len(config.data.pairs) == 8
    assert config.data.max_tokens * config.data.accumulation_steps == 131_072


@pytest.mark.parametrize(
    "argument, encoder, decoder, reason",
    [
        ("configs/laser.py", {"pooling": "first"}, {}, "pooling='first' of an LSTM"),
        ("configs/laser.py", {"unidirectional_layers": 2}, {}, "between 0 and the 1 layers"),
        ("configs/laser.py", {"width": 1023}, {}, "width=1023 must be even"),
        ("configs/laser.py", {"lstm_implementation": "cudnn"}, {}, "needs an NVIDIA GPU"),
        ("configs/laser.py", {}, {"initial_state": "sentence"}, "as wide as the sentence vector"),
        ("configs/laser.py", {}, {"language_at": "memory"}, "one of every_step, first_token"),
        (
            "configs/mixed.py",
            {},
            {"share_embeddings": True},
            "share_embeddings=True needs an encoder with a token table of width 1024; found",
        ),
        ("configs/mixed.py:encoder=tlaser", {"pooling": "middle"}, {}, "pooling='middle' must be"),
    ],
)
def test_models_that_make_no_sense_are_refused(argument, encoder, decoder, reason):
    config = load_config(argument)
    config.encoder.update(encoder)
    config.decoder.update(decoder)
    with pytest.raises(ValueError, match=reason):
        check_config(config)


def test_a_decoder_that_learns_bos_needs_an_encoder_that_has_it():
    config = load_config("configs/laser.py", ["--config.objective.translation.decoder_bos=True"])
    with pytest.raises(ValueError, match="needs sentences that begin with <s>"):
        check_config(config)


def test_word_vectors_replace_the_rows_they_have():
    config = load_config("configs/similarity_loss.py:smoke")
    model, _ = loop.build(config, 40, IDS)
    params = jax.jit(loop.init_params(model))(jax.random.key(0))
    width = config.encoder.embedding_width
    vectors, found = np.full((40, width), 7.0, np.float32), np.arange(40) % 2 == 0
    changed = put_word_vectors(params, vectors, found)
    for side in ("encoder", "decoder"):
        table, before = changed[side]["embedding"], params[side]["embedding"]
        assert (table[:40][found] == 7).all()
        np.testing.assert_array_equal(table[:40][~found], before[:40][~found])
        np.testing.assert_array_equal(table[40:], before[40:])
    with pytest.raises(ValueError, match="no token table is 5 wide"):
        put_word_vectors(params, vectors[:, :5], found)


def test_an_encoder_begins_with_the_arrays_that_fit():
    config = load_config("configs/contextual.py:smoke")
    model, _ = loop.build(config, 40, IDS)
    params = jax.jit(loop.init_params(model))(jax.random.key(0))
    encoder = params["encoder"]
    trained = {"embedding": encoder["embedding"] + 1, "token_weight": np.ones(3), "other": 0}
    changed, taken = put_encoder(params, trained)
    assert taken == 1
    np.testing.assert_array_equal(changed["encoder"]["embedding"], trained["embedding"])
    changed["encoder"]["embedding"] = encoder["embedding"]
    jax.tree.map(np.testing.assert_array_equal, changed, params)
    with pytest.raises(ValueError, match="no array of its encoder has the name and shape"):
        put_encoder(params, {"embedding": np.ones((40, 3))})


@pytest.mark.parametrize("argument", ALIGNMENT)
def test_an_alignment_config_has_the_published_settings(argument):
    config = load_config(argument).to_dict()
    published = {"similarity": "margin", "weighting": "kde", "density_on": "raw", "k": 4}
    published |= {"center": False, "url_matching": False, "splitter": "rule"}
    expected = published | ALIGNMENT[argument]
    assert {name: config[name] for name in expected} == expected
    assert config["document_mode"] in MODES
    assert config["splitter"] in sentence_splitting.SPLITTERS
    assert config["weighting"] in lawdr.WEIGHTINGS
    assert config["density_on"] in lawdr.DENSITY_INPUTS


def test_keys_of_an_alignment_config_are_arguments_of_the_command():
    options = {field.name for field in dataclasses.fields(align.Options)}
    config = load_config("configs/lawdr_wmt19.py").to_dict()
    # These two describe the conversion of the model.
    assert {*config} - options == {"encoder", "pooling"}


def test_an_alignment_config_can_be_changed():
    overrides = ["--config.domain=site", "--config.debias=0", "--config.url_matching=True"]
    config = load_config("configs/lawdr_wmt19.py", overrides)
    assert (config.domain, config.debias, config.url_matching) == ("site", 0, True)


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
        ("configs/ct_laser_bilingual.py:de", None, "'de' must be one of paper"),
        ("configs/ct_laser_bilingual.py:objective=de", None, "objective='de' must be one of"),
        ("configs/laser.py:depth=6", None, "'depth=6': known are size, layers"),
        ("configs/laser.py:layers=six", None, "'layers=six' must be of type int"),
        ("configs/lightweight.py:objective=nmt", None, "objective='nmt' must be one of mlm"),
        ("configs/similarity_loss.py:loss=l1", None, "loss='l1' must be one of similarity,"),
        ("configs/lawdr_wmt16.py:encoder=bert", None, "encoder='bert' must be one of mbert, xlm"),
        ("configs/lawdr_wmt19.py:pooling=max", None, "pooling='max' must be one of mean, first"),
        ("configs/lawdr_wmt19.py:document_mode=all", None, "document_mode='all' must be one"),
        ("configs/lawdr_wmt19.py:small", None, "size='small' must be one of paper"),
        ("configs/lawdr_wmt19.py", "--config.domian=a", "no key domian; did you mean domain"),
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


def test_of_an_override_given_twice_the_last_counts():
    words = ["--config.languages=('en','de')", "--config.seed=3", "--config.languages=('en','fr')"]
    config = load_config("configs/ct_laser.py:smoke", [*words, "--config.seed=4"])
    assert (tuple(config.languages), config.seed) == (("en", "fr"), 4)
