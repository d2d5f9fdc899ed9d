r"""The lightweight dual transformer (Mao et al. 2021) on several pairs at once, in one model.

Reproduces nothing: the paper trains one model a pair and leaves this open. Pairs are drawn
uniformly, each batch from one of them; one vocabulary for all languages.

Hardware: as lightweight.py for each pair.
Argument: `objective=…`, `layers=N`, and a size as in lightweight.py. The pairs are a key:

    xling train --config configs/lightweight_multilingual.py --workdir runs/lightweight_5 \
        --config.data.pairs="('de-en','en-es','en-fr','en-it')" \
        --config.data.corpora="('tsv:corpora/*.tsv.gz',)"
"""

from xling_jax.config import apply_size, dual_config, parse_argument, set_dual_objective

PAIRS = ("de-en", "en-es", "en-fr", "en-it")


def get_config(arg: str = ""):
    """All four pairs; `arg` gives objective, depth and size."""
    argument = parse_argument(arg, objective="all", layers=2)
    config = dual_config(PAIRS, argument["layers"])
    set_dual_objective(config, argument["objective"])
    config.train.total_epochs = 12.0
    apply_size(config, argument["size"])
    return config
