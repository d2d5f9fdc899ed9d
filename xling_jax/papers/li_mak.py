"""Li and Mak (2020): LASER_1, LASER_6, T-LASER, and the distance constraint (cLASER, cT-LASER)."""

from xling_jax.papers.tables import Key, Part, Published, Row, Run, Table

TITLE = "Li and Mak (2020), T-LASER and cT-LASER"

_FIVE = ("en", "de", "fr", "es", "it")
_MLP = {"classifiers": "mlp"}
_CUT = {"max-tokens": 750}

_SIZES = ("d_h", "d_z", "heads", "d_fc", "encoder layers", "decoder layers", "vocabulary")
_SIZES += ("parameters",)

LASER_1 = Run("laser:layers=1")
LASER_6 = Run("laser:layers=6")
_CLASER_1 = Run("claser:layers=1")
_CLASER_6 = Run("claser")
_T_LASER = Run("t_laser")
CT_LASER = Run("ct_laser")
# Fine-tuned on English labels as a whole; what runs below `paper` saw no translations either.
_MLM = Run("lightweight_multilingual:objective=mlm", {"encoder.pooling": "first"})
MBERT = Published("mbert", ("--from", "huggingface", "--pooling", "first"), _MLM)
FINE_TUNED = {"classifiers": "finetune", "train-languages": "en", "seeds": 1, "max-tokens": 128}
_LASER_5 = Published("laser", ("--from", "laser"))


def _mldoc(run: Run | Published, checkpoint: str = "dev", codes=_FIVE, **options) -> Part:
    return Part(run, "classification", "accuracy", codes, _MLP | options, checkpoint)


def _sizes(name: str, plain: Run, constrained: Run) -> Row:
    speeds = Part(plain, "speed", "WPS"), Part(constrained, "speed", "WPS_dist")
    return Row(name, (Part(plain, "size", options=dict.fromkeys(_SIZES, True)), *speeds))


def _selected(name: str, run: Run, **cut) -> list[Row]:
    chosen = [Row(f"{name}, {which}", (_mldoc(run, which, **cut),)) for which in ("dev", "best")]
    return [*chosen, Row(name, (Part(run, "speed", "WPS"),))]


def _with_weight(beta: float) -> Run:
    """cT-LASER with a weight of the constraint, and the published λ at every scale."""
    return CT_LASER.changed(
        objective__distance__weight=beta, objective__distance__negative_weight=0.5
    )


_BETAS = (0.25, 0.5, 1.0)
COST = "20 epochs of Europarl v7, 4 to 10 days each on one Titan RTX"
_DEV = (
    "By dev: the checkpoint of epochs 10 to 20 with the best mean across languages on MLDoc's dev "
    "text, tested once. LASER's MLP, mean of five seeds, selected on the dev text of the training "
    "language. T-LASER reads the first 750 tokens of a document, LASER 2,000, in the paper all."
)

TABLES = {
    "li-mak-1": Table(
        "Table 1: sizes and training speed",
        (
            _sizes("LASER_1", LASER_1, _CLASER_1),
            _sizes("LASER_6", LASER_6, _CLASER_6),
            _sizes("T-LASER", _T_LASER, CT_LASER),
        ),
        "Sizes are those of the published configs at every scale, parameters in the papers' "
        "convention. Speed: tokens per second of training at this scale, on this machine, of both "
        "sides (fairseq, with which the paper measures, counts the target's); WPS_dist with the "
        "constraint (cLASER_1, cLASER_6, cT-LASER). Only ratios compare.",
        plain=("WPS", "WPS_dist", *_SIZES),
    ),
    "li-mak-2": Table(
        "Table 2: MLDoc from English",
        (
            Row("mBERT", (Part(MBERT, "classification", languages=_FIVE, options=FINE_TUNED),)),
            Row("LASER_5_2019", (_mldoc(_LASER_5, "", documents="sentences-mean"),)),
            Row("T-LASER", (_mldoc(_T_LASER, **_CUT),)),
            Row("cT-LASER", (_mldoc(CT_LASER, **_CUT),)),
            Row("LASER_1", (_mldoc(LASER_1),), beside="LASER_2018"),
        ),
        f"{_DEV} LASER_5_2019 is the published encoder with 93 languages, "
        "from --encoders; its documents are means of their sentences, as in its own code. mBERT, "
        "from there too, is fine-tuned as a whole on the first 128 tokens, once, as BERT's authors "
        "do. MultiCCA is cited only. The paper swaps es and fr of LASER_2018 here; Table 3 is "
        "right.",
        matrix=True,
    ),
    "li-mak-3": Table(
        "Table 3: LASER on MLDoc, every pair of languages",
        (Row("LASER_1", (_mldoc(LASER_1),), beside="LASER_2018"),),
        f"{_DEV} LASER_2018 was not published; ours is LASER_1.",
        matrix=True,
    ),
    "li-mak-4": Table(
        "Table 4: MLDoc, all systems",
        (
            *_selected("LASER_1", LASER_1),
            Row("LASER_1, first 750 tokens, dev", (_mldoc(LASER_1, **_CUT),)),
            *_selected("LASER_6", LASER_6),
            *_selected("cLASER_6", _CLASER_6),
            *_selected("T-LASER", _T_LASER, **_CUT),
            *_selected("cT-LASER", CT_LASER, **_CUT),
        ),
        f"{_DEV} Best: of the best mean on the test text itself. LASER_2018 was not published.",
        means_only=True,
        plain=("epoch", "WPS"),
    ),
    "li-mak-5": Table(
        "Table 5: cT-LASER on MLDoc, every pair of languages",
        (Row("cT-LASER", (_mldoc(CT_LASER, **_CUT),)),),
        _DEV,
        matrix=True,
    ),
    "li-mak-6": Table(
        "Table 6: trained on English and Spanish only",
        tuple(
            Row(
                name,
                (_mldoc(Run(f"ct_laser_bilingual:objective={o}"), "", ("en", "es"), **_CUT),),
            )
            for name, o in (("T-LASER", "t_laser"), ("cT-LASER", "ct_laser"))
        ),
        "The tenth epoch, the last. The paper labels its second column de; es is meant.",
        matrix=True,
    ),
    "li-mak-beta": Table(
        "Section 3: β, the weight of the constraint",
        tuple(Row(f"β = {beta}", (_mldoc(_with_weight(beta), "half", **_CUT),)) for beta in _BETAS),
        "λ = β / 2. Chosen on MLDoc's dev text at the tenth of 20 epochs, or half way; the paper "
        "takes 0.25 and prints no scores.",
        means_only=True,
        means=tuple(Key("accuracy", "*", "*", mean) for mean in ("cross", "same")),
    ),
}
ABSENT = {"li-mak-figure-1": "a drawing of the model; docs/systems has ours"}
