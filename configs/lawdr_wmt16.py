r"""LAWDR (Gong et al. 2021) on WMT16 document alignment: English and French pages of 203 sites.

Reproduces the recall (%) of 2,402 gold pairs with debiased vectors, weighted sums and margins,
without / with prior URL matching (`--url-matching`); packed inputs are Tables 7 and 8. Expect
results within 2 points: the paper does not give k, the bandwidths, or the size of XLM-R.

    encoder  pooling=first  pooling=mean  pooling=mean,document_mode=packed
    mbert    78.0 / 87.3    86.6 / 94.0   85.6 / 93.2
    xlm      87.0 / 93.9    88.8 / 94.8   88.3 / 94.5
    xlmr     57.6 / 78.1    61.3 / 79.4   66.1 / 83.1

xlm with mean pooling reaches 18.5 / 64.4 without debiasing, 88.6 / 94.2 without weights, 88.4 /
94.0 by cosine: the cells biased-weighted-margin, debiased-mean-margin and debiased-weighted-cosine.
LASER reaches 62.8 / 84.7 on the first 512 tokens of a document, 20.2 / 69.5 on all.

Hardware: none given; inference on 1.2 million pages, so a GPU.
Data: http://data.statmt.org/wmt16/document-alignment-task/lett.test.tgz, and its gold pairs from
https://www.statmt.org/wmt16/bilingual-task.html; docs/how-to/align.md turns them into JSON lines.
Argument: `encoder=mbert|xlm|xlmr`, which sets `--debias`, and `document_mode=sentences|packed`;
`pooling=mean|first` changes nothing here, but names what the model was converted with.

    xling convert --from huggingface DIR/xlm-mlm-100-1280 --pooling mean --output models/xlm
    xling evaluate alignment --config lawdr_wmt16:encoder=xlm,pooling=mean --model models/xlm \
        --data en.jsonl.gz fr.jsonl.gz --gold test.pairs.tsv --output runs/wmt16
"""

from ml_collections import ConfigDict

from xling_jax.config import parse_argument

# Components that identify the language, by encoder (Gong et al. 2021, Section 4).
RANKS = {"mbert": 64, "xlm": 32, "xlmr": 256}


def get_config(arg: str = ""):
    """The published setting; `arg` gives encoder, pooling and document mode."""
    argument = parse_argument(
        arg,
        encoder=tuple(RANKS),
        pooling=("mean", "first"),
        document_mode=("sentences", "packed"),
    )
    config = ConfigDict()
    config.document_mode = argument.document_mode
    config.splitter = "rule"  # for documents that are not lists of sentences
    config.debias = RANKS[argument.encoder]
    config.weighting = "kde"
    config.similarity = "margin"
    config.k = 4
    config.domain = "domain"  # the field that restricts candidates
    config.url_matching = False
    return config
