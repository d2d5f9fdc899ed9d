"""The names of metrics in words, as titles of charts and headings of tables."""

from typing import NamedTuple

from xling_jax.eval.tasks import TASKS

# Of the metrics `train/NAME` and `validation/NAME`; others are their names without underscores.
_TRAINING = {
    "loss": "loss of the whole objective",
    "gradient_norm": "norm of the gradient",
    "loss_scale": "loss scale of float16",
    "skipped_updates": "updates skipped, as float16 overflowed",
    "distance_loss": "loss of the distance constraint",
    "positive_distance": "distance of translations, relative to the scale",
    "scale": "scale of the distances",
    "margin_violations": "negatives inside the margin",
    "alignment_accuracy": "translations found in the batch",
    "teacher_cosine": "cosine with the teacher",
    "token_kl": "divergence of the token distributions",
    "token_cross_entropy": "cross-entropy of the tokens",
    "mfu": "share of peak FLOPs",
    "padding_efficiency": "share of tokens that are not padding",
}
_TRAINING_SHARES = ("margin_violations", "alignment_accuracy", "mfu", "padding_efficiency")
# Ends of the names of metrics that are about speed.
_SPEED = ("per_second", "mfu", "padding_efficiency")

_MEASURED = {
    "error": "error",
    "xsim": "xSIM",
    "xsim_plus_plus": "xSIM++",
    "accuracy": "embeddings",
    "chance": "commonest label",
}
_CURVES = {"same": "accuracy within a language", "cross": "accuracy across languages"}

LOWER = "lower is better"


class CurveTitle(NamedTuple):
    """What a curve shows: its group on the page, its title, and whether to show percentages."""

    group: str
    title: str
    is_share: bool


def curve_title(name: str, all_shares: bool) -> CurveTitle:
    """The title of a logged metric, such as `train/mfu` or `europarl_dev/p_at_1`.

    `all_shares` says whether all its values are in [0, 1].
    """
    data, _, metric = name.rpartition("/")
    if data.partition("/")[0] in ("train", "validation"):
        pair = data.removeprefix("train").removeprefix("validation").strip("/")
        words = _TRAINING.get(metric, metric.replace("_", " "))
        parts = ["held-out pairs" if data.startswith("validation") else "", pair, words]
        title = ": ".join(filter(None, parts))
        is_share = all_shares and metric in _TRAINING_SHARES
        group = "Speed" if metric.endswith(_SPEED) else "Losses"
    else:
        title = f"{data} {_CURVES.get(metric, metric_title(metric))}".strip()
        is_share, group = all_shares, "Development sets"
    title = title[:1].upper() + title[1:] if group != "Development sets" else title
    unit = ", %" if is_share else ""
    return CurveTitle(group, title + unit + (f" ({LOWER})" if is_error(metric) else ""), is_share)


def metric_title(metric: str) -> str:
    """The title of what a task measures, such as P@1."""
    return _MEASURED.get(metric, metric.replace("p_at_", "P@").replace("_", " "))


def is_error(metric: str) -> bool:
    """Whether a metric of a task is an error."""
    return any(metric in TASKS[task].lower_is_better for task in TASKS)
