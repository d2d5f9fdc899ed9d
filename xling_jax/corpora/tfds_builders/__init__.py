"""TFDS builders of parallel corpora that TFDS lacks, found by `tfds:NAME` in a config.

Importing a module registers its datasets, and imports `tensorflow_datasets`; this one does not.
"""

# Dataset name to the module that defines it.
MODULES = {
    "europarl_v7": "europarl_v7",
    "multi30k": "multi30k",
    "opus_global_voices": "opus",
    "opus_news_commentary": "opus",
    "opus_open_subtitles": "opus",
    "opus_tatoeba": "opus",
}
