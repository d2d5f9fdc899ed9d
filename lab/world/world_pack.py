r"""Writes the trained tables as a model directory, in 4 bits per number.

python lab/world/world_pack.py --data DIR --tables DIR/mean --output DIR/world
"""

import argparse
from pathlib import Path

import numpy as np
from world_text import LANGUAGES

from xling_jax.encode.model_directory import save_model
from xling_jax.models.numpy_static import NumpyStatic, parameters_of_vectors
from xling_jax.text.vocab import Vocab

NAMES = "tokens", "features"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("data", "tables", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--storage", default="int4")
    args = parser.parse_args()
    vocab = Vocab(args.data / "sentencepiece.model")
    tables = [np.load(args.tables / f"{name}.npy") for name in NAMES]
    keys = np.load(args.data / "texts.npz")["feature_keys"]
    options = {
        "vocab_size": vocab.size,
        "width": tables[0].shape[1],
        "features": ("pairs", "triples"),
        "feature_rows": len(keys),
        "feature_width": tables[1].shape[1],
    }
    static = NumpyStatic(**options)
    padding = static.token_rows - len(tables[0])
    tables[0] = np.pad(tables[0], ((0, padding), (0, 0)))
    static, params = static.quantized(parameters_of_vectors(tables, keys), args.storage)
    save_model(
        args.output,
        family="static",
        encoder_args=options | {"storage": args.storage, "features": list(options["features"])},
        params=params,
        vocab=vocab,
        languages=sorted({*LANGUAGES, "no"}),
        max_length_tokens=2000,
        training={"script": "lab/world/world.sh", "teacher": "multilingual-e5-small, 4 bits"},
    )


if __name__ == "__main__":
    main()
