import pytest

from xling_jax.config import load_config
from xling_jax.runs.prepare import checked_settings


def test_a_batch_of_both_directions_cannot_fit_the_vector_of_its_source():
    words = ["--config.data.both_directions=True", "--config.data.corpora=c.tsv"]
    words += ["--config.languages=('de','en')", "--config.objective.distillation.fits=source"]
    both = "--config.data.pairs=('de-en','en-de')"
    with pytest.raises(ValueError, match="a batch of de-en and en-de has two sources"):
        checked_settings(load_config("distill:smoke", [*words, both]))
    one = "--config.data.pairs=('en-de',)"
    assert checked_settings(load_config("distill:smoke", [*words, one])).teacher
    own = "--config.objective.distillation.fits=own"
    assert checked_settings(load_config("distill:smoke", [*words, both, own])).teacher
