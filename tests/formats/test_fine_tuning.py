"""Converted encoders train on: a step is PyTorch's, dropout the original's, the tokenizer kept."""

import json
import shutil

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from xling_jax.config import load
from xling_jax.encode.model_directory import load_model
from xling_jax.formats.huggingface import convert_huggingface
from xling_jax.models.bert import BertEncoder
from xling_jax.models.layers import Dropout
from xling_jax.options import OptionError
from xling_jax.runs.export import vocab_arguments
from xling_jax.sharding import make_mesh
from xling_jax.train.training import VocabFacts, check, resolve
from xling_jax.train.warm_start import put_encoder

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

from tests.formats import huggingface_reference as reference  # noqa: E402

SOURCE = ["la mo ti ren", "kel da vi", "su kel mo la bor", "né ti"]
TARGET = ["ren ti mo", "vi da kel la la", "bor su", "mo né ti su kel"]
RATE = 0.05


def encode_in_torch(model, texts):
    """Vectors [n, dim] with gradients, of a SentenceTransformer or the mean of token states."""
    if isinstance(model, sentence_transformers.SentenceTransformer):
        return model(model.tokenize(texts))["sentence_embedding"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(model.name_or_path)
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    states, mask = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
    return (states * mask).sum(1) / mask.sum(1)


def step_in_torch(path, after):
    """One step of SGD on the in-batch loss in both directions; saves the model in `after`."""
    is_modules = (path / "modules.json").is_file()
    if is_modules:
        model = sentence_transformers.SentenceTransformer(str(path), device="cpu")
    else:
        model = transformers.AutoModel.from_pretrained(path)
    model.train()  # with dropout 0
    # Merged into the positions by the conversion, which here train alone.
    frozen = [p for name, p in model.named_parameters() if "token_type" in name]
    for parameter in frozen:
        parameter.requires_grad_(False)
    vectors = [encode_in_torch(model, texts) for texts in (SOURCE, TARGET)]
    cosine = 20 * torch.nn.functional.cosine_similarity(vectors[0][:, None], vectors[1], dim=-1)
    labels = torch.arange(len(SOURCE))
    loss = sum(torch.nn.functional.cross_entropy(c, labels) for c in (cosine, cosine.T))
    loss.backward()
    torch.optim.SGD([p for p in model.parameters() if p.grad is not None], lr=RATE).step()
    shutil.copytree(path, after)
    model.save(str(after)) if is_modules else model.save_pretrained(after)
    return float(loss.detach())


def finetune(model, *overrides):
    given = (f"--config.train.model_init={model}", *overrides)
    return load("finetune", given)


def padded(vocab, texts, length=16, rows=5):
    """[rows, length] ids with special tokens; rows beyond the texts are padding."""
    tokens = np.full((rows, length), vocab.pad_id, np.int32)
    for row, ids in zip(tokens, vocab.encode(texts)):
        row[: len(ids) + 2] = [vocab.bos_id, *ids, vocab.eos_id]
    return tokens


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["modules", pytest.param("xlm", marks=pytest.mark.exhaustive)])
def test_a_step_is_that_of_torch(published, tmp_path, kind):
    path = tmp_path / "published"
    rates = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    rates |= {"dropout": 0, "attention_dropout": 0}
    if kind == "modules":  # a dense layer and vectors of length 1, trained as well
        shutil.copytree(published("bert"), tmp_path / "transformer")
        reference.edit_json(tmp_path / "transformer/config.json", **rates)
        reference.save_sentence_transformer(path, tmp_path / "transformer", "mean", dense=True)
    else:
        shutil.copytree(published(kind), path)
        reference.edit_json(path / "config.json", **rates)
    expected_loss = step_in_torch(path, tmp_path / "after")
    convert_huggingface(path, tmp_path / "m")
    convert_huggingface(tmp_path / "after", tmp_path / "m_after")
    model, expected = load_model(tmp_path / "m"), load_model(tmp_path / "m_after").params

    experiment = finetune(tmp_path / "m")
    experiment = experiment.replace(
        {
            "optimizer": {"name": "sgd", "clip_global_norm": 0.0, "l2_penalty": 0.0},
            "schedule": {"name": "constant_schedule", "value": RATE},
        }
    )
    training = resolve(experiment, VocabFacts.of(model.vocab))
    steps = training.steps(make_mesh(1, 1))
    state = jax.jit(training.init)()
    params, taken = put_encoder(state.params, model.params, model.vocab.size)
    assert taken == len(jax.tree.leaves(params["encoder"]))
    batch = {"target_language": np.zeros(5, np.int32)}
    for side, texts in (("source", SOURCE), ("target", TARGET)):
        batch[f"{side}_tokens"] = padded(model.vocab, texts)
    state, sums = steps.train(state.replace(params=params), batch, np.int32(0))

    np.testing.assert_allclose(sums["loss"] / sums["normalizer"], expected_loss, rtol=1e-5)
    before, expected = flatten_dict(model.params, sep="/"), flatten_dict(expected, sep="/")
    moved = []
    for name, value in flatten_dict(state.params["encoder"], sep="/").items():
        rows = model.vocab.size if name == "embedding" else None
        wanted = expected[name][:rows]
        np.testing.assert_allclose(value, wanted, atol=1e-5, err_msg=name)
        moved.append(np.abs(wanted - before[name][:rows]).max())
    assert sorted(moved)[len(moved) // 2] > 1e-3, "the step is too small to tell"


def test_dropout_acts_where_the_original_has_it():
    rates = {"dropout": 0.1, "attention_dropout": 0.3, "attention_output_dropout": 0.5}
    sizes = {"vocab_size": 50, "width": 64, "layers": 1, "heads": 4, "ffn_width": 64}
    tokens = np.random.default_rng(0).integers(1, 50, (16, 24))
    module = BertEncoder(**sizes, **rates)
    params = module.init(jax.random.key(0), tokens)["params"]
    seen = lambda child, method: isinstance(child, Dropout) and method == "__call__"
    run = lambda key, **how: module.apply(
        {"params": params}, tokens, False, rngs={"dropout": jax.random.key(key)}, **how
    )
    _, variables = run(1, capture_intermediates=seen, mutable="intermediates")
    found = {
        "/".join(path[:-1]): float((values[0] == 0).mean())
        for path, values in flatten_dict(variables["intermediates"]).items()
    }
    expected = {"Dropout_0": 0.1}
    for number, rate in enumerate((0.3, 0.5, 0.1)):  # attention probabilities, both outputs
        expected[f"blocks_0/Dropout_{number}"] = rate
    assert found.keys() == expected.keys()
    for name, rate in expected.items():
        assert abs(found[name] - rate) < 0.01, (name, found[name])
    np.testing.assert_array_equal(run(1), run(1))
    assert np.abs(run(1) - run(2)).max() > 1e-3
    # No rate, and not training, are the same vectors.
    off = module.clone(**dict.fromkeys(rates, 0.0))
    same = off.apply({"params": params}, tokens, False)
    np.testing.assert_allclose(same, module.apply({"params": params}, tokens), atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "settings", "rates"),
    [
        ("distilbert", {"dropout": 0.2, "attention_dropout": 0.3}, (0.2, 0.3, 0)),
    ],
)
def test_a_run_takes_encoder_dropout_and_lengths_of_the_model(
    published, tmp_path, kind, settings, rates
):
    shutil.copytree(published(kind), tmp_path / "p")
    reference.edit_json(tmp_path / "p/config.json", **settings)
    convert_huggingface(tmp_path / "p", tmp_path / "m", max_length_tokens=20, pooling="max")
    experiment, spec = finetune(tmp_path / "m"), load_model(tmp_path / "m")
    names = ("dropout", "attention_dropout", "attention_output_dropout")
    assert tuple(experiment.config["encoder"][name] for name in names) == rates
    assert experiment.data.longest_bucket == experiment.train.max_length_tokens == 20
    assert experiment.preparation.vocab.model == str(tmp_path / "m")
    family, limit = experiment.family, experiment.max_length_tokens
    arguments = {"pad_id": 0, **experiment.encoder_arguments, **vocab_arguments("bert", spec.vocab)}
    kept = {"unplaced_id": None, **spec.config["encoder"]}
    kept["vocab_size"] = spec.vocab.size
    assert (family, json.loads(json.dumps(arguments)), limit) == ("bert", kept, 20)
    changed = finetune(tmp_path / "m", "--config.encoder.dropout=0.5")
    encoder = changed.model.encoder
    assert encoder.dropout == 0.5 and encoder.attention_dropout == rates[1]


def test_terms_that_predict_tokens_can_be_added(published, tmp_path):
    convert_huggingface(published("bert"), tmp_path / "m")
    vocab = load_model(tmp_path / "m").vocab
    facts = VocabFacts.of(vocab)
    pieces = vocab.pieces()
    assert pieces[facts.special_ids["mask"]] == "[MASK]"
    assert not facts.maskable[pieces.index(".")] and facts.maskable[pieces.index("la")]
    terms = [f"--config.objective.{name}.weight=1.0" for name in ("distance", "token_distribution")]
    experiment = finetune(tmp_path / "m", *terms)
    resolve(experiment, facts)
    check(experiment)


def test_what_cannot_be_trained_on_is_refused(published, tmp_path):
    shutil.copytree(published("bert"), tmp_path / "p")
    reference.edit_json(tmp_path / "p/config.json", hidden_dropout_prob=1.5)
    message = "hidden_dropout_prob must be at least 0 and below 1; found 1.5"
    with pytest.raises(ValueError, match=message):
        convert_huggingface(tmp_path / "p", tmp_path / "m")
    with pytest.raises(OptionError, match="config.encoder is missing; without it, name a model"):
        load("finetune")
    with pytest.raises(OptionError, match="--config.train.model_init: .*no such directory"):
        finetune(tmp_path / "none")
    convert_huggingface(published("bert"), tmp_path / "m")
    message = (
        "vocab.extend=300: .*m has the tokenizer of a published encoder, .*set it to 0, or dis"
    )
    with pytest.raises(OptionError, match=message):
        finetune(tmp_path / "m", "--config.vocab.extend=300")
