"""Encoders fine-tuned on labels: the published recipe in PyTorch gives the same weights."""

import flax.linen as nn
import jax
import numpy as np
import pytest

from xling_jax.eval import fine_tuning

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
    draw = np.random.default_rng([4, 1])
    x, y = torch.from_numpy(tokens).long(), torch.from_numpy(labels)
    for epoch in range(3):
        order = draw.permutation(NUM)
        for first in range(0, NUM, 8):
            rows = torch.from_numpy(order[first : first + 8])
            adamw.zero_grad()
            logits = linear(embed(x[rows]).mean(1))
            torch.nn.functional.cross_entropy(logits, y[rows]).backward()
            torch.nn.utils.clip_grad_norm_([embed.weight, *linear.parameters()], 1.0)
            adamw.step()
            rates.step()
        expected = linear(embed(x).mean(1)).detach().numpy()
        np.testing.assert_allclose(seen[epoch], expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(kept.network(tokens), seen[1])
