r"""Any encoder with any decoder, for comparisons not made in any paper.

Reproduces   Nothing. Pooling, objective terms and batches are config keys as usual, so you can
             change one thing at a time. The recipe is T-LASER's.
Hardware     As for t_laser.py.
Argument     `encoder=laser` (default) or `tlaser`, `decoder=tlaser` (default) or `laser`.
Sizes        :paper (default), :base (a day on one GPU), :small (minutes on two CPU cores), :smoke.

A T-LASER encoder with mean pooling and LASER's decoder:

    xling train --config mixed:encoder=tlaser,decoder=laser,small --workdir runs/mixed \
        --config.encoder.pooling=mean --config.data.corpora="('tsv:corpora/*.tsv.gz',)"

`--config.objective.similarity.weight=1.0`, `--config.objective.distance.weight=0.25` and
`--config.data.both_directions=True` work with all of them.
"""

from ml_collections import ConfigDict

from xling_jax.config import parse_argument
from xling_jax.configs import recipes


def get_config(arg: str = ""):
    """T-LASER's recipe for the two families named in `arg`."""
    argument = parse_argument(
        arg, sizes=recipes.SIZES, encoder=("laser", "tlaser"), decoder=("tlaser", "laser")
    )
    width, layers, heads, ffn_width = {
        "paper": (1024, 6, 16, 4096),
        "base": (512, 6, 8, 2048),
        "small": (256, 2, 4, 1024),
        "smoke": (32, 2, 2, 64),
    }[argument.size]

    config = ConfigDict()
    config.languages = ("de", "en", "es", "fr", "it")
    config.data = {"pairs": recipes.EUROPARL_PAIRS}
    config.data.corpora = recipes.europarl(recipes.EUROPARL_PAIRS)
    config.cleaning = {"max_words": 100, "max_length_ratio": 1.5}

    for side, family in (("encoder", argument.encoder), ("decoder", argument.decoder)):
        if family == "tlaser":
            sizes = {"width": width, "heads": heads, "ffn_width": ffn_width, "dropout": 0.3}
            sizes["layers"] = layers if side == "encoder" else 1
            sizes["init_stddev"] = recipes.relative(0.02, width)
        else:
            sizes = {"embedding_width": width // 2, "dropout": 0.1}
            sizes["width"] = width if side == "encoder" else 2 * width
            sizes["init_scale"] = recipes.relative(0.1, width)
        if argument.size in ("base", "small"):
            sizes["dropout"] = {"base": 0.1, "small": 0.0}[argument.size]
        config[side] = {"family": family, **sizes}

    config.objective = {"reduction": "sum", "translation": {"label_smoothing": 0.1}}

    config.optimizer = {"name": "adamw", "b1": 0.9, "b2": 0.98, "eps": 1e-8, "weight_decay": 1e-4}
    config.optimizer.clip_global_norm = 25.0
    config.schedule = {"name": "warmup_inverse_sqrt_schedule", "init_value": 1e-7}
    config.schedule.update(peak_value=5e-4, warmup_steps=4000)
    recipes.translation_run(config, argument.size)
    return config
