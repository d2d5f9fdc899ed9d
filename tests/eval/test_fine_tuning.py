"""Encoders fine-tuned on labels: the published recipe in PyTorch gives the same weights."""

import flax.linen as nn
import jax
import numpy as np
import pytest

import xling_jax
from tests.cli import documents_for_cli
from xling_jax.eval import fine_tuning
from xling_jax.eval.classification import Classification
from xling_jax.eval.classification_data import ClassificationData, LabeledText
from xling_jax.options import OptionError

VOCAB, DIM, LABELS, NUM, LENGTH = 9, 4, 3, 21, 5


class Bag(nn.Module):
    """The mean of the vectors of tokens."""

    @nn.compact
    def __call__(self, tokens, deterministic=True):
        return nn.Embed(VOCAB, DIM)(tokens).mean(1)


def test_training_equals_pytorch():
    """AdamW, its warmup and decay, clipping, an incomplete last batch, the best epoch."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCAB, (NUM, LENGTH)).astype(np.int32)
    labels = rng.integers(0, LABELS, NUM)
    params = jax.device_get(Bag().init(jax.random.key(0), tokens)["params"])
    schedule = fine_tuning.Schedule(
        learning_rate=0.3, batch_size=8, num_epochs=3, warmup=0.2, weight_decay=0.1, dropout=0.0
    )
    seen = []

    def look(network):
        seen.append(network(tokens))
        return [1.0, 2.0, 2.0][len(seen) - 1]

    (kept,) = fine_tuning.train(
        Bag(), params, tokens, labels, LABELS, [look], pad_id=0, seed=4, schedule=schedule
    )
    assert (kept.epoch, kept.score) == (2, 2.0)

    kernel_key, _ = jax.random.split(jax.random.key(4))
    embed = torch.nn.Embedding(VOCAB, DIM)
    linear = torch.nn.Linear(DIM, LABELS)
    embed.weight.data = torch.from_numpy(params["Embed_0"]["embedding"].copy())
    kernel = 0.02 * np.asarray(jax.random.normal(kernel_key, (DIM, LABELS)))
    linear.weight.data, linear.bias.data = torch.from_numpy(kernel.T.copy()), torch.zeros(LABELS)
    groups = [
        {"params": [embed.weight, linear.weight], "weight_decay": 0.1},
        {"params": [linear.bias], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=0.3)
    rates = torch.optim.lr_scheduler.LambdaLR(
        adamw, lambda step: np.interp(step, [0, 0.2 * 9, 9], [0, 1, 0])
    )
    first = embed(torch.from_numpy(tokens[:8]).long()).mean(1).detach()
    scale = float(1 / first.square().mean().sqrt())
    draw = np.random.default_rng([4, 1])
    x, y = torch.from_numpy(tokens).long(), torch.from_numpy(labels)
    for epoch in range(3):
        order = draw.permutation(NUM)
        for first in range(0, NUM, 8):
            rows = torch.from_numpy(order[first : first + 8])
            adamw.zero_grad()
            logits = linear(scale * embed(x[rows]).mean(1))
            torch.nn.functional.cross_entropy(logits, y[rows]).backward()
            torch.nn.utils.clip_grad_norm_([embed.weight, *linear.parameters()], 1.0)
            adamw.step()
            rates.step()
        expected = linear(scale * embed(x).mean(1)).detach().numpy()
        np.testing.assert_allclose(seen[epoch], expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(kept.network(tokens), seen[1])


def test_a_task_tunes_the_encoder_and_leaves_it_as_it_was(monkeypatch):
    encoder = documents_for_cli.make_encoder()
    before = jax.device_get(encoder.params)
    schedule = fine_tuning.Schedule(learning_rate=0.05, batch_size=8, num_epochs=30, dropout=0.0)
    monkeypatch.setitem(fine_tuning.train.__kwdefaults__, "schedule", schedule)
    texts = [text for row in documents_for_cli.ROWS for text in row["sentences"]][:40]
    labels = ["ab"[text.count("o") % 2] for text in texts]
    part = LabeledText(texts, labels)
    data = ClassificationData(
        "toy", {"train": {"en": part}, "dev": {"en": part}, "test": {"en": part}}
    )
    task = Classification(classifiers=("finetune", "linear"), seeds=1)
    matrices = task.measure(encoder, data)
    assert matrices["toy_finetune"].mean("same") > max(0.9, matrices["toy_linear"].mean("same"))
    assert matrices["toy_finetune"].selection.startswith("first epoch of best accuracy")
    assert 1 < matrices["toy_finetune"].chosen["en"][0] <= 30
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(encoder.params), before)
    with pytest.raises(
        OptionError, match="documents=sentences-mean: finetune reads each text as one sequence"
    ):
        Classification(classifiers=("finetune",), documents="sentences-mean").measure(encoder, data)
    with pytest.raises(
        OptionError, match="classifiers=finetune: a static encoder.*; use classifiers of its"
    ):
        task.measure(xling_jax.load("mini"), data)


def test_tokens_are_those_that_the_encoder_reads():
    encoder = documents_for_cli.make_encoder().with_prompt("query ")
    texts = [documents_for_cli.ROWS[0]["sentences"][0], "", "x " * 100]
    tokens = encoder.tokenize(texts)
    assert encoder.tokenize([]).shape == (0, 1)
    assert tokens.shape == (3, encoder.max_length_tokens)
    vectors = encoder.module.apply({"params": encoder.params}, tokens, deterministic=True)
    np.testing.assert_allclose(vectors, encoder.encode(texts), rtol=1e-5, atol=1e-6)
