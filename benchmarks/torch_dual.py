"""The lightweight dual transformer in plain PyTorch, as a baseline: same model, same losses.

Optimized PyTorch for a CPU: fused attention, one projection for queries, keys and values, the fused
Adam, and labels gathered from the logits instead of the published code's dense [batch, vocab]
labels.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

MASK, PAD = 4, 1


class Layer(nn.Module):
    """Post-norm layer: attention, then a swish feed-forward block."""

    def __init__(self, width: int, heads: int, ffn_width: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, ffn_width), nn.Linear(ffn_width, width)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.ffn_norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, states, mask):
        """[batch, length, width] -> the same."""
        rate = self.dropout if self.training else 0.0
        split = lambda x: x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        query, key, value = map(split, self.inputs(states).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(query, key, value, mask, dropout_p=rate)
        attended = self.output(attended.transpose(1, 2).flatten(2))
        states = self.attention_norm(states + F.dropout(attended, rate, self.training))
        transformed = self.outer(F.silu(self.inner(states)))
        return self.ffn_norm(states + F.dropout(transformed, rate, self.training))


class Dual(nn.Module):
    """Encoder and head."""

    def __init__(self, *, vocab_size, width, layers, heads, ffn_width, dropout, positions=201):
        super().__init__()
        self.dropout = dropout
        self.table = nn.Embedding(vocab_size, width, padding_idx=PAD)
        self.positions = nn.Embedding(positions, width)
        self.embedding_norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, heads, ffn_width, dropout) for _ in range(layers))
        self.dense, self.head_norm = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def encode(self, tokens):
        """[batch, length] ids -> [batch, width], the mean over real tokens."""
        mask = tokens != PAD
        numbers = torch.arange(1, tokens.shape[1] + 1) * mask
        states = self.embedding_norm(self.table(tokens) + self.positions(numbers))
        states = F.dropout(states, self.dropout, self.training)
        for layer in self.layers:
            states = layer(states, mask[:, None, None, :])
        return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    def token_kl(self, sentences, labels, weights):
        """KL(q ‖ p) without q's own entropy, summed; labels and weights [batch, labels]."""
        hidden = self.head_norm(F.silu(self.dense(sentences)))
        logits = F.linear(hidden, self.table.weight, self.bias)
        log_p = logits.gather(1, labels) - logits.logsumexp(1, keepdim=True)
        return -(weights * log_p).sum()


def first_occurrences(tokens):
    """[batch, length] bool: real tokens, without repetitions."""
    same = tokens[:, :, None] == tokens[:, None, :]
    earlier = torch.tril(torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool), -1)
    return ~(same & earlier).any(2) & (tokens != PAD)


def losses(model: Dual, source, target):
    """UGT + 2 · ALIGN + 2 · SIM of Mao et al.; the masked token is always in the source."""
    rows = torch.arange(len(source))
    place = (torch.rand(len(source)) * (source != PAD).sum(1)).long()
    hidden = source[rows, place]
    read = source.clone()
    read[rows, place] = MASK
    u, v = model.encode(torch.cat([read, target])).chunk(2)

    lengths = [(side != PAD).sum(1, keepdim=True) for side in (source, target)]
    masks = [first_occurrences(side) for side in (source, target)]
    source_weights = torch.cat(
        [0.5 * ~(hidden[:, None] == target).any(1, keepdim=True), masks[1] * 0.5 / lengths[1]], 1
    )
    target_weights = torch.cat([torch.zeros(len(source), 1), masks[0] / lengths[0]], 1)
    labels = torch.cat(
        [torch.cat([hidden[:, None], target], 1), torch.cat([source[:, :1], source], 1)]
    )
    kl = model.token_kl(torch.cat([u, v]), labels, torch.cat([source_weights, target_weights]))

    scores = u @ v.T
    align = F.cross_entropy(scores, rows) + F.cross_entropy(scores.T, rows)
    difference = (u @ u.T).softmax(1) - (v @ v.T).softmax(1)
    similarity = -torch.log(torch.cos(difference * math.pi / 2).clamp_min(1e-6)).sum()
    return kl / len(source) + 2 * align + 2 * similarity


class Trainer:
    """One update: forward, backward, Adam with amsgrad and a coupled L2 penalty."""

    def __init__(self, model: Dual):
        self.model = model.train()
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=1e-3, weight_decay=1e-5, amsgrad=True, fused=True
        )

    def step(self, source, target) -> float:
        """Trains on [batch, length] ids; returns the loss."""
        loss = losses(self.model, source, target)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()
