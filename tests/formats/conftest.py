"""Model directories of every family, untrained, and text that they encode."""

import pytest

from tests.encode.conftest import sentences
from tests.encode.random_models import random_static, save_random
from xling_jax.encode.model_directory import load_model, save_changed
from xling_jax.models.numpy_static import NumpyStatic
from xling_jax.text.vocab import train_vocab

__all__ = ["models", "sentences", "vocabs"]
TEXT = [
    "the cat sat on the mat, and the dog did not.",
    "Der Hund läuft über die Straße; die Katze schläft.",
    "Ο ΟΔΥΣΣΕΥΣ γύρισε στην Ιθάκη μετά από είκοσι χρόνια.",
    "собака бежит по улице, а кошка спит дома",
    "कुत्ता सड़क पर दौड़ता है और बिल्ली सोती है",
    "犬は通りを走り、猫は家で寝ています。",
    "aaaa aaa aa a banana bananas nananana",
]
TEXTS = [*TEXT, "", "  ", "<s> <pad> </s>", "a\u0301 ▁ ☃ \u200b\x00", "the cat " * 60, "x"]
MAX_LENGTH_TOKENS = 40

_SIZES = {"width": 16, "layers": 2, "heads": 2, "ffn_width": 24}
ENCODERS = {
    "tlaser": ("tlaser", _SIZES),
    "tlaser_max": ("tlaser", _SIZES | {"pooling": "max"}),
    "dual": ("dual", _SIZES),
    "dual_max": ("dual", _SIZES | {"pooling": "max"}),
    "dual_pre": ("dual", _SIZES | {"norm": "pre", "pooling": "weighted_mean"}),
    "dual_attention": ("dual", _SIZES | {"pooling": "self_attention", "attention_hops": 2}),
    "mean": ("dual", {"width": 16, "layers": 0}),
    "laser": ("laser", {"width": 12, "embedding_width": 10, "layers": 2}),
    "laser_mixed": (
        "laser",
        {
            **{"width": 12, "layers": 2, "unidirectional_layers": 1, "embedding_width": 10},
            **{"pooling": "self_attention", "attention_hops": 2, "published_parameters": True},
        },
    ),
    "static": ("static", {"width": 16}),
    "static_features": (
        "static",
        {"width": 16, "features": ["pairs", "skips", "triples"], "feature_rows": 90},
    ),
    "static_narrow": (
        "static",
        {"width": 16, "features": ["pairs"], "feature_rows": 90, "feature_width": 6},
    ),
}


def save_again(model, directory, **changes):
    """Saves a model directory with other arguments of `save_model`."""
    save_changed(directory, load_model(model), **changes)
    return directory


@pytest.fixture(scope="session")
def vocabs():
    sizes = {"laser": 150, "dual": 110}
    kinds = {"laser": "bpe", "dual": "unigram"}
    return {
        layout: train_vocab(TEXT * 20, size=size, layout=layout, model_type=kinds[layout])
        for layout, size in sizes.items()
    }


@pytest.fixture(scope="session")
def models(tmp_path_factory, vocabs):
    """Name -> its model directory, written when first asked for."""
    top = tmp_path_factory.mktemp("models")

    def model(name):
        directory = top / name
        if directory.exists():
            return directory
        family, arguments = ENCODERS[name]
        vocab = vocabs["dual" if family in ("dual", "static") else "laser"]
        settings = {"max_length_tokens": MAX_LENGTH_TOKENS}
        if family == "static":
            sizes = {name: v for name, v in arguments.items() if name != "width"}
            static = NumpyStatic(vocab.size, 16, pad_id=vocab.pad_id, **sizes)
            settings["params"] = random_static(static, vocab, TEXT)
        return save_random(directory, family, vocab, arguments, **settings)

    return model


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """A function from a kind of transformer to a directory of it; each is made once."""
    from tests.formats import huggingface_reference, rotary_reference

    top = tmp_path_factory.mktemp("published")

    def directory(kind):
        rotary = kind in rotary_reference.CONFIGS
        if not (top / kind).exists():
            (rotary_reference if rotary else huggingface_reference).save_model(top / kind, kind)
        return top / kind

    return directory


@pytest.fixture(scope="session")
def family(tmp_path_factory):
    """A function from a name of `every_family` to its folder and the original's `encode`."""
    from tests.formats.every_family import FAMILIES

    top, made = tmp_path_factory.mktemp("families"), {}

    def convert(name):
        if name not in made:
            folder = top / str(len(made))
            folder.mkdir()
            made[name] = folder, FAMILIES[name](folder)
        return made[name]

    return convert
