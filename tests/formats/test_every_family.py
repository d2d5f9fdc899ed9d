"""Every family that converts: the vectors of the original library for any text, to 1e-5."""

import pytest

import xling_jax

for package in ("torch", "transformers", "sentence_transformers", "model2vec"):
    pytest.importorskip(package)

from tests.formats.every_family import FAMILIES, TEXTS, difference  # noqa: E402

SLOW = ("LASER2", "ModernBERT", "mmBERT")
SLOW += ("EmbeddingGemma", "Gemma 3, causal")
SLOW += tuple(name for name in FAMILIES if name.startswith("sentence-transformers"))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in FAMILIES]
)
def test_vectors_are_those_of_the_original(family, name):
    folder, encode = family(name)
    assert len(TEXTS) > 150
    # The programs of the tests are not optimized: they round up to twice as much, depending on the
    # processor. benchmarks/conversion_differences.py measures those that users run, below 1e-5.
    assert difference(xling_jax.load(folder / "ours").encode(TEXTS), encode(TEXTS)) < 2e-5
