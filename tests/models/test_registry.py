import functools

import jax
import jax.numpy as jnp
import pytest

from xling_jax.models.registry import ENCODERS, build_encoder, build_model, vocab_layout
from xling_jax.train.step import count_parameters

TLASER = {"family": "tlaser"}


def count(encoder, decoder=None, head=None, **shared):
    """Parameters of the published sizes at a vocabulary of 50,000 and five languages."""
    parts = {"encoder": encoder, "decoder": decoder, "head": head}
    model = build_model(**parts, vocab_size=50_000, num_languages=5, **shared)
    tokens, language = jnp.zeros((1, 4), jnp.int32), jnp.zeros(1, jnp.int32)
    return count_parameters(jax.eval_shape(lambda: model.init(jax.random.key(0), tokens, language)))


PUBLISHED = TLASER | {"published_parameters": True}


@pytest.mark.parametrize(
    "parts, expected",
    [
        ([TLASER, PUBLISHED], 246_043_808),
        ([TLASER, PUBLISHED | {"language_at": "input"}], 247_060_640),
        # What never gets a gradient: two projections and the layer norm before them.
        ([TLASER, TLASER], 246_043_808 - 1024 * (1024 + 1056) - 4 * 1024),
        *(
            ([{"family": "dual", "layers": layers}, None, {}], expected)
            for layers, expected in ((1, 28_120_400), (2, 30_223_184), (6, 38_634_320))
        ),
    ],
)
def test_parameters_are_as_many_as_published(parts, expected):
    assert count(*parts, vocab_multiple=1) == expected


def test_a_vocabulary_has_the_special_tokens_that_are_needed():
    layout = functools.partial(vocab_layout, translates=False, masks=False)
    assert layout("laser") == layout("tlaser") == layout("dual", translates=True) == "laser"
    assert layout("dual") == layout("dual", masks=True) == "dual"
    assert layout("tlaser", masks=True) == layout("dual", translates=True, masks=True) == "masked"


def test_unknown_families_and_arguments_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="encoder.family='gpt' must be one of tlaser, laser"):
        build_encoder("gpt", vocab_size=8)
    with pytest.raises(ValueError, match="encoder.depth is not an option of TLaserEncoder.*layers"):
        build_encoder("tlaser", vocab_size=8, depth=3)
    with pytest.raises(ValueError, match="decoder.family='lstm'"):
        build_model(encoder=TLASER, decoder={"family": "lstm"}, vocab_size=8, num_languages=1)


@pytest.mark.parametrize("name", ["table", "training_only"])
def test_a_family_must_have_what_training_reads(monkeypatch, name):
    monkeypatch.delattr(ENCODERS["static"], name)
    with pytest.raises(ValueError, match=f"encoder.family='static' must have `{name}`"):
        build_model(encoder={"family": "static"}, head={}, vocab_size=8, num_languages=1)
