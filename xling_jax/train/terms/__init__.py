"""The terms of objectives, one file each. A new term needs a file and a line here."""

from xling_jax.registry import Registry

_HERE = "xling_jax.train.terms"

TERMS = Registry(
    "objective term",
    translation=f"{_HERE}.translation:Translation",
    distance=f"{_HERE}.distance:Distance",
    similarity=f"{_HERE}.similarity:Similarity",
    encoder_l2=f"{_HERE}.encoder_l2:EncoderL2",
    token_distribution=f"{_HERE}.token_distribution:TokenDistribution",
    alignment=f"{_HERE}.alignment:Alignment",
    distillation=f"{_HERE}.distillation:Distillation",
    similarity_distribution=f"{_HERE}.similarity_distribution:SimilarityDistribution",
)
