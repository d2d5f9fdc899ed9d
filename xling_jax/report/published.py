"""Scores that papers and repositories print, to stand beside measured ones.

Every row names its table. Most were measured on data of their own: rows are comparable with
others of the same data, and for the rest give the size of things.
"""

from dataclasses import dataclass

__all__ = ["PUBLISHED", "PublishedRow"]

_LI_MAK = "Li and Mak (2020)"
_MAO = "Mao et al. (2021)"
_YU = "Yu et al. (2018)"
_GONG = "Gong et al. (2021)"
_LASER = "LASER repository"

_MLDOC = "MLDoc, 5 languages"
_MLDOC_ENGLISH = "MLDoc, de es fr it"
_XSR = "Europarl, 2,000 in 200k, de es fr it"


@dataclass(frozen=True)
class PublishedRow:
    """One system in one table.

    Attributes:
        system: what was measured, as its source calls it.
        data: on what.
        scores: column to percentage; columns as in the report's tables.
        source: publication and table.
    """

    system: str
    data: str
    scores: dict[str, float]
    source: str


def _mldoc(system: str, same: float, cross: float, every: float, source: str) -> PublishedRow:
    return PublishedRow(system, _MLDOC, {"same": same, "cross": cross, "all": every}, source)


def _english(system: str, mean: float, source: str) -> PublishedRow:
    return PublishedRow(system, _MLDOC_ENGLISH, {"en ↔ others": mean}, source)


def _xsr(system: str, mean: float, source: str) -> PublishedRow:
    return PublishedRow(system, _XSR, {"P@1": mean}, source)


def _bucc(system: str, pair: str, f1: float, source: str) -> PublishedRow:
    return PublishedRow(system, f"BUCC {pair}, train", {"F1": f1}, source)


def _alignment(system: str, wmt16: float, wmt19: float | None, source: str) -> PublishedRow:
    scores = {"WMT16 recall": wmt16} | ({} if wmt19 is None else {"WMT19 recall": wmt19})
    return PublishedRow(system, "documents without their URLs", scores, source)


# Task of `xling evaluate` to rows. Epochs of Li and Mak are those chosen on dev.
PUBLISHED: dict[str, tuple[PublishedRow, ...]] = {
    "classification": (
        _mldoc("LASER_2018", 88.3, 68.0, 72.0, f"{_LI_MAK}, Table 4"),
        _mldoc("LASER_1", 88.5, 70.5, 74.1, f"{_LI_MAK}, Table 4"),
        _mldoc("LASER_6", 87.8, 70.1, 73.7, f"{_LI_MAK}, Table 4"),
        _mldoc("cLASER_6", 87.8, 72.6, 75.6, f"{_LI_MAK}, Table 4"),
        _mldoc("T-LASER", 88.6, 73.5, 76.5, f"{_LI_MAK}, Table 4"),
        _mldoc("cT-LASER", 89.2, 75.2, 78.0, f"{_LI_MAK}, Table 4"),
        # Means of the printed matrix.
        _mldoc("LASER, 93 languages", 89.78, 77.92, 80.29, f"{_LASER}, tasks/mldoc"),
        PublishedRow("Yu et al., plain", "MLDoc, 6 languages", {"all": 72.7}, f"{_YU}, Table 4"),
        PublishedRow(
            "Yu et al., similarity loss", "MLDoc, 6 languages", {"all": 74.6}, f"{_YU}, Table 4"
        ),
        _english("MultiCCA + CNN", 68.0, f"{_MAO}, Table 3"),
        _english("Bi-Sent2Vec", 77.8, f"{_MAO}, Table 3"),
        _english("LASER", 77.3, f"{_MAO}, Table 3"),
        _english("lightweight (UGT)", 81.4, f"{_MAO}, Table 3"),
        _english("Reimers and Gurevych (2020)", 73.9, f"{_MAO}, Table 8"),
    ),
    "retrieval": (
        _xsr("Bi-Vec", 77.0, f"{_MAO}, Table 4"),
        _xsr("TransGram", 78.2, f"{_MAO}, Table 4"),
        _xsr("Bi-Sent2Vec", 87.3, f"{_MAO}, Table 4"),
        _xsr("lightweight (UGT+ALIGN+SIM)", 88.8, f"{_MAO}, Table 4"),
        _xsr("Reimers and Gurevych (2020)", 91.8, f"{_MAO}, Table 8"),
        _xsr("LASER", 94.8, f"{_MAO}, Table 4"),
        *(
            PublishedRow(
                system, "Europarl 5k, 6 languages, own one included", {"P@1": p}, f"{_YU}, Table 2"
            )
            for system, p in (
                ("Yu et al., plain", 88.9),
                ("Yu et al., weight regularization", 91.0),
                ("Yu et al., similarity loss", 91.6),
            )
        ),
    ),
    "mining": (
        _bucc("LASER, 93 languages", "fr-en", 92.41, f"{_LASER}, tasks/bucc"),
        _bucc("LASER, 93 languages", "de-en", 95.42, f"{_LASER}, tasks/bucc"),
        _bucc("LASER, 93 languages", "ru-en", 92.29, f"{_LASER}, tasks/bucc"),
        _bucc("LASER, 93 languages", "zh-en", 91.65, f"{_LASER}, tasks/bucc"),
        _bucc("LASER on Europarl", "fr-en", 91.50, "raymondhs/fairseq-laser"),
        _bucc("LASER on Europarl", "de-en", 94.84, "raymondhs/fairseq-laser"),
    ),
    "alignment": (
        _alignment("LASER, first 512 tokens", 62.8, 68.0, f"{_GONG}, results of LASER"),
        _alignment("LAWDR, mBERT", 86.6, 79.5, f"{_GONG}, single sentences, MP"),
        _alignment("LAWDR, XLM", 88.8, 91.0, f"{_GONG}, single sentences, MP"),
        _alignment("LAWDR, XLM-R", 61.3, 47.6, f"{_GONG}, single sentences, MP"),
        _alignment("best system before", 85.8, None, f"{_GONG}, results"),
    ),
    "probing": (
        PublishedRow(
            "Yu et al., similarity loss, max",
            "SentEval, 6 tasks",
            {"mean": 83.56},
            f"{_YU}, Table 1",
        ),
        PublishedRow(
            "Yu et al., similarity loss, self-attention",
            "SentEval, 6 tasks",
            {"mean": 85.28},
            f"{_YU}, Table 1",
        ),
    ),
}
