"""LASER in plain PyTorch, as a baseline: packed sequences, sorted by length.

Packing is the fastest correct way to run `torch.nn.LSTM` over padded sentences: the backward
direction starts at the last real token, and padding is not computed.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    """BiLSTM over token vectors, max-pooled; rows must be sorted, longest first."""

    def __init__(self, vocab_size, embedding_width, width, layers, dropout=0.0, pad_id=1):
        super().__init__()
        self.pad_id, self.dropout = pad_id, dropout
        self.table = nn.Embedding(vocab_size, embedding_width, padding_idx=pad_id)
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(
            embedding_width, width // 2, layers, bidirectional=True, dropout=between
        )
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def forward(self, tokens):
        """[batch, length] ids -> [batch, width]."""
        tokens = tokens.T
        padding = tokens == self.pad_id
        states = F.dropout(self.table(tokens), self.dropout, self.training)
        packed = nn.utils.rnn.pack_padded_sequence(states, (~padding).sum(0).cpu())
        states, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], total_length=len(tokens))
        states = F.dropout(states, self.dropout, self.training)
        return states.masked_fill(padding[..., None], float("-inf")).max(0)[0]


class Laser(nn.Module):
    """Encoder and decoder.

    With input feeding the decoder is a loop over steps; without, a call of `torch.nn.LSTM`.
    """

    def __init__(
        self,
        *,
        vocab_size,
        num_languages,
        embedding_width,
        width,
        layers,
        decoder_width,
        input_feeding,
        dropout,
        pad_id=1,
    ):
        super().__init__()
        self.pad_id, self.dropout, self.input_feeding = pad_id, dropout, input_feeding
        self.encoder = Encoder(vocab_size, embedding_width, width, layers, dropout, pad_id)
        self.table = nn.Embedding(vocab_size, embedding_width, padding_idx=pad_id)
        self.language_table = nn.Embedding(num_languages, 32)
        self.initial_state = nn.Linear(width, 2 * decoder_width)
        inputs = embedding_width + width + 32
        if input_feeding:
            self.cell = nn.LSTMCell(inputs + decoder_width, decoder_width)
        else:
            self.lstm = nn.LSTM(inputs, decoder_width)
        self.output = nn.Linear(decoder_width, vocab_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def decode(self, inputs, hidden, cell):
        """[length, batch, in] -> outputs [length, batch, decoder_width], after dropout."""
        if not self.input_feeding:
            outputs, _ = self.lstm(inputs, (hidden[None], cell[None]))
            return F.dropout(outputs, self.dropout, self.training)
        output, outputs = torch.zeros_like(hidden), []
        for step in inputs:
            hidden, cell = self.cell(torch.cat([step, output], -1), (hidden, cell))
            output = F.dropout(hidden, self.dropout, self.training)
            outputs.append(output)
        return torch.stack(outputs)

    def forward(self, source, language, target, eos_id=2):
        """Cross-entropy per token of [batch, length] targets."""
        sentence = self.encoder(source)
        labels = target.T
        first = torch.full_like(labels[:1], eos_id)
        tokens = F.dropout(self.table(torch.cat([first, labels[:-1]])), self.dropout, self.training)
        constant = torch.cat([sentence, self.language_table(language)], -1)
        inputs = torch.cat([tokens, constant.expand(len(labels), -1, -1)], -1)
        hidden, cell = self.initial_state(sentence).chunk(2, -1)
        logits = self.output(self.decode(inputs, hidden.contiguous(), cell.contiguous()))
        return F.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=self.pad_id, reduction="mean"
        )
