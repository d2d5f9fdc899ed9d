r"""Fine-tuning: any encoder trains on with in-batch negatives, on your own translations.

The encoder is that of `train.model_init`, a model directory of `xling convert` or a run: its
family, sizes, pooling and projections, its tokenizer, its longest input and its dropout. What is
exported loads like the model that it began with. `--config.encoder.dropout=0` changes an option of
the encoder, `--config.objective.TERM.KEY=VALUE` adds a term.

Reproduces   No paper. The loss is that of multilingual sentence-transformers: cosine times 20 over
             the batch, both directions. The rate is the usual one for published transformers;
             encoders without layers take 1e-3.
Data         Parallel text, from some thousand pairs.
Hardware     For a base-sized transformer a GPU; the batch is encoded in pieces with
             `--config.objective.encode_chunks=8`, so that memory does not limit its size.
Arguments    `pairs=A-B+A-C`, the pairs of languages (de-en).
             `lora` trains matrices of rank 8 beside all kernels of the layers (Hu et al. 2022), at
             2e-4: a hundredth of the optimizer's memory.

    xling convert --from huggingface DIR/xlm-roberta-base --output models/xlmr
    xling train --config finetune:pairs=de-en --workdir runs/tuned \
        --config.train.model_init=models/xlmr --config.data.corpora="('tsv:corpora/*.tsv.gz',)"
"""

from ml_collections import ConfigDict

from xling_jax.config import parse_argument


def get_config(arg: str = ""):
    """One epoch of contrast; `arg` gives the pairs of languages, and `lora`."""
    argument = parse_argument(arg, sizes=("whole", "lora"), pairs="de-en")
    pairs = tuple(argument.pairs.split("+"))

    config = ConfigDict()
    config.languages = tuple(sorted({code for pair in pairs for code in pair.split("-")}))
    config.data = {"pairs": pairs, "batch_size": 64, "truncate": True}

    config.objective = {"reduction": "mean"}
    config.objective.alignment = {"similarity": "cosine", "scale": 20.0, "ignore_equal": True}

    config.optimizer = {"name": "adamw", "b1": 0.9, "b2": 0.999, "weight_decay": 0.01}
    config.optimizer.clip_global_norm = 1.0
    config.schedule = {"name": "warmup_cosine_decay_schedule", "init_value": 0.0}
    config.schedule.update(peak_value=2e-5, warmup_percent=10.0)
    config.train = {"total_epochs": 1.0}
    if argument.size == "lora":
        config.train.lora_rank = 8
        config.schedule.peak_value = 2e-4
    return config
