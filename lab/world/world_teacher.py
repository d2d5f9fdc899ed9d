"""Vectors of a multilingual E5 encoder for many short texts on one core."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

_TOKENS_A_BATCH = 4096


class Teacher:
    """A BERT-like encoder in a sentence-transformers directory: mean of its last states, length 1.

    Texts of the same number of tokens share a batch, so that nothing is padded; `dtype` is that of
    the layers' products. Only short texts are quick: attention is over whole batches.
    """

    def __init__(self, directory: str | Path, dtype: torch.dtype = torch.bfloat16):
        directory = Path(directory)
        config = json.loads((directory / "config.json").read_text())
        self.heads, self.layers = config["num_attention_heads"], config["num_hidden_layers"]
        self.epsilon = config["layer_norm_eps"]
        self.dim = config["hidden_size"]
        self.weights = load_file(directory / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self.dtype = dtype
        w = self.weights
        for i in range(self.layers):
            p = f"encoder.layer.{i}."
            names = [p + f"attention.self.{n}" for n in ("query", "key", "value")]
            for part in ("weight", "bias"):
                w[p + f"qkv.{part}"] = torch.cat([w[f"{n}.{part}"] for n in names])
        for name in list(w):
            if name.startswith("encoder") and "LayerNorm" not in name:
                w[name] = w[name].to(dtype)

    def encode(
        self, texts: Sequence[str], prompt: str = "query: ", max_tokens: int = 128, report=None
    ) -> np.ndarray:
        """[texts, dim] float16 vectors of length 1."""
        ids = []
        for start in range(0, len(texts), 10_000):
            part = [prompt + text for text in texts[start : start + 10_000]]
            encodings = self.tokenizer.encode_batch_fast(part)
            for encoding in encodings:
                tokens = encoding.ids
                if len(tokens) > max_tokens:
                    tokens = tokens[: max_tokens - 1] + tokens[-1:]
                ids.append(np.array(tokens, np.int32))
        return self.encode_ids(ids, report)

    def encode_ids(self, ids: Sequence[np.ndarray], report=None) -> np.ndarray:
        """The same of token ids, with their marks."""
        lengths = np.array([len(tokens) for tokens in ids])
        order = np.argsort(lengths, kind="stable")
        result = np.empty((len(ids), self.dim), np.float16)
        starts = np.flatnonzero(np.diff(lengths[order], prepend=-1))
        done = 0
        with torch.inference_mode():
            for start, end in zip(starts, [*starts[1:], len(order)]):
                length = lengths[order[start]]
                size = max(1, _TOKENS_A_BATCH // length)
                for at in range(start, end, size):
                    rows = order[at : min(at + size, end)]
                    batch = torch.from_numpy(np.stack([ids[r] for r in rows]).astype(np.int64))
                    result[rows] = self._forward(batch).numpy().astype(np.float16)
                    done += len(rows)
                    if report:
                        report(done, int(length))
        return result

    def _forward(self, tokens: torch.Tensor) -> torch.Tensor:
        w, batch, length = self.weights, *tokens.shape
        norm = lambda x, p: F.layer_norm(
            x, (self.dim,), w[p + ".weight"], w[p + ".bias"], self.epsilon
        )
        x = w["embeddings.word_embeddings.weight"][tokens]
        x = x + w["embeddings.position_embeddings.weight"][:length]
        x = x + w["embeddings.token_type_embeddings.weight"][0]
        x = norm(x, "embeddings.LayerNorm")
        linear = lambda x, p: F.linear(x, w[p + ".weight"], w[p + ".bias"])
        for i in range(self.layers):
            p = f"encoder.layer.{i}."
            qkv = linear(x.to(self.dtype), p + "qkv").view(batch, length, 3, self.heads, -1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
            x = norm(
                x + linear(mixed, p + "attention.output.dense").float(),
                p + "attention.output.LayerNorm",
            )
            hidden = F.gelu(linear(x.to(self.dtype), p + "intermediate.dense"))
            x = norm(x + linear(hidden, p + "output.dense").float(), p + "output.LayerNorm")
        return F.normalize(x.mean(1), dim=1)
