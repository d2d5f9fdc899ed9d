"""Documents in two languages, a tiny encoder, and what alignment of them should find."""

import gzip
import json
import random

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xling_jax.align.matching import align_documents
from xling_jax.documents.lawdr import Lawdr
from xling_jax.encode.encoder import Encoder
from xling_jax.encode.jax_backend import JaxBackend
from xling_jax.text.vocab import train_vocab

DIM = 16
NUM_DOCUMENTS = 30
FUNCTION_WORDS = {"en": ["the", "of", "and"], "de": ["der", "von", "und"]}
RANK = ("--debias", "2")


class MeanOfTokens(nn.Module):
    """The mean of token vectors, pads left out."""

    vocab_size: int

    @nn.compact
    def __call__(self, tokens, deterministic=True):
        table = self.param("table", nn.initializers.normal(1.0), (self.vocab_size, DIM))
        mask = (tokens != 1)[..., None]
        return jnp.sum(table[tokens] * mask, axis=1) / jnp.maximum(mask.sum(axis=1), 1)


def make_documents():
    """Records of equal content words under the function words of two languages."""
    generator = random.Random(0)
    words = ["".join(generator.choices("bdklmnrst", k=2)) + "a" * i for i in range(1, 6)] * 8
    words = [word + generator.choice("iou") + generator.choice("klmn") for word in words]
    rows = []
    for index in range(NUM_DOCUMENTS):
        sentences = [generator.choices(words, k=5) for _ in range(generator.randint(1, 6))]
        for code, functions in FUNCTION_WORDS.items():
            texts = [" ".join([*s, *generator.choices(functions, k=3)]) for s in sentences]
            site = f"s{index % 3}.org"
            url = f"http://{site}/{code}/{index}" if index in (4, 8) else None
            row = {"id": f"{code}{index}", "lang": code, "sentences": texts, "site": site}
            rows.append(row | ({"url": url} if url else {}))
    return rows


ROWS = make_documents()


def side(code, rows=ROWS):
    return [row for row in rows if row["lang"] == code]


def of(name, rows=ROWS):
    """A field of the documents of each language."""
    return [[row.get(name) for row in side(code, rows)] for code in FUNCTION_WORDS]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def make_encoder():
    """An encoder and its vocabulary."""
    vocab = train_vocab((text for row in ROWS for text in row["sentences"]), size=120)
    module = MeanOfTokens(vocab.size)
    params = module.init(jax.random.key(0), np.ones((1, 8), np.int32))["params"]
    return Encoder(
        JaxBackend(module, params, vocab.pad_id),
        vocab,
        specials=((), ("eos",)),
        max_length_tokens=60,
        languages=("en", "de"),
        fingerprint="abc",
        dim=DIM,
    )


def write_files(directory):
    """Documents of each language, of both, and the pairs of equal content."""
    for code in FUNCTION_WORDS:
        (directory / f"{code}.jsonl").write_text(lines(side(code)))
    (directory / "all.jsonl.gz").write_bytes(gzip.compress(lines(ROWS).encode()))
    gold = "".join(f"en{index}\tde{index}\n" for index in range(NUM_DOCUMENTS))
    (directory / "gold.tsv").write_text(gold)


def sentence_vectors(encoder, code, rows=ROWS):
    chosen = [[text for text in row["sentences"] if text.strip()] for row in side(code, rows)]
    offsets = np.cumsum([0, *map(len, chosen)])
    return encoder.encode([text for texts in chosen for text in texts]), offsets


def expected_pairs(encoder, rank=2, weighting="kde", rows=ROWS, **settings):
    """The pairs through the functions of the library, (score, source id, target id)."""
    documents = []
    for code in FUNCTION_WORDS:
        vectors, offsets = sentence_vectors(encoder, code, rows)
        lawdr = Lawdr(rank=rank, weighting=weighting).fit(vectors)
        documents.append(lawdr.transform(vectors, offsets))
    ids = of("id", rows)
    pairs = align_documents(*documents, **settings)
    return [(score, ids[0][i], ids[1][j]) for score, i, j in pairs]


def right(pairs):
    return sum(source[2:] == target[2:] for _, source, target in pairs)
