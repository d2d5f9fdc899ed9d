"""The terms of objectives. A new term needs a file and a line here."""

from xling_jax.registry import Registry

_HERE = "xling_jax.train.terms"

TERMS = Registry(
    "objective term",
    translation=f"{_HERE}.tokens:Translation",
    distance=f"{_HERE}.vectors:Distance",
    similarity=f"{_HERE}.vectors:Similarity",
    encoder_l2=f"{_HERE}.vectors:EncoderL2",
    token_distribution=f"{_HERE}.tokens:TokenDistribution",
    alignment=f"{_HERE}.vectors:Alignment",
    distillation=f"{_HERE}.vectors:Distillation",
    similarity_distribution=f"{_HERE}.vectors:SimilarityDistribution",
)
