"""LASER's own code, restated for tests: its PyTorch encoder, its tokenizers, its checkpoint files.

After source/embed.py and laser_encoders of facebookresearch/LASER.
"""

import collections

import numpy as np
import sentencepiece
import torch
from sacremoses import MosesPunctNormalizer, MosesTokenizer
from torch import nn
from transliterate import translit

from xling_jax.text.vocab import train_vocab

SPECIALS = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
SIZES = {"padding_idx": 1, "embed_dim": 12, "hidden_size": 10, "bidirectional": True}


class LaserLstmEncoder(nn.Module):
    def __init__(
        self, num_embeddings, padding_idx, embed_dim, hidden_size, num_layers, bidirectional
    ):
        super().__init__()
        self.padding_idx = padding_idx
        self.embed_tokens = nn.Embedding(num_embeddings, embed_dim, padding_idx=padding_idx)
        self.lstm = nn.LSTM(embed_dim, hidden_size, num_layers, bidirectional=bidirectional)

    def forward(self, tokens, lengths):
        embedded = self.embed_tokens(tokens).transpose(0, 1)
        packed = nn.utils.rnn.pack_padded_sequence(embedded, lengths)
        outputs, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0])
        padding = tokens.eq(self.padding_idx).t().unsqueeze(-1)
        return outputs.masked_fill(padding, float("-inf")).max(dim=0)[0]


def normalize_punctuation(text, language):
    normalizer = MosesPunctNormalizer(language, perl_parity=True)
    normalizer.substitutions[21] = ("‘", r'"')
    normalizer.substitutions[22] = ("‚", r'"')
    return normalizer.normalize("".join(c if c.isprintable() else " " for c in text))


def laser2_pieces(text, model, language="en"):
    """One line of text -> the line of pieces that LASER2's tokenizer writes."""
    text = normalize_punctuation(text, language).lower()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return " ".join(processor.encode(text, out_type=str))


def laser1_words(text, language="en"):
    """One line of text -> the line of words that LASER's tokenizer gives to fastBPE."""
    text = normalize_punctuation(text, language)
    text = MosesTokenizer(language).tokenize(text, escape=False, return_str=True)
    return (translit(text, "el", reversed=True) if language == "el" else text).lower()


def encode(checkpoint, lines):
    """Lines of pieces -> float32 [n, dim], in one padded batch sorted by length."""
    state = torch.load(checkpoint, weights_only=True)
    params = {"num_layers": 1, **state["params"]}
    encoder = LaserLstmEncoder(**params).eval()
    encoder.load_state_dict(state["model"])
    ids = [[state["dictionary"].get(piece, 3) for piece in line.split()] + [2] for line in lines]
    order = np.argsort([-len(row) for row in ids], kind="stable")
    tokens = torch.ones(len(ids), len(ids[order[0]]), dtype=torch.long)
    for row, index in enumerate(order):
        tokens[row, : len(ids[index])] = torch.tensor(ids[index])
    with torch.no_grad():
        vectors = encoder(tokens, [len(ids[index]) for index in order]).numpy()
    return vectors[np.argsort(order)]


def write_checkpoint(path, pieces, num_layers=1, **changes):
    """Writes a checkpoint of LASER's layout with large random weights; returns its state."""
    dictionary = {**SPECIALS, **{piece: 4 + number for number, piece in enumerate(pieces)}}
    params = {**SIZES, "num_embeddings": len(dictionary) + 3, "num_layers": num_layers}
    torch.manual_seed(0)
    encoder = LaserLstmEncoder(**params)
    for value in encoder.parameters():
        nn.init.normal_(value, std=0.5)
    model = collections.OrderedDict(encoder.state_dict())
    state = {"params": params, "model": model, "dictionary": dictionary, **changes}
    # The format of 2018; that of today is a zip file.
    torch.save(state, path, _use_new_zipfile_serialization="93langs" not in path.name)
    return state


def write_laser2(directory, sentences, num_layers=1, size=120):
    """Writes laser2.pt and laser2.spm; the dictionary has another order, and lacks some pieces."""
    vocab = train_vocab(sentences, size=size)
    (directory / "laser2.spm").write_bytes(vocab.model_bytes)
    pieces = sorted(vocab.pieces()[4:], reverse=True)
    write_checkpoint(directory / "laser2.pt", [*pieces[:-15], "☃"], num_layers)
    return directory / "laser2.pt"


CODES = ["l o 90", "lo w 80", "lo w</w> 70", "e r</w> 60", "n e 50", "w er</w> 40", "low er</w> 30"]
VOCABULARY = ["low 9", "lo@@ 8", "w 7", "ne@@ 6", "wer 5", "e@@ 4", "r 3", "k@@ 2", "a@@ 2", "a 1"]


def write_laser1(directory):
    """Writes bilstm.93langs.2018-12-26.pt, 93langs.fcodes and 93langs.fvocab."""
    (directory / "93langs.fcodes").write_text("\n".join(CODES) + "\n")
    (directory / "93langs.fvocab").write_text("\n".join(VOCABULARY) + "\n")
    pieces = [line.split()[0] for line in VOCABULARY]
    path = directory / "bilstm.93langs.2018-12-26.pt"
    write_checkpoint(path, [*pieces, ",", '"', "w@@", "l@@", "i@@", "m@@", "er"])
    return path
