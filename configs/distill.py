r"""A small encoder learns the vectors of a large one (Reimers and Gurevych 2020).

The teacher encodes the training text once, when the data are prepared. The student fits both sides
of a pair to the teacher's vector of the source, by cosine, so any teacher that is good in the
source languages will do. Its width is at most the teacher's; a wider teacher is cut to its
principal axes. `--config.objective.distillation.form=similarity` fits similarities instead, for a
student of any width; `fits=own` fits each side to its own vector, for a teacher that knows both.
Text without translations: add pairs such as `de-de`, rows with a German text only.

Reproduces   No paper.
Data         Parallel text in de, en, es, fr and it.
Hardware     CPU cores for static and dual, a GPU for T-LASER.
Argument     `teacher=`, a model directory, workdir or shipped name (default `mini`);
             `student=static` (default: a mean of token vectors), `dual` (two layers) or `tlaser`
             (six).
Sizes        :paper (default), :smoke.

    xling train --config distill:student=dual,teacher=models/large --workdir runs/student \
        --config.data.corpora="('tsv:corpora/*.tsv.gz',)"
"""

from ml_collections import ConfigDict

from xling_jax.config import parse_argument
from xling_jax.configs import recipes


def get_config(arg: str = ""):
    """The recipe; `arg` gives teacher, student and a size."""
    argument = parse_argument(
        arg, sizes=("paper", "smoke"), teacher="mini", student=("static", "dual", "tlaser")
    )
    is_static = argument.student == "static"

    config = ConfigDict()
    config.languages = ("de", "en", "es", "fr", "it")
    config.data = {"pairs": recipes.TEN_PAIRS, "sampling_exponent": 0.7, "truncate": True}
    config.data.update(batch_size=1024 if is_static else 256)
    config.data.bucket_lengths = (8, 12, 16, 24, 32, 48, 64)
    config.cleaning = {"max_length_ratio": 100.0, "max_words": 300}
    config.vocab = {"size": 8000, "model_type": "unigram", "sample_sentences": 1_000_000}
    config.vocab.sampling_exponent = 0.3

    config.encoder = {
        "static": {"family": "static", "width": 128},
        "dual": {"family": "dual", "width": 128, "layers": 2, "heads": 4, "ffn_width": 512},
        "tlaser": {"family": "tlaser", "width": 256, "layers": 6, "heads": 4, "ffn_width": 1024},
    }[argument.student]
    if not is_static:
        config.encoder.update(dropout=0.0)
        config.dropout_generator = "hash"
    if argument.student == "dual":
        config.encoder.update(attention_dropout=0.0, norm="pre", pooling="weighted_mean")
    if argument.student == "tlaser":
        config.encoder.update(pooling="mean", init_stddev=recipes.relative(0.02, 256))

    config.objective = {"reduction": "mean"}
    config.objective.distillation = {"teacher": argument.teacher, "form": "cosine"}

    config.optimizer = {"name": "adam", "b1": 0.9, "b2": 0.999, "clip_global_norm": 1.0}
    config.schedule = {"name": "warmup_cosine_decay_schedule", "init_value": 0.0}
    config.schedule.update(peak_value=5e-3 if is_static else 1e-3, warmup_percent=2.0)
    config.train = {"total_steps": 5000}
    if argument.size == "smoke":
        recipes.smoke_run(config)
        config.data.batch_size = 16
        config.encoder.width = 32
        if not is_static:
            config.encoder.update(layers=1, heads=2, ffn_width=64)
    return config
