"""Gong et al. (2021): LAWDR, document alignment with published encoders."""

from collections.abc import Iterable
from typing import Any

from xling_jax.papers.li_mak import LASER_1
from xling_jax.papers.tables import Part, Published, Row, Run, Table

TITLE = "Gong et al. (2021), LAWDR"

_POOLINGS = {"ST": "first", "MP": "mean"}
# Encoder -> components that identify the language (Section 10.1), and whether it has a stand-in.
_ENCODERS = {"BERT": ("mbert", 64), "XLM": ("xlm", 32), "XLM-R": ("xlmr", 256)}
_SINGLE = tuple(f"{name}, {pool}" for name in _ENCODERS for pool in _POOLINGS)
_MULTI = tuple(f"{system}, several sentences" for system in _SINGLE)


def _encoder(name: str, pooling: str) -> tuple[Published, int]:
    """An encoder and its rank. Where mBERT is missing, one that saw no translations either."""
    directory, rank = _ENCODERS[name]
    stand_in = Run("lightweight_multilingual:objective=mlm", {"encoder.pooling": pooling})
    options = ("--from", "huggingface", "--pooling", pooling)
    return Published(directory, options, stand_in if name == "BERT" else None), rank


# Data -> column -> options of `xling evaluate alignment`.
_COLUMNS = {"wmt16": {"no URL": {}, "with URL": {"url-matching": True}}, "wmt19": {"recall": {}}}


def _parts(encoder: Run | Published, task: str, options: dict[str, Any]) -> tuple[Part, ...]:
    columns = _COLUMNS[task.partition("-")[0]].items()
    return tuple(Part(encoder, task, name, options=options | more) for name, more in columns)


def _systems(task: str, systems: Iterable[str]) -> tuple[Row, ...]:
    rows = []
    for system in systems:
        name, pool, *multi = system.split(", ")
        encoder, rank = _encoder(name, _POOLINGS[pool])
        options = {"debias": rank} | ({"document-mode": "packed"} if multi else {})
        rows.append(Row(system, _parts(encoder, task, options)))
    return tuple(rows)


def _lasers(task: str) -> tuple[Row, ...]:
    options = {"baselines": True, "cells": "biased-mean-margin", "debias": 0}
    names = {"first512": "first 512 tokens", "document": "all tokens"}
    return tuple(
        Row(f"LASER, {name}", _parts(LASER_1, f"{task}-{baseline}", options))
        for baseline, name in names.items()
    )


def _language(pool: str) -> tuple[Row, ...]:
    found = {name: _encoder(name, _POOLINGS[pool]) for name in _ENCODERS}
    return tuple(
        Row(name, (Part(encoder, "language", options={"debias": rank}),))
        for name, (encoder, rank) in found.items()
    )


COST = "LASER_1; six encodings of 1.2 million pages (WMT16) or 86,853 documents (WMT19)"
_RECALL = (
    "Recall of the gold pairs, one to one, k = 4; nothing is selected. Columns: biased or debiased "
    "vectors, mean or density-weighted sum, cosine or margin. LASER is our LASER_1, which reads "
    "2,000 tokens at most; of an encoder that stands in for BERT, at most a quarter of the "
    "dimensions are removed. "
)
_WMT19 = (
    "Over all gold pairs of the pairs of languages (micro); results.json has macro means. Ours, "
    "trained on five of the 15 languages, are measured on these."
)
_LANGUAGE = (
    "A linear SVM tells English from French sentences of one site (eu2007.de in the paper), "
    "documents split 8:2: vectors v, the part removed v_lang, and the rest v_sem. Components are "
    "those of the training documents. Chance is about 50."
)


def _recall(title: str, task: str, systems: Iterable[str], more: str = "") -> Table:
    """A table of recall, with LASER as the baseline of whole documents."""
    about = _RECALL + (_WMT19 if task == "wmt19" else "")
    return Table(title, (*_systems(task, systems), *_lasers(task)), about + more)


def _picture(number: int, pool: str) -> Table:
    return Table(
        f"Figure {number}: PCA of English and French sentences before and after debiasing, {pool}",
        _language(pool)[:1],
        "Pictures without numbers in the paper; the accuracies are those of the tables of "
        "language identification.",
    )


TABLES = {
    "gong-1": Table("Table 1: language identification, MP", _language("MP"), _LANGUAGE),
    "gong-2": Table(
        "Table 2: documents",
        (
            Row("WMT-16, en", (Part(LASER_1, "documents-wmt16", languages=("en",)),)),
            Row("WMT-16, fr", (Part(LASER_1, "documents-wmt16", languages=("fr",)),)),
            Row("WMT-19, 15 languages", (Part(LASER_1, "documents-wmt19"),)),
        ),
        "Average length in words; the paper does not say of what.",
        plain=("documents", "average length"),
    ),
    "gong-3": _recall("Table 3: WMT16, one sentence at a time", "wmt16", _SINGLE),
    "gong-4": _recall("Table 4: WMT19, one sentence at a time", "wmt19", _SINGLE),
    "gong-5": Table(
        "Table 5: one and several sentences at a time",
        _systems("wmt19", (*_SINGLE[1::2], *_MULTI[1::2])),
        _RECALL + _WMT19,
    ),
    "gong-6": Table("Table 6: language identification, ST", _language("ST"), _LANGUAGE),
    "gong-7": _recall(
        "Table 7: WMT16, all systems",
        "wmt16",
        (*_SINGLE, *_MULTI),
        "Gomes and Lopes (2016) is cited only.",
    ),
    "gong-8": _recall("Table 8: WMT19, all systems", "wmt19", (*_SINGLE, *_MULTI)),
    "gong-figure-1": _picture(1, "MP"),
    "gong-figure-2": _picture(2, "ST"),
}
ABSENT: dict[str, str] = {}
