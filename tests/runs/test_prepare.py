import json
from types import SimpleNamespace

import pytest

from xling_jax import config
from xling_jax.config import load
from xling_jax.corpora.pair_tokens import ShardWriter
from xling_jax.encode import model_directory
from xling_jax.options import OptionError
from xling_jax.runs import export
from xling_jax.runs.beginning import Beginning
from xling_jax.runs.export import export_encoder, make_encoder
from xling_jax.runs.prepare import check_teacher
from xling_jax.text.vocab import Vocab

MINI = model_directory.SHIPPED["mini"]


def test_a_batch_of_both_directions_cannot_fit_the_vector_of_its_source():
    words = ["--config.data.both_directions=True", "--config.languages=('de','en')"]
    words += ["--config.objective.distillation.fits=source"]
    both = "--config.data.pairs=('de-en','en-de')"
    with pytest.raises(ValueError, match="a batch of de-en and en-de has two sources"):
        load("distill:smoke", [*words, both])
    one = "--config.data.pairs=('en-de',)"
    assert load("distill:smoke", [*words, one]).preparation.teacher
    own = "--config.objective.distillation.fits=own"
    assert load("distill:smoke", [*words, both, own]).preparation.teacher


def test_a_teacher_reads_the_sides_whose_vectors_are_fitted():
    def sides(fits):
        words = ["--config.languages=('de','en')", "--config.data.pairs=('en-de',)"]
        words.append(f"--config.objective.distillation.fits={fits}")
        return load("distill:smoke", words).preparation.teacher["languages"]

    assert sides("source") == {"de-en": ["en"]}
    assert sides("own") == {"de-en": ["de", "en"]}


def test_an_encoder_is_no_wider_than_the_vectors_it_learns():
    def check(width, form):
        words = [f"--config.encoder.width={width}", f"--config.objective.distillation.form={form}"]
        words.append("--config.objective.distillation.teacher=mini")
        check_teacher(load("distill:smoke", words))

    check(256, "mse")
    check(260, "similarity")
    with pytest.raises(OptionError, match="mini has 256 dimensions, the encoder 260; make"):
        check(260, "mse")


def test_the_longest_input_is_that_of_training_or_all_positions():
    def limit(given, **encoder):
        values = {"encoder": encoder, "train.max_length_tokens": given}
        return load("static:smoke").replace(values).max_length_tokens

    bert = {"family": "bert", "layers": 2, "max_length_tokens": 32, "ffn_width": 8}
    bert |= {"width": 8, "heads": 2}
    assert [limit(given, **bert) for given in (0, 20, 32)] == [32, 20, 32]
    with pytest.raises(ValueError, match="max_length_tokens=33 must be at most 32"):
        limit(33, **bert)
    assert [limit(given, family="static") for given in (0, 9000)] == [2000, 9000]


def test_a_run_takes_the_preprocessing_of_a_model_and_keeps_its_own_length(tmp_path):
    recorded = json.loads((MINI / "config.json").read_bytes())
    recorded["preprocessing"] = {"lowercase": False, "moses": True}
    (tmp_path / "config.json").write_text(json.dumps(recorded | {"max_length_tokens": 100}))
    (tmp_path / "encoder.safetensors").touch()
    experiment = load("finetune", [f"--config.train.model_init={tmp_path}"])
    vocab = experiment.preparation.vocab
    assert vocab.model == str(tmp_path / "sentencepiece.model")
    assert (vocab.lowercase, vocab.moses) == (False, True)
    assert experiment.train.max_length_tokens == experiment.data.longest_bucket == 100
    values = {"train": {"max_length_tokens": 16}, "data": {"longest_bucket": 8}}
    config._take_encoder(values, str(tmp_path))
    assert values["train"]["max_length_tokens"] == 16 and values["data"]["longest_bucket"] == 8


def test_an_export_records_where_the_encoder_began_and_its_dropout(tmp_path, monkeypatch):
    saved = {}
    monkeypatch.setattr(export, "save_model", lambda path, **given: saved.update(given))
    words = ["--config.train.model_init=mini", "--config.encoder.token_dropout=0.3"]
    experiment = load("finetune", words)
    vocab = Vocab(MINI / "sentencepiece.model")
    export_encoder(experiment, vocab, {}, tmp_path, training={"steps": 3}, results={"a/b": 1.0})
    training = saved["training"]
    assert (training["steps"], training["model_init"], training["pairs"]) == (3, "mini", ["de-en"])
    assert training["encoder"] == {"token_dropout": 0.3, "feature_dropout": 0.2}
    assert "token_dropout" not in saved["encoder_args"] and saved["results"] == {"a/b": 1.0}


def test_prompts_width_and_origin_of_the_model_that_a_run_began_with(tmp_path, monkeypatch):
    saved = {}
    monkeypatch.setattr(export, "save_model", lambda path, **given: saved.update(given))
    use = {"prompts": {"query": "q: "}, "default_prompt": "query", "truncate_dim": 8}
    origin = {"source": "org/name", "license": "mit"}
    recorded = json.loads((MINI / "config.json").read_bytes()) | {"training": origin | {"a": 1}}
    (tmp_path / "config.json").write_text(json.dumps(recorded | use))
    (tmp_path / "encoder.safetensors").touch()
    experiment = load("finetune", [f"--config.train.model_init={tmp_path}"])
    vocab = Vocab(MINI / "sentencepiece.model")
    export_encoder(experiment, vocab, {}, tmp_path / "m", training={}, results={})
    assert use.items() <= saved.items()
    assert origin.items() <= saved["training"].items() and "a" not in saved["training"]
    # The default prompt goes before what is trained and measured.
    texts = SimpleNamespace(read=lambda: [("ein Hund", "a dog")])
    _, flat, _ = ShardWriter(vocab, experiment.preparation.prompt).tokenize(texts)
    expected = vocab.encode(["q: ein Hund", "q: a dog"])
    assert [list(ids) for ids in flat] == [list(ids) for ids in expected]
    assert make_encoder(experiment, vocab)._prompt == "q: "
    other = load(
        "finetune", [f"--config.train.model_init={tmp_path}", "--config.data.prompt=other: "]
    )
    export_encoder(other, vocab, {}, tmp_path / "m", training={}, results={})
    assert saved["prompts"] == {"query": "q: ", "training": "other: "}
    assert saved["default_prompt"] == "training"
    (tmp_path / "config.json").unlink()  # gone since
    export_encoder(experiment, vocab, {}, tmp_path / "m", training={}, results={})
    assert saved["prompts"] == {"training": "q: "} and saved["truncate_dim"] is None


def test_vectors_that_a_model_would_replace_are_refused():
    words = ["--config.train.model_init=mini"]
    with pytest.raises(OptionError, match="train.word_vectors cooccurrence: the vectors of"):
        Beginning.of(load("mini", words))
    assert Beginning.of(load("mini:phase=tune", words)).model_directory == MINI
