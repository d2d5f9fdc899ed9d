"""Every config, in every size, loads, has the learning rate of its recipe and takes a step."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.train.synthetic import VOCAB_SIZE, write_corpus
from xling_jax.cli import align
from xling_jax.config import find_config, load, load_options
from xling_jax.corpora.cleaning import CleaningRules
from xling_jax.documents import lawdr
from xling_jax.encode.documents import MODES
from xling_jax.options import OptionError
from xling_jax.sharding import make_mesh
from xling_jax.text import splitting
from xling_jax.train import loop
from xling_jax.train.dry_run import published_count
from xling_jax.train.optimizer import make_schedule
from xling_jax.train.options import Epoch, resolve_schedule
from xling_jax.train.step import count_parameters
from xling_jax.train.training import VocabFacts, check, init_params, make_objective, resolve
from xling_jax.train.warm_start import put_encoder, put_word_vectors

ALL = ("paper", "base", "small", "smoke")
TINY = ("paper", "smoke")
# Config and argument -> the sizes it is made for, terms of its objective, shape of its schedule.
TRANSLATION, CONSTRAINED = {"translation"}, {"translation", "distance"}
DUAL = {"token_distribution", "alignment", "similarity_distribution"}
EXPERIMENTS = {
    "t_laser": (ALL, TRANSLATION, "inverse_sqrt"),
    "ct_laser": (ALL, CONSTRAINED, "inverse_sqrt"),
    "ct_laser_bilingual": (ALL, CONSTRAINED, "inverse_sqrt"),
    "ct_laser_bilingual:objective=t_laser": (ALL, TRANSLATION, "inverse_sqrt"),
    "laser": (ALL, TRANSLATION, "constant"),
    "laser:layers=6": (ALL, TRANSLATION, "constant"),
    "claser": (ALL, CONSTRAINED, "constant"),
    "similarity_loss": (ALL, {"translation", "similarity"}, "constant"),
    "similarity_loss:loss=encoder_l2": (ALL, {"translation", "encoder_l2"}, "constant"),
    "similarity_loss:loss=none": (ALL, TRANSLATION, "constant"),
    "mixed": (ALL, TRANSLATION, "inverse_sqrt"),
    "mixed:encoder=tlaser,decoder=laser": (ALL, TRANSLATION, "inverse_sqrt"),
    "lightweight": (ALL, DUAL, "drop"),
    "lightweight:pair=en-it": (ALL, DUAL, "drop"),
    "lightweight:objective=mlm+xtr,layers=3": (ALL, {"token_distribution"}, "drop"),
    "lightweight:objective=ugt+align": (ALL, {"token_distribution", "alignment"}, "drop"),
    "lightweight_multilingual": (ALL, DUAL, "drop"),
    "static": (TINY, {"alignment"}, "cosine"),
    "static:phase=2": (TINY, {"alignment"}, "cosine"),
    "mini": (TINY, {"alignment"}, "cosine"),
    "mini:phase=everyday": (TINY, {"alignment"}, "cosine"),
    "mini:phase=short": (TINY, {"alignment"}, "cosine"),
    "mini:phase=tune": (TINY, {"alignment"}, "cosine"),
    "contextual:layers=2": (TINY, {"alignment", "token_distribution"}, "warmup_cosine"),
    "distill": (TINY, {"distillation"}, "warmup_cosine"),
    "distill:student=dual": (TINY, {"distillation"}, "warmup_cosine"),
    "distill:student=tlaser,teacher=models/large": (TINY, {"distillation"}, "warmup_cosine"),
    "quickstart": (("small", "smoke"), CONSTRAINED, "inverse_sqrt"),
}
# Those that align and train nothing -> what the argument changes.
ALIGNMENT = {
    "lawdr_wmt16": {"debias": 64, "domain": "domain"},
    "lawdr_wmt16:encoder=xlm,pooling=first": {"debias": 32},
    "lawdr_wmt19": {"debias": 64, "domain": None, "document_mode": "sentences"},
    "lawdr_wmt19:encoder=xlmr,pooling=mean": {"debias": 256},
    "lawdr_wmt19:encoder=xlm,document_mode=packed": {"document_mode": "packed"},
}
EPOCH = Epoch(steps=40.0, examples=5000)


def files(request):
    return list((request.config.rootpath / "configs").glob("[!_]*.py"))


def test_all_configs_are_tried(request):
    tried = {argument.split(":")[0] for argument in (*EXPERIMENTS, *ALIGNMENT, "finetune")}
    assert {path.stem for path in files(request)} == tried | {"recipes"}


def of_size(name, size):
    return name + ("," if ":" in name else ":") + size


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_config_holds_what_it_uses_and_has_the_learning_rate_of_its_recipe(name):
    """In every size it is made for; the others are refused."""
    sizes, terms, shape = EXPERIMENTS[name]
    for size in sizes:
        experiment = load(of_size(name, size))
        assert experiment.terms.keys() == terms
        assert (experiment.model.decoder is not None) == ("translation" in terms)
        assert (experiment.model.head is not None) == ("token_distribution" in terms)
        check_learning_rate(experiment, name, shape)
        if size == "smoke":
            check(experiment)
    for size in {*ALL, "huge"} - {*sizes}:
        with pytest.raises(OptionError, match=f"size='{size}' must be one of {sizes[0]}, "):
            load(of_size(name, size))


def check_learning_rate(experiment, name, shape):
    total = experiment.train_options(EPOCH).total_steps
    given = resolve_schedule(experiment.schedule, EPOCH, total)
    schedule = make_schedule(**given)
    rate = lambda part: float(schedule(int(part * total)))
    peak = given.get("peak_value", given.get("init_value", given.get("value")))
    warmup = given.get("warmup_steps", 0)
    if shape == "constant":
        np.testing.assert_allclose([rate(p) for p in (0, 0.5, 1)], peak, rtol=1e-5)
    elif shape == "inverse_sqrt":
        assert float(schedule(0)) < peak / 100
        np.testing.assert_allclose(schedule(warmup), peak, rtol=1e-5)
        np.testing.assert_allclose(schedule(4 * warmup), peak / 2, rtol=1e-5)
    elif shape == "drop":
        share = 0.2 if "en-it" in name else 0.25
        if warmup < share * total:
            np.testing.assert_allclose(rate(share * 0.99), peak, rtol=1e-3)
        np.testing.assert_allclose(rate(1), peak / 10 * min(1, (total + 1) / warmup), rtol=1e-3)
    else:
        # To nothing at the end of the run, not before and not after.
        middle = (warmup + (total - warmup) / 2) / total
        np.testing.assert_allclose(rate(middle), peak / 2, rtol=0.2 if total > 100 else 0.6)
        assert rate(0.95) > 0 and rate(1) < peak / 1e4


def test_finetune_takes_the_encoder_of_a_model():
    arguments = ["--config.train.model_init=mini", "--config.encoder.token_dropout=0.3"]
    experiment = load("finetune:pairs=de-en+en-fr", arguments)
    encoder = experiment.model.encoder
    assert (experiment.family, encoder.width, encoder.token_dropout) == ("static", 256, 0.3)
    assert experiment.preparation.vocab.size == 32_000
    assert experiment.languages == ("de", "en", "fr")
    check(experiment)


def test_a_longer_run_takes_its_schedule_with_it():
    experiment = load("static", ["--config.train.total_steps=30000"])
    total = experiment.train_options(EPOCH).total_steps
    assert resolve_schedule(experiment.schedule, EPOCH, total)["decay_steps"] == 30_000
    own = load("static", ["--config.schedule.decay_steps=100"])
    assert resolve_schedule(own.schedule, EPOCH, 12_000)["decay_steps"] == 100


# One of each family and kind of objective; the others differ in less.
DIFFERENT = ("claser:layers=2,smoke", "quickstart:smoke", "lightweight:objective=all,smoke")
DIFFERENT += ("similarity_loss:loss=encoder_l2,smoke", "static:smoke")
OTHERS = ("similarity_loss:smoke", "mixed:encoder=tlaser,decoder=laser,smoke", "contextual:smoke")
OTHERS += ("ct_laser_bilingual:objective=t_laser,smoke", "static:phase=2,smoke", "mini:smoke")
OTHERS += tuple(f"lightweight:objective={task},smoke" for task in ("mlm", "xtr"))
OTHERS += ("lightweight_multilingual:objective=smlm,smoke",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "argument",
    [*DIFFERENT, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in OTHERS)],
)
def test_a_smoke_config_takes_a_step(argument, tmp_path):
    experiment = load(argument, ["--config.data.reader=numpy"])
    corpus = write_corpus(tmp_path, rows=60, languages=sorted(experiment.languages))
    batches = loop.open_batches(experiment, corpus)
    training = resolve(experiment, VocabFacts(VOCAB_SIZE), epoch=EPOCH)
    steps = training.steps(make_mesh())
    state, sums = steps.train(jax.jit(training.init)(), batches[0], np.int32(0))
    assert state.step == 1
    assert np.isfinite(sums["gradient_norm"]) and sums["gradient_norm"] > 0
    if "translation_loss" in sums:  # a model that knows nothing yet: about log V per token
        per_token = sums["translation_loss"] / sums["translation_loss_count"]
        np.testing.assert_allclose(per_token, np.log(VOCAB_SIZE), rtol=0.3)


def test_the_paper_sizes_are_the_published_ones():
    experiment = load("ct_laser")
    encoder, distance = experiment.model.encoder, experiment.terms["distance"].passed
    assert (encoder.width, encoder.layers, encoder.heads) == (1024, 6, 16)
    assert (distance["margin"], distance["num_negatives"]) == (0.5, 20)
    assert len(experiment.data.pairs) == 8
    assert experiment.data.max_tokens * experiment.data.accumulation_steps == 131_072


@pytest.mark.parametrize(
    "argument, published, redundant, per_piece",
    [
        # A second bias of 4 x 512 for each direction and layer, and of 4 x 2048 in the decoder.
        ("laser", 208_466_928, 4096 + 8192, 3 * 1024 + 1),
        ("laser:layers=6", 239_965_168, 6 * 4096 + 8192, 3 * 1024 + 1),
        # Queries and keys of the cross-attention, and the norm before it.
        ("t_laser", 246_043_808, 1025 * 1024 + 1057 * 1024 + 2048, 3 * 1024),
        ("lightweight", 30_223_184, 0, 512 + 1),
    ],
)
def test_the_parameters_of_the_papers_are_counted_beside_ours(
    argument, published, redundant, per_piece
):
    experiment = load(argument)
    assert published_count(experiment) == published
    ours = published - redundant + (50_048 - 50_000) * per_piece
    assert count_parameters(resolve(experiment).shapes.params) == ours


def test_corpora_filters_and_text_of_the_paper_sizes_are_the_published_ones():
    experiment = load("ct_laser")
    assert experiment.data.corpora == (
        *("tfds:europarl_v7/de-en", "tfds:europarl_v7/de-es", "tfds:europarl_v7/en-es"),
        *("tfds:europarl_v7/en-fr", "tfds:europarl_v7/es-fr", "tfds:europarl_v7/en-it"),
        "tfds:europarl_v7/es-it",
    )
    assert dataclasses.asdict(experiment.preparation.cleaning) == dataclasses.asdict(
        CleaningRules()
    ) | {
        "drop_duplicates": False,
        "drop_identical": False,
        "require_letters": False,
        "min_script_share": 0.0,
        "max_chars": 10_000,
    }
    vocab = experiment.preparation.vocab
    assert (vocab.moses, vocab.lowercase, experiment.train.max_length_tokens) == (True, True, 750)
    six = load("similarity_loss").data
    assert len(six.corpora) == 9 and len(six.pairs) == 18
    (corpus,) = load("lightweight:pair=it-en").data.corpora
    assert corpus == "tsv:data/paracrawl-v5/en-it.bicleaner07.txt.gz?columns=en,it"


def test_word_vectors_replace_the_rows_they_have():
    experiment = load("similarity_loss:smoke")
    model = make_objective(experiment, VocabFacts(40)).context.model
    params = jax.jit(init_params(model))(jax.random.key(0))
    width = model.encoder.embedding_width
    vectors, found = np.full((40, width), 7.0, np.float32), np.arange(40) % 2 == 0
    changed = put_word_vectors(params, vectors, found)
    for side in ("encoder", "decoder"):
        table, before = changed[side]["embedding"], params[side]["embedding"]
        assert (table[:40][found] == 7).all()
        np.testing.assert_array_equal(table[:40][~found], before[:40][~found])
        np.testing.assert_array_equal(table[40:], before[40:])
    with pytest.raises(ValueError, match="no token table has their width, 5"):
        put_word_vectors(params, vectors[:, :5], found)


def test_an_encoder_begins_with_the_arrays_that_fit():
    model = make_objective(load("contextual:smoke"), VocabFacts(40)).context.model
    params = jax.jit(init_params(model))(jax.random.key(0))
    encoder = params["encoder"]
    trained = {"embedding": encoder["embedding"] + 1, "other": 0}
    changed, taken = put_encoder(params, trained, 40)
    assert taken == 1
    np.testing.assert_array_equal(changed["encoder"]["embedding"], trained["embedding"])
    changed["encoder"]["embedding"] = encoder["embedding"]
    jax.tree.map(np.testing.assert_array_equal, changed, params)
    with pytest.raises(ValueError, match="its encoder has no array in common with this one"):
        put_encoder(params, {"table": np.ones((40, 32))}, 40)
    with pytest.raises(ValueError, match=r"its embedding is \[40, 3\], that of this run is \["):
        put_encoder(params, {"embedding": np.ones((40, 3))}, 40)
    # Rows beyond the vocabulary are padding, here of 128 and there of none.
    rows = {"embedding": np.ones((40, 32)), "token_weight": np.ones(40)}
    shorter, taken = put_encoder(params, rows, 40)
    assert taken == 2 and shorter["encoder"]["embedding"].shape == encoder["embedding"].shape
    np.testing.assert_array_equal(shorter["encoder"]["embedding"][:40], 1)


@pytest.mark.parametrize("argument", ALIGNMENT)
def test_an_alignment_config_has_the_published_settings(argument):
    config = load_options(argument)
    published = {"similarity": "margin", "weighting": "kde", "k": 4}
    published |= {"url_matching": False, "splitter": "rule"}
    expected = published | ALIGNMENT[argument]
    assert {name: config[name] for name in expected} == expected
    assert config["document_mode"] in MODES
    assert config["splitter"] in splitting.SPLITTERS
    assert config["weighting"] in lawdr.WEIGHTINGS


def test_keys_of_an_alignment_config_are_arguments_of_the_command():
    options = {field.name for field in dataclasses.fields(align.Options)}
    assert {*load_options("lawdr_wmt19")} <= options


@pytest.mark.parametrize(
    "argument, override, message",
    [
        ("ct_laser_bilingual:objective=de", None, "objective='de' must be one of ct_laser"),
        ("laser:layers=six", None, "'layers=six' must be of type int"),
        ("quickstart:paper", None, "'paper' must be one of small, smoke"),
        (
            "t_laser:smoke,small",
            None,
            "config argument size is given twice, smoke and small; give one",
        ),
        ("laser:layers=2,layers=3", None, "config argument layers is given twice, 2 and 3; give"),
        ("ct_lazer", None, "no such file or packaged config; did you mean ct_laser"),
        (
            "t_laser",
            "--config.encoder.widht=8",
            "encoder.widht is not an option of TLaserEncoder; did you mean width",
        ),
        ("t_laser", "--config.objective.distanse.weight=1", "did you mean distance"),
        ("t_laser", "--config.evaluation.retreival=('a',)", "did you mean retrieval"),
        ("static", "--config.objective.translation.weight=1", "config.decoder is missing"),
        ("t_laser", "--config.encoder.pad_id=8", "config.encoder.pad_id follows from the rest"),
        ("laser", "--config.seed=one", "--config.seed=one: must be a whole number"),
        ("laser", "--config.train.total_epochs=inf", "total_epochs=inf: must be a number"),
        ("laser", "--config.evaluation.retrieval=('',)", "must be a path or several, .. for none"),
    ],
)
def test_wrong_arguments_and_overrides_are_one_line(argument, override, message):
    with pytest.raises(OptionError, match=message) as error:
        check(load(argument, [override] if override else []))
    assert "\n" not in str(error.value) and "Traceback" not in str(error.value)


@pytest.mark.parametrize(
    "text, message",
    [
        ("def get_config(arg=''):\n    return {}['a']\n", "line 2: KeyError: a"),
        ("import nonsuch\n", "line 1: ModuleNotFoundError: No module named 'nonsuch'"),
        ("def get_config(:\n", "line 1: "),
        ("def get_config(arg=''):\n    return 3\n", "must return a ConfigDict; found int"),
    ],
)
def test_an_error_in_a_config_file_is_one_line_that_names_it(tmp_path, text, message):
    path = tmp_path / "own.py"
    path.write_text(text)
    with pytest.raises(OptionError, match=f"--config {path}: .*{message}") as error:
        load(str(path))
    assert "\n" not in str(error.value) and "Traceback" not in str(error.value)


@pytest.mark.parametrize(
    "argument, message",
    [
        ("lawdr_wmt16:encoder=bert", "encoder='bert' must be one of mbert, xlm"),
        ("lawdr_wmt19:pooling=max", "pooling='max' must be one of mean, first"),
        ("lawdr_wmt19:document_mode=all", "document_mode='all' must be one"),
        ("lawdr_wmt19:small", "'small' must be one of paper"),
        (
            "ct_laser:small",
            "ct_laser:small: is a config for training, with a section cleaning; take on",
        ),
    ],
)
def test_wrong_arguments_of_alignment_configs_are_refused(argument, message):
    with pytest.raises(ValueError, match=message):
        load_options(argument)


def test_overrides_reach_what_the_file_does_not_mention():
    overrides = {
        "cleaning.max_chars": 500,
        "objective.distance.weight": 0.3,
        "objective.distance.num_negatives": 5,
        "optimizer.eps": 1e-6,
        "train.total_steps": 10,
        "evaluation.retrieval": ("dev.tsv",),
    }
    words = [f"--config.{key}={value}" for key, value in overrides.items()]
    experiment = load("t_laser", words)
    for key, value in overrides.items():
        found = experiment.config
        for name in key.split("."):
            found = found[name]
        assert found == value
    assert experiment.terms["distance"].passed["margin"] == 0.5
    assert "total_epochs" not in experiment.config["train"], (
        "a length in another unit replaces the file's"
    )


def test_a_duration_of_zero_in_another_unit_says_nothing():
    overrides = ["--config.train.total_epochs=0.0", "--config.train.total_steps=9"]
    for order in (overrides, overrides[::-1]):
        assert load("t_laser", order).train.total_steps == 9
        assert "total_epochs" not in load("static", order).config["train"]
    assert load("t_laser").schedule["warmup_steps"] > 0
    zero = load("t_laser", ["--config.schedule.warmup_steps=0"])  # alone, it is zero
    assert zero.schedule["warmup_steps"] == 0


def test_a_term_of_weight_zero_is_left_out_with_what_it_needs():
    experiment = load("ct_laser", ["--config.objective.distance.weight=0"])
    assert experiment.terms.keys() == {"translation"}
    assert "distance" not in experiment.config["objective"]


def test_a_path_is_taken_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packaged = find_config("t_laser")
    assert packaged.is_file() and find_config("t_laser.py") == packaged
    with pytest.raises(OptionError, match=r"--config recipes: no such .* quickstart, similarity"):
        find_config("recipes")  # what configs share
    (tmp_path / "t_laser.py").write_text(packaged.read_text().replace("0.98", "0.5"))
    assert load("t_laser.py").optimizer["b2"] == 0.5
    assert load("t_laser").optimizer["b2"] == 0.98
