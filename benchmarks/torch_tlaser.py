"""T-LASER in plain PyTorch, as a baseline: the same architecture, shortcuts and loss.

Optimized PyTorch: fused attention, one projection for queries, keys and values, the fused AdamW,
and if asked for `torch.compile` and an output layer whose logits are never whole in memory. As in
`xling_jax.models.tlaser`, the last encoder layer computes position 0 alone and attention over the
single memory slot is a projection.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from xling_jax.models.numpy_encoders import sinusoidal_positions


class Attention(nn.Module):
    """Multi-head self-attention; with `first_only`, from position 0 only."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, states, mask=None, causal=False, first_only=False):
        """[batch, length, width] -> the same, or [batch, 1, width]."""
        batch, length, width = states.shape
        if first_only:
            weight_q, weight_kv = self.inputs.weight.split([width, 2 * width])
            bias_q, bias_kv = self.inputs.bias.split([width, 2 * width])
            query = F.linear(states[:, :1], weight_q, bias_q)
            key, value = F.linear(states, weight_kv, bias_kv).chunk(2, dim=-1)
        else:
            query, key, value = self.inputs(states).chunk(3, dim=-1)
        split = lambda x: x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        attended = F.scaled_dot_product_attention(
            split(query), split(key), split(value), attn_mask=mask, is_causal=causal
        )
        return self.output(attended.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Pre-norm layer of encoder or decoder; the decoder's also reads a memory of one slot."""

    def __init__(self, width, heads, ffn_width, dropout, memory_width=0):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.inner, self.outer = nn.Linear(width, ffn_width), nn.Linear(ffn_width, width)
        self.dropout = dropout
        if memory_width:
            self.memory_value = nn.Linear(memory_width, width)
            self.memory_output = nn.Linear(width, width)

    def drop(self, states):
        """Dropout on a block's output."""
        return F.dropout(states, self.dropout, self.training)

    def forward(self, states, mask=None, memory=None, causal=False, first_only=False):
        """[batch, length, width] -> the same, or [batch, 1, width] with `first_only`."""
        attended = self.attention(self.attention_norm(states), mask, causal, first_only)
        if first_only:
            states = states[:, :1]
        states = states + self.drop(attended)
        if memory is not None:
            cross = self.memory_output(self.memory_value(memory))
            states = states + self.drop(cross[:, None].expand_as(states))
        hidden = F.relu(self.inner(self.ffn_norm(states)))
        return states + self.drop(self.outer(hidden))


def plain_loss(states, table, labels, **settings):
    """Label-smoothed cross-entropy, summed over tokens, of all logits at once."""
    return F.cross_entropy(F.linear(states, table), labels, reduction="sum", **settings)


def chunked_loss(states, table, labels, chunks=8, **settings):
    """The same a chunk of tokens at a time, whose logits the backward pass computes again.

    `torch.nn.functional.linear_cross_entropy` smooths no labels in chunks (PyTorch 2.13).
    """
    parts = zip(states.chunk(chunks), labels.chunk(chunks), strict=True)
    loss = lambda states, labels: plain_loss(states, table, labels, **settings)
    return sum(checkpoint(loss, *part, use_reentrant=False) for part in parts)


def liger_loss(states, table, labels, **settings):
    """The same by Liger's fused kernel (package `liger-kernel`; on GPUs)."""
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    return LigerFusedLinearCrossEntropyLoss(reduction="sum", **settings)(table, states, labels)


class TLaser(nn.Module):
    """Encoder, decoder and output layer.

    `masked` is whether attention leaves out padding, which keeps PyTorch's fastest kernels away;
    without, the rows of a batch must have one length. `output_loss` is one of the losses above.
    """

    masked = True
    output_loss = staticmethod(plain_loss)

    def __init__(
        self, *, vocab_size, num_languages, width, layers, heads, ffn_width, dropout, pad_id=1
    ):
        super().__init__()
        self.pad_id, self.dropout, self.width = pad_id, dropout, width
        sizes = (width, heads, ffn_width, dropout)
        self.source_table = nn.Embedding(vocab_size, width, padding_idx=pad_id)
        self.target_table = nn.Embedding(vocab_size, width, padding_idx=pad_id)
        self.language_table = nn.Embedding(num_languages, 32)
        self.layers = nn.ModuleList(Layer(*sizes) for _ in range(layers))
        self.final_norm = nn.LayerNorm(width)
        self.decoder = Layer(*sizes, memory_width=width + 32)
        self.decoder_norm = nn.LayerNorm(width)
        self.output_table = nn.Linear(width, vocab_size, bias=False)
        positions = sinusoidal_positions(512, width, pad_id + 1)
        self.register_buffer("positions", torch.from_numpy(np.ascontiguousarray(positions)))
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=width**-0.5 if "output_table" in name else 0.02)

    def embed(self, table, tokens):
        """Scaled vectors plus positions, after dropout."""
        real = (tokens != self.pad_id)[..., None]
        states = table(tokens) * math.sqrt(self.width) + self.positions[: tokens.shape[1]] * real
        return F.dropout(states, self.dropout, self.training)

    def encode(self, tokens):
        """[batch, length] ids -> [batch, width]."""
        mask = (tokens != self.pad_id)[:, None, None, :] if self.masked else None
        states = self.embed(self.source_table, tokens)
        for number, layer in enumerate(self.layers):
            states = layer(states, mask, first_only=number == len(self.layers) - 1)
        return self.final_norm(states)[:, 0]

    def translation_loss(self, sentence, language, target, eos_id=2, smoothing=0.1):
        """Label-smoothed cross-entropy summed over tokens, and their number."""
        labels = target[:, 1:]
        previous = torch.cat([torch.full_like(target[:, :1], eos_id), target[:, 1:-1]], dim=1)
        previous = torch.where(labels == self.pad_id, self.pad_id, previous)
        memory = torch.cat([sentence, self.language_table(language)], dim=-1)
        # Padding is on the right, so the causal mask hides it from real tokens.
        states = self.decoder(self.embed(self.target_table, previous), memory=memory, causal=True)
        loss = self.output_loss(
            self.decoder_norm(states).flatten(0, 1),
            self.output_table.weight,
            labels.flatten(),
            ignore_index=self.pad_id,
            label_smoothing=smoothing,
        )
        return loss, (labels != self.pad_id).sum()


def of_experiment(experiment) -> TLaser:
    """The model of an experiment of the library, with random weights."""
    names = ("width", "layers", "heads", "ffn_width", "dropout")
    sizes = {name: experiment.config["encoder"][name] for name in names}
    sizes |= {"vocab_size": experiment.preparation.vocab.size}
    return TLaser(num_languages=len(experiment.languages), **sizes)


def distance_constraint(source, target, margin=0.5, num_negatives=20):
    """cT-LASER's distance term summed over sentences (L2, norm of mean, permutations)."""
    rows = len(source)
    scale = (source.mean(0).norm() + target.mean(0).norm() + 1e-6) / 2
    positive = (source - target).norm(dim=1)
    distances = torch.cdist(source, target)
    partners = torch.rand(2 * num_negatives, rows).argsort(1)
    index = torch.arange(rows)
    to_target = distances[index, partners[:num_negatives]]
    to_source = distances[partners[num_negatives:], index]
    negative = torch.stack([to_target, to_source])
    violation = F.relu(margin + (positive - negative) / scale)
    return positive.sum() / scale + violation.sum() / (2 * num_negatives)


class Trainer:
    """One update: forward, backward, clipping, AdamW.

    Args:
        model: the model to train.
        distance_weight: β; 0 is T-LASER.
        compile_mode: of `torch.compile` for forward and backward pass, or None.
    """

    def __init__(
        self, model: TLaser, distance_weight: float = 0.0, compile_mode: str | None = None
    ):
        self.model, self.distance_weight = model.train(), distance_weight
        self.loss = self._loss
        if compile_mode:
            # Around Liger's own kernels the compiler breaks.
            whole = model.output_loss is not liger_loss
            self.loss = torch.compile(self._loss, mode=compile_mode, fullgraph=whole, dynamic=False)
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=5e-4,
            betas=(0.9, 0.98),
            eps=1e-8,
            weight_decay=1e-4,
            fused=True,
        )

    def _loss(self, source, target, language, both_directions):
        model, rows = self.model, len(source)
        encode_target = both_directions or self.distance_weight
        sentences = model.encode(torch.cat([source, target]) if encode_target else source)
        if both_directions:
            languages = torch.cat([language, 1 - language])
            loss, tokens = model.translation_loss(sentences, languages, torch.cat([target, source]))
        else:
            loss, tokens = model.translation_loss(sentences[:rows], language, target)
        if self.distance_weight:
            constraint = distance_constraint(sentences[:rows], sentences[rows:])
            loss = 0.5 * loss + self.distance_weight * constraint
        return loss / tokens

    def step(self, source, target, language, both_directions=False) -> torch.Tensor:
        """Trains on [batch, length] ids; returns the loss per token, on the device."""
        loss = self.loss(source, target, language, both_directions)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 25.0, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()
