r"""The lightweight dual transformer (Mao et al. 2021) on several pairs at once, in one model.

Reproduces   Nothing: the paper trains one model a pair and leaves this open. As lightweight.py but
             for the pairs, which are drawn uniformly, each batch from one of them, and one
             vocabulary for all languages.
Hardware     As lightweight.py for each pair.
Argument     `objective=…`, `layers=N` as in lightweight.py.
Sizes        :paper (default), :base (one GPU, a day), :small (two CPU cores, minutes), :smoke.

    xling train --config lightweight_multilingual --workdir runs/lightweight_5 \
        --config.data.corpora="('tsv:corpora/*.tsv.gz',)"
"""

from xling_jax.configs import lightweight

PAIRS = ("de-en", "en-es", "en-fr", "en-it")


def get_config(arg: str = ""):
    """All four pairs; `arg` gives objective, depth and size."""
    return lightweight.get_config(arg, PAIRS)
