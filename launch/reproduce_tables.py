"""The tables of the papers as rows of configs, for `launch/reproduce.py`."""

import re
from dataclasses import dataclass, field, replace
from typing import Any

SCALES = ("small", "claims", "base", "paper")


@dataclass(frozen=True)
class Row:
    """One system of a table.

    Attributes:
        name: as in the paper.
        config: file in configs/, with its argument.
        published: the paper's numbers, in the order of the table's columns.
        settings: config keys this row changes at any scale.
        small: config keys it changes at the small scale.
        claims: the same at the scale of the claims.
        mldoc: options of `xling evaluate classification` that differ from the table's.
    """

    name: str
    config: str
    published: tuple[float, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    small: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    mldoc: tuple[str, ...] = ()

    @property
    def directory(self) -> str:
        """Name of its workdir; identical training runs share one."""
        parts = [self.config, *(f"{key.split('.')[-1]}_{v}" for key, v in self.settings.items())]
        return re.sub(r"[^A-Za-z0-9+_]+", "-", "-".join(parts)).strip("-")

    def at(self, scale: str) -> dict[str, Any]:
        """What it changes at a scale."""
        return self.settings | {"small": self.small, "claims": self.claims}.get(scale, {})


@dataclass(frozen=True)
class Table:
    """A table of a paper.

    Attributes:
        title: includes the number.
        rows: its systems.
        published: names of the paper's columns.
        languages: the languages evaluated.
        small: settings of all rows at the small scale.
        claims: the same at the scale of the claims.
        corpora: training text at the small scale, names in `parallel/`.
        dev: retrieval sets at the small scale.
        mldoc: options of `xling evaluate classification`: the paper's classifier.
        chosen_on_mldoc: whether the paper chooses the checkpoint on MLDoc's dev set.
        scales: at which it can be produced.
        note: what the rows of the paper that are missing here are.
    """

    title: str
    rows: tuple[Row, ...]
    published: tuple[str, ...]
    languages: str
    small: dict[str, Any]
    claims: dict[str, Any]
    corpora: tuple[str, ...]
    dev: tuple[str, ...]
    mldoc: tuple[str, ...]
    chosen_on_mldoc: bool = False
    scales: tuple[str, ...] = SCALES
    note: str = ""

    def at(self, scale: str) -> dict[str, Any]:
        """What all rows change at a scale."""
        return {"small": self.small, "claims": self.claims}.get(scale, {})


def _updates(steps: int, parts: int) -> dict[str, int]:
    """A run of so many updates, evaluated and saved after each part."""
    every = steps // parts
    return {
        "train.total_steps": steps,
        "train.evaluate_every_steps": every,
        "train.checkpoint_every_steps": every,
    }


# The scale of the claims: 20 or 5 million padded tokens a side, an hour or two on two CPU cores.
CLAIMS_CORPORA = (
    *("europarl.*", "multi30k.*", "news.*", "tatoeba.de-*", "tatoeba.en-[defi]*", "tatoeba.es-*"),
    *("tatoeba.fr-*", "lohelp.en-de-fr-es-it*", "messages.en-de-fr-es-it", "games.en-de-fr-es-it"),
    "manuals.en-de-fr-es-it",
)
CLAIMS_DEV = ("europarl", "pud")  # evaluated in training
_CLAIMS = {
    "vocab.size": 4000,
    "data.bucket_lengths": (8, 12, 16, 22, 30, 40, 56, 80, 104),
    "cleaning.length_ratio_slack": 3,
    "train.keep_last": 12,
    "train.log_every_steps": 50,
}
_CLAIMS_TRANSFORMER = {
    "data.max_tokens": 4096,
    **{f"{side}.width": 128 for side in ("encoder", "decoder")},
    **{f"{side}.ffn_width": 512 for side in ("encoder", "decoder")},
    **{f"{side}.heads": 2 for side in ("encoder", "decoder")},
}
_CLAIMS_LSTM = {
    "data.max_tokens": 4096,
    "encoder.width": 128,
    "encoder.embedding_width": 64,
    "decoder.width": 256,
    "decoder.embedding_width": 64,
    "schedule.value": 2e-3,
}

_EIGHT = ("de-en", "de-es", "en-es", "es-en", "fr-en", "fr-es", "it-en", "it-es")
_FIVE = "en,de,fr,es,it"
_MIXED_CORPORA = CLAIMS_CORPORA[:7]
_DEV = ("europarl", "pud", "multi30k")

# 200,000 pairs per row, whatever the batch size.
_MAO_PAIRS = 200_000


def _mao_length(pairs: int, batch: int) -> dict[str, Any]:
    steps = pairs // batch
    return _updates(steps, 1) | {
        "schedule.warmup_steps": 200 * 128 // batch,
        "schedule.drop_steps": steps * 3 // 4,
    }


_MAO_MODEL = {
    "encoder.width": 128,
    "encoder.heads": 2,
    # With the published N(0, 1), a short run is spent shrinking the initial logits.
    "encoder.init_stddev": 0.05,
    "head.init_stddev": 0.05,
}
_MAO_SMALL = _MAO_MODEL | {
    "data.bucket_lengths": (8, 12, 16, 24),
    "vocab.size": 8000,
    "encoder.ffn_width": 256,
    "train.log_every_steps": 100,
}
# 1,700 updates of 128 pairs are about 5 million tokens a side.
_MAO_CLAIMS = _CLAIMS | _MAO_MODEL | {"encoder.ffn_width": 512}
_MAO_CORPORA = {
    "en-fr": ("tatoeba.en-fr", "multi30k.en-de-fr", "news.en-de-fr-es", "news.en-fr"),
    "en-es": ("tatoeba.en-es", "news.en-de-fr-es", "europarl.en-es"),
    "de-en": ("tatoeba.en-de", "multi30k.en-de-fr", "news.en-de-fr-es", "news.en-de"),
    "en-it": ("tatoeba.en-it", "europarl.en-it"),
}


def _mao_table(
    title: str,
    rows: dict[str, tuple[str, tuple[float, ...]]],
    pair: str = "en-fr",
    note: str = "",
    **batches: int,
) -> Table:
    """Rows: name -> (argument of configs/lightweight.py, published)."""
    made = []
    for name, (argument, published) in rows.items():
        batch = batches.get(name.split()[0], 128)
        argument = argument if pair == "en-fr" else f"pair={pair},{argument}"
        lengths = {
            scale: _mao_length(pairs, batch)
            for scale, pairs in (("small", _MAO_PAIRS), ("claims", 1700 * 128))
        }
        settings = {"data.batch_size": batch}
        made.append(Row(name, f"lightweight.py:{argument}", published, settings, **lengths))
    first, second = sorted(pair.split("-"), key=lambda code: code != "en")
    arrows = (f"{first}→{second}", f"{second}→{first}")
    return Table(
        f"Mao et al. (2021), {title}",
        tuple(made),
        tuple(f"{task} {arrow}" for task in ("XSR", "MLDoc") for arrow in arrows),
        f"{first},{second}",
        _MAO_SMALL,
        _MAO_CLAIMS,
        _MAO_CORPORA[pair],
        ("pud", "multi30k") if pair == "en-fr" else ("pud",),
        ("--classifiers", "linear", "--seeds", "5"),
        note=note,
    )


def _mao_tables() -> dict[str, Table]:
    objectives = {
        "MLM": "mlm",
        "SMLM": "smlm",
        "XTR": "xtr",
        "MLM + XTR": "mlm+xtr",
        "UGT": "ugt",
        "UGT + ALIGN": "ugt+align",
        "UGT + ALIGN + SIM": "all",
    }
    # Tables 5 to 7: XSR from and to English, MLDoc from and to English.
    depth = {
        "en-fr": {
            1: (89.4, 90.0, 81.7, 79.4),
            2: (90.2, 90.8, 85.1, 82.4),
            3: (90.9, 91.5, 84.2, 81.9),
            4: (91.4, 91.5, 84.2, 82.0),
            6: (91.2, 92.0, 83.0, 80.8),
        },
        "en-es": {
            1: (86.4, 87.7, 75.5, 74.9),
            2: (90.7, 91.2, 80.8, 79.2),
            3: (91.1, 92.0, 81.2, 78.1),
            4: (91.5, 92.2, 81.1, 78.7),
            6: (91.7, 91.9, 79.8, 78.3),
        },
    }
    tasks = {
        "en-fr": {
            "MLM": (19.6, 25.4, 78.5, 77.6),
            "SMLM": (85.0, 85.3, 75.0, 78.7),
            "XTR": (89.5, 90.8, 84.2, 81.2),
            "MLM + XTR": (84.1, 85.0, 82.2, 78.2),
            "UGT": (89.8, 90.6, 85.1, 82.4),
            "UGT + ALIGN": (89.9, 90.4, 84.1, 81.9),
            "UGT + ALIGN + SIM": (90.2, 90.8, 82.3, 80.3),
        },
        "en-es": {
            "MLM": (11.2, 28.5, 74.6, 75.9),
            "SMLM": (86.4, 87.1, 75.3, 74.0),
            "XTR": (90.3, 89.5, 79.9, 77.6),
            "MLM + XTR": (87.6, 88.9, 78.4, 76.7),
            "UGT": (89.4, 89.6, 80.8, 79.2),
            "UGT + ALIGN": (89.8, 90.9, 78.7, 77.9),
            "UGT + ALIGN + SIM": (90.7, 91.2, 77.6, 76.2),
        },
    }
    # Table 3 (MLDoc, UGT) and Table 4 (XSR, UGT + ALIGN + SIM).
    pairs = {
        "en-fr": ((85.1, 82.4), (90.2, 90.8)),
        "de-en": ((88.8, 80.8), (86.3, 86.9)),
        "en-es": ((80.8, 79.2), (90.7, 91.2)),
        "en-it": ((74.3, 79.9), (86.9, 87.6)),
    }
    unknown = float("nan")
    others = "the other rows are other systems; LASER and mBERT: `xling convert`"
    tables = {}
    for pair in pairs:
        mldoc, xsr = pairs[pair]
        rows = {
            "UGT (Table 3)": ("objective=ugt", (unknown, unknown, *mldoc)),
            "UGT + ALIGN + SIM (Table 4)": ("objective=all", (*xsr, unknown, unknown)),
        }
        tables[f"mao-3-{pair}"] = _mao_table(f"Tables 3 and 4, {pair}", rows, pair, others)
    for pair, suffix in (("en-fr", ""), ("en-es", "-es")):
        where = "" if pair == "en-fr" else f", {pair}"
        layers = {
            f"{n} layer{'s' * (n > 1)}": (
                "objective=all" if n == 2 else f"objective=all,layers={n}",
                published,
            )
            for n, published in depth[pair].items()
        }
        # The MLDoc columns of Table 5 are those of UGT alone at 2 layers.
        tables[f"mao-5{suffix}"] = _mao_table(f"Table 5, depth{where}", layers, pair)
        found = {
            name: (f"objective={objectives[name]}", published)
            for name, published in tasks[pair].items()
        }
        names = [*found]
        tables[f"mao-6{suffix}"] = _mao_table(
            f"Table 6, generative tasks{where}", {name: found[name] for name in names[:5]}, pair
        )
        tables[f"mao-7{suffix}"] = _mao_table(
            f"Table 7, contrastive tasks{where}", {name: found[name] for name in names[4:]}, pair
        )
    tables["mao-9"] = _mao_table(
        "Table 9, batch size in pairs",
        {
            "64 pairs": ("objective=all", (89.6, 90.3, 82.9, 82.6)),
            "128 pairs": ("objective=all", (90.2, 90.8, 84.1, 81.9)),
            "256 pairs": ("objective=all", (90.2, 90.7, 82.9, 81.1)),
        },
        **{"64": 64, "256": 256},
    )
    tables["mao-10"] = _mao_10()
    return tables


def _mao_10() -> Table:
    """Table 10, whose rows differ in their text: slices of ParaCrawl, so only at paper scale."""
    published = {
        "12.5 %": (90.8, 90.5, 82.5, 80.7),
        "25 %": (90.5, 91.2, 82.5, 80.3),
        "50 %": (90.2, 91.0, 83.0, 81.5),
        "100 %": (90.2, 90.8, 85.1, 82.4),
    }
    whole = _mao_table("Table 10, size of the corpus", {"x": ("objective=all", ())})
    # The first eighth, to the example: 1/8 of ParaCrawl v5 en-fr (51.3 million lines).
    slices = {"12.5 %": ":train[:6412500]", "25 %": ":train[:25%]", "50 %": ":train[:50%]"}
    rows = tuple(
        Row(
            name,
            "lightweight.py:objective=all",
            numbers,
            {"data.corpora": (f"tfds:para_crawl_v5/en-fr{slices[name]}",)}
            if name in slices
            else {"data.batch_size": 128},
        )
        for name, numbers in published.items()
    )
    return replace(whole, rows=rows, scales=("base", "paper"))


_LI_MAK_SMALL = {
    "data.pairs": _EIGHT,
    "data.bucket_lengths": (8, 12, 16, 22, 30, 40, 56, 80),
    "data.max_tokens": 1024,
    "vocab.size": 8000,
    "cleaning.length_ratio_slack": 3,
    "train.total_steps": 1000,
    "train.evaluate_every_steps": 1000,
    "train.checkpoint_every_steps": 500,
}
_LI_MAK_CLAIMS = _CLAIMS | {"data.pairs": _EIGHT}
_LSTM = {"schedule.value": 2e-3}
# With the published weights, short runs collapse; see lab/experiments.
_CONSTRAINT = {"objective.distance.weight": 1.0, "objective.distance.negative_weight": 8.0}
_TRANSFORMER_20M = _CLAIMS_TRANSFORMER | _updates(6800, 5)
_LSTM_5M = _CLAIMS_LSTM | _updates(1700, 2)
_BILINGUAL_5M = _CLAIMS_TRANSFORMER | _updates(1700, 4)
# The papers read a document as one sequence: T-LASER its first 750 tokens, LASER all of it.
_LI_MAK_MLDOC = ("--classifiers", "mlp")
_CUT = ("--max-tokens", "750")
_YU = {
    "data.both_directions": True,
    "data.max_tokens": 640,
    "encoder.embedding_width": 128,
    "decoder.embedding_width": 128,
} | _LSTM
_YU_5M = _LSTM_5M | {"data.both_directions": True}
_WEAK = {"objective.similarity.weight": 0.1}
# The paper's rule, terms of equal size at the first update: 8.38 nats and 0.0298.
_EQUAL_TERMS = {"objective.similarity.weight": 282.0}

_LI_MAK = {
    "languages": _FIVE,
    "small": _LI_MAK_SMALL,
    "claims": _LI_MAK_CLAIMS,
    "corpora": _MIXED_CORPORA,
    "dev": _DEV,
    "mldoc": _LI_MAK_MLDOC,
}
_EN_ES = {"data.pairs": ("en-es", "es-en")}

TABLES = {
    **_mao_tables(),
    "li-mak-4": Table(
        "Li and Mak (2020), Table 4, by dev (Table 5 is the matrix of cT-LASER)",
        (
            Row("LASER_1", "laser.py:layers=1", (88.5, 70.5), small=_LSTM, claims=_LSTM_5M),
            Row("LASER_6", "laser.py:layers=6", (87.8, 70.1), small=_LSTM, claims=_LSTM_5M),
            Row("cLASER_6", "claser.py", (87.8, 72.6), {}, _LSTM | _CONSTRAINT, _LSTM_5M),
            Row("T-LASER", "t_laser.py", (88.6, 73.5), {}, {}, _TRANSFORMER_20M, _CUT),
            Row("cT-LASER", "ct_laser.py", (89.2, 75.2), {}, _CONSTRAINT, _TRANSFORMER_20M, _CUT),
        ),
        ("MLDoc same", "MLDoc cross"),
        chosen_on_mldoc=True,
        note="LASER_2018: its model was not published",
        **_LI_MAK,
    ),
    "li-mak-6": Table(
        "Li and Mak (2020), Table 6, two languages, epoch 10",
        (
            Row(
                "T-LASER",
                "ct_laser_bilingual.py:objective=t_laser",
                (89.4, 51.7),
                claims=_BILINGUAL_5M,
                mldoc=_CUT,
            ),
            Row(
                "cT-LASER",
                "ct_laser_bilingual.py",
                (90.0, 67.9),
                {},
                _CONSTRAINT,
                _BILINGUAL_5M,
                _CUT,
            ),
        ),
        ("MLDoc same", "MLDoc cross"),
        **_LI_MAK
        | {
            "languages": "en,es",
            "small": _LI_MAK_SMALL | _EN_ES,
            "claims": _CLAIMS | _EN_ES,
            "dev": ("europarl", "pud"),
        },
    ),
    "yu-2": Table(
        "Yu, Li and Oguz (2018), Tables 2 and 4",
        (
            Row(
                "without the loss",
                "similarity_loss.py:loss=none",
                (88.9, 72.7),
                small=_YU,
                claims=_YU_5M,
            ),
            Row(
                "weight regularization",
                "similarity_loss.py:loss=encoder_l2",
                (91.0, float("nan")),
                small=_YU,
                claims=_YU_5M,
            ),
            Row(
                "similarity loss",
                "similarity_loss.py",
                (91.6, 74.6),
                small=_YU | _WEAK,
                claims=_YU_5M | _EQUAL_TERMS,
            ),
        ),
        ("Europarl P@1", "MLDoc all"),
        note="MLDoc of the paper has Russian too, which is not in Europarl; leave-one-out and "
        "targeted transfer (Tables 4 and 6) are --protocols of `xling evaluate classification`",
        **_LI_MAK | {"mldoc": ("--classifiers", "logreg", "--documents", "sentences-mean")},
    ),
}

# What is not a training config of ours.
ELSEWHERE = {
    "Li and Mak (2020), Table 1": "parameters: `xling train --config NAME --dry-run`; words per "
    "second: the log of training",
    "Li and Mak (2020), Table 2": "T-LASER is a row of li-mak-4 (trained on English); the other "
    "rows are other systems",
    "Li and Mak (2020), Table 3": "LASER_2018, whose model was not published",
    "Mao et al. (2021), Table 8": "another system: `xling convert`",
    "Yu, Li and Oguz (2018), Table 1": "`xling evaluate probing` with the files of SentEval, on "
    "yu-2's model with --config.encoder.pooling=max or self_attention",
    "Yu, Li and Oguz (2018), Table 5": "`xling evaluate classification --documents "
    "sentences-mean|sentences-max|windows-mean|windows-max` on yu-2's model",
    "Gong et al. (2021), Tables 1 to 8": "no training; configs/lawdr_wmt16.py and lawdr_wmt19.py "
    "have the data and the commands",
}
