r"""The lightweight dual transformer (Mao et al. 2021) on several language pairs in one model.

Reproduces   Nothing: the paper trains one model per pair and leaves this open. Like lightweight.py,
             except that each batch comes from one of the pairs, drawn uniformly, and that all
             languages share one vocabulary.
Data         ParaCrawl v5, as for lightweight.py: en-de, en-es, en-fr and en-it.
Hardware     As for lightweight.py, for each pair.
Argument     `objective=…`, `layers=N` as in lightweight.py.
Sizes        :paper (default), :base (a day on one GPU), :small (minutes on two CPU cores), :smoke.

    xling train --config lightweight_multilingual --workdir runs/lightweight_5 \
        --config.data.corpora="('tsv:corpora/*.tsv.gz',)"
"""

from xling_jax.configs import lightweight

PAIRS = ("de-en", "en-es", "en-fr", "en-it")


def get_config(arg: str = ""):
    """All four pairs; `arg` gives objective, depth and size."""
    return lightweight.get_config(arg, PAIRS)
