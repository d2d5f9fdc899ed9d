"""The quickstart: a small cT-LASER on translated software messages, five languages, two CPU cores.

To fit into minutes, it differs from ct_laser.py: a tiny model and vocabulary, all twenty
directions, a steep schedule, and a stronger constraint. With the published weights, the constraint
takes effect only once translation has separated the sentences (lab/experiments), which takes
longer.

Reproduces   No paper; it shows that the method learns. README.md has the expected results.
Data         Message catalogs of free software, downloaded by pip.
Hardware     2 CPU cores, 4 minutes with download and evaluation.
Sizes        :small (default), :smoke.

    make quickstart
"""

from ml_collections import ConfigDict

from xling_jax.config import parse_argument
from xling_jax.configs import recipes

LANGUAGES = ("en", "de", "fr", "es", "it")


def get_config(arg: str = ""):
    """The quickstart, or a few steps of it for tests."""
    size = parse_argument(arg, sizes=("small", "smoke")).size
    width, layers, heads, ffn_width, dropout = {
        "small": (128, 2, 4, 256, 0.0),
        "smoke": (32, 2, 2, 64, 0.3),
    }[size]

    config = ConfigDict()
    config.languages = LANGUAGES
    config.data = {"pairs": tuple(f"{a}-{b}" for a in LANGUAGES for b in LANGUAGES if a != b)}
    config.data.update(bucket_lengths=(8, 14, 24, 44), max_tokens=2560)
    # Short messages: "Save" / "Änderungen speichern".
    config.cleaning = {"max_words": 100, "max_length_ratio": 1.5, "length_ratio_slack": 3}
    config.vocab = {"model_type": "bpe"}
    recipes.small_vocab(config)

    config.encoder = {"family": "tlaser", "width": width, "layers": layers, "heads": heads}
    config.encoder.update(ffn_width=ffn_width, dropout=dropout)
    config.decoder = {"family": "tlaser", "width": width, "layers": 1, "heads": heads}
    config.decoder.update(ffn_width=ffn_width, dropout=dropout)
    config.encoder.init_stddev = config.decoder.init_stddev = recipes.relative(0.02, width)

    config.objective = {"reduction": "sum"}
    config.objective.translation = {"weight": 0.5, "label_smoothing": 0.1}
    config.objective.distance = {"weight": 40.0, "negative_weight": 4.0}

    config.optimizer = {"name": "adamw", "b1": 0.9, "b2": 0.98, "eps": 1e-8, "weight_decay": 1e-4}
    config.optimizer.clip_global_norm = 25.0
    config.schedule = {"name": "warmup_inverse_sqrt_schedule", "init_value": 1e-7}
    config.schedule.update(peak_value=4e-3, warmup_steps=50)
    config.dropout_generator = "hash"
    config.train = {"total_steps": 700, "evaluate_every_steps": 350, "checkpoint_every_steps": 350}
    if size == "smoke":
        recipes.smoke_run(config)
        config.schedule.peak_value, config.data.max_tokens = 5e-4, 512
        config.dropout_generator = "threefry"
    return config
