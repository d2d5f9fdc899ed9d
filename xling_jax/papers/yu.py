"""Yu, Li and Oguz (2018): the similarity loss."""

from xling_jax.papers.tables import Part, Row, Run, Table

TITLE = "Yu, Li and Oguz (2018), the similarity loss"

_SIX = ("de", "en", "es", "fr", "it", "pt")
_TEXT = ("europarl*", "tatoeba*", "bible*", "lohelp.*")  # Spanish and Portuguese, too

_NMT = Run("similarity_loss:loss=none", text=_TEXT)
_L2 = Run("similarity_loss:loss=encoder_l2", text=_TEXT)
_SIMILARITY = Run("similarity_loss", text=_TEXT)
_BOTH = _SIMILARITY.changed(objective__encoder_l2__weight=1e-4)


def _mldoc(run=_SIMILARITY, by="sentences-mean", measure="accuracy", checkpoint="", **more) -> Part:
    options = {"classifiers": "logreg", "documents": by, **more}
    return Part(run, "classification", measure, _SIX, options, checkpoint)


COST = "1.5 days each on 4 GPUs, in the paper"
_LAST = (
    "The last checkpoint; α = 1 (0.1 at `small`), the paper's is unknown; word vectors start at "
    "random, in the paper as those of multiCCA. "
)
_LOGREG = (
    f"{_LAST}Logistic regression, its strength selected on the dev text of the training language; "
    "a document is the mean of its sentences. "
)
_RUSSIAN = (
    "The paper's means include Russian, which its training languages and ours lack: means are over "
    "the cells that both have."
)

TABLES = {
    "yu-1": Table(
        "Table 1: SentEval, English",
        tuple(
            Row(name, (Part(run, "probing"),))
            for name, run in (
                ("meanpool (label unreadable)", _SIMILARITY),
                ("maxpool", _SIMILARITY.changed(encoder__pooling="max")),
                ("self-attention", _SIMILARITY.changed(encoder__pooling="self_attention")),
            )
        ),
        f"{_LAST}One hidden layer of 128 with SentEval's folds and early stopping; SST is SST-2. "
        "InferSent, cited only, is printed in the order MR CR SUBJ MPQA SST TREC.",
        matrix=True,
    ),
    "yu-2": Table(
        "Table 2: Europarl, is the nearest sentence the translation?",
        tuple(
            Row(name, (Part(run, "retrieval", languages=_SIX),))
            for name, run in (
                ("NMT only", _NMT),
                ("encoder weight regularization", _L2),
                ("similarity loss", _SIMILARITY),
                ("similarity loss and encoder weight regularization", _BOTH),
            )
        ),
        f"{_LAST}The nearest by cosine; the diagonal searches a language in itself and finds "
        "copies; means include it. Of weight regularization the paper prints part, but all means.",
        matrix=True,
    ),
    "yu-3": Table(
        "Table 3: sentences retrieved for an English one, the right one left out",
        (Row("similarity loss", (Part(_SIMILARITY, "neighbors", languages=("en", "it", "fr")),)),),
        "The nearest three by cosine; the paper shows two of three. Another query where the set "
        "lacks the paper's.",
        plain=("query", "en", "it", "fr"),
    ),
    "yu-4": Table(
        "Table 4: MLDoc, zero-shot, and leave-one-out",
        tuple(
            Row(
                name,
                (_mldoc(run), _mldoc(run, measure="leave-one-out", protocols="leave-one-out")),
            )
            for name, run in (("NMT only", _NMT), ("similarity loss", _SIMILARITY))
        ),
        f"{_LOGREG}Leave-one-out: labels in all languages but the tested one, selected on their "
        "dev text (the paper: on English); the paper's English cell is its in-language one, which "
        f"raises its mean. {_RUSSIAN}",
        matrix=True,
    ),
    "yu-5": Table(
        "Table 5: how a document becomes a vector",
        tuple(
            Row(name, (_mldoc(by=f"{unit}-{pool}"),))
            for unit, word in (("sentences", "Punctuation"), ("windows", "Fixed window"))
            for pool, name in (("mean", f"{word}, meanpool"), ("max", f"{word}, maxpool"))
        ),
        "Sentences, or windows of 128 words every 64; as in Table 4. The paper prints means over "
        "36 cells with Russian, ours lack it.",
        means_only=True,
    ),
    "yu-6": Table(
        "Table 6: selection on the dev text of the source or of the target language",
        (
            Row("zero-shot transfer", (_mldoc(),)),
            Row("targeted transfer", (_mldoc(checkpoint="oracle"),)),
        ),
        "As in Table 4; targeted: the strength is selected on the dev text of the tested language. "
        "The paper prints means over 36 cells with Russian, ours lack it.",
        means_only=True,
    ),
    "yu-figure-1": Table(
        "Figure 1: t-SNE of the German test documents, by class",
        (Row("similarity loss", (Part(_SIMILARITY, "classes", languages=("de",)),)),),
        "A picture without numbers in the paper.",
    ),
}
ABSENT: dict[str, str] = {}
