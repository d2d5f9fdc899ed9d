r"""The packaged encoder, `xling_jax.load("mini")`: static, with vectors of word pairs too.

32,000 unigram pieces and the 255,000 most frequent pairs and triples of neighboring pieces, 256
dimensions, summed with learned weights; cosine times 20 with an additive margin of 0.3 against the
2,047 other translations in the batch and the 2,047 other sentences of the same language, equal
sentences left out; a tenth of the pieces and a fifth of the combinations dropped; Adam at 5e-3 with
cosine decay. Pieces begin with the vectors of `train.warm_start`, which know topics and
translations before training; the others are small (0.01).

The packaged encoder begins as the mean of two: this run, counted twice, and a short one, of 1,500
updates with cosines times 12, which keeps more of what the initial vectors know of topics. Then it
gets dimensions for topics and sentiment from English word vectors and ratings
(`lab/mini/mini_words.py`), and principal axes bring it back to 256, of which pairs and triples keep
160. They cost some retrieval, which 800 updates at 1e-3 on everyday text restore. 800 more, on text
that is also careless or marked up, teach it what to ignore. With 8 bits per number for pieces and 4
for pairs and triples it takes 31.6 MB.

Reproduces   No paper. `lab/mini/mini.sh` trains, shrinks, calibrates and measures it in one
             command; the model card has the numbers.
Data         Parallel text in de, en, es, fr and it whose licenses allow publishing what is trained
             on it; the model card names the sources.
Hardware     Two CPU cores, 27 minutes, and about 20 for the three others.
Arguments    `phase=train` (default); `short` and `everyday`, the other runs, of which the last
             needs `train.model_init`; or `tune` to fine-tune the packaged encoder on other pairs:
             300 updates of 256 at 1e-3, a minute or two on a laptop.
             `languages=five` (default); or `seven`, with Dutch and Portuguese: 36,000 pieces and a
             quarter more updates, as many as before for the five.
Sizes        :paper (default), :smoke.

    lab/mini/mini.sh --data DIR --workdir runs/mini
    xling train --config mini:phase=tune --workdir runs/tuned \
        --config.data.corpora="('tsv:own.de-en.tsv',)" --config.data.pairs="('de-en',)"
"""

from ml_collections import ConfigDict

from xling_jax.config import parse_argument
from xling_jax.configs import recipes

# Pairs with the other two of seven languages.
SIX_PAIRS = ("de-nl", "en-nl", "en-pt", "es-pt", "fr-nl", "fr-pt")
CHOICES = {"phase": ("train", "everyday", "short", "tune"), "languages": ("five", "seven")}


def get_config(arg: str = ""):
    """The recipe; `arg` gives the phase and a size."""
    argument = parse_argument(arg, sizes=("paper", "smoke"), **CHOICES)

    config = ConfigDict()
    seven = argument.languages == "seven"
    config.languages = ("de", "en", "es", "fr", "it") + (("nl", "pt") if seven else ())
    config.data = {"pairs": recipes.TEN_PAIRS + (SIX_PAIRS if seven else ())}
    config.data.update(batch_size=2048, sampling_exponent=0.7)
    config.data.update(bucket_lengths=(8, 12, 16, 24, 32, 48, 64), truncate=True)
    config.cleaning = {"max_length_ratio": 100.0, "max_words": 300}
    config.vocab = {
        "size": 36_000 if seven else 32_000,
        "model_type": "unigram",
        "sample_sentences": 1_200_000,
    }
    config.vocab.update(sampling_exponent=0.3, character_coverage=1.0)

    config.encoder = {"family": "static", "width": 256, "init_stddev": 0.01}
    config.encoder.update(features=("pairs", "triples"))
    config.encoder.feature_rows = 245_000 if seven else 255_000  # 32 MB
    config.encoder.update(token_dropout=0.1, feature_dropout=0.2)
    config.dropout_generator = "hash"

    config.objective = {"reduction": "mean"}
    config.objective.alignment = {"similarity": "cosine", "scale": 20.0, "margin": 0.3}
    config.objective.alignment.update(own_side=True, ignore_equal=True)

    config.optimizer = {"name": "adam", "b1": 0.9, "b2": 0.999}
    config.schedule = {"name": "cosine_decay_schedule", "init_value": 5e-3}
    config.train = {"total_steps": 9000 if seven else 7000, "word_vectors": "cooccurrence"}

    if argument.phase == "short":
        config.train.total_steps = 1900 if seven else 1500
        config.objective.alignment.scale = 12.0
    if argument.phase in ("everyday", "tune"):
        config.train.update(word_vectors="", total_steps=1000 if seven else 800)
        config.schedule.init_value = 1e-3
        # As in the package.
        config.encoder.feature_width = 20 if argument.size == "smoke" else 160
    if argument.phase == "tune":
        config.train.update(model_init="mini", total_steps=300)
        config.data.batch_size = 256
    if argument.size == "smoke":
        recipes.smoke_run(config)
        config.vocab.character_coverage = 0.98  # the emoji are more characters than it has pieces
        config.encoder.update(width=32, feature_rows=200)
        config.data.batch_size = 16
    return config
