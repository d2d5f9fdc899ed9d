"""From scores to precision: how many of the pairs above a threshold are translations.

A margin alone does not say: the sentences of one text resemble each other more than those of
another, and one text has a translation for every sentence, another for one in a thousand. So scores
are first measured against the runners-up of the same two texts, candidates that are wrong almost
always. A curve, fitted once to pairs whose truth is known, then says how much likelier such a score
is for a translation than for a wrong best candidate. What share of the pairs are translations
follows from their own scores, as a shift of the prior (Saerens, Latinne and Decaestecker 2002).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from xling_jax.align.margin import MARGINS
from xling_jax.options import checks_numbers
from xling_jax.registry import check_choice

if TYPE_CHECKING:
    from xling_jax.align.mining import MinedPairs

# Shares of translations that the two lines of a curve are fitted at.
_FITTED_SHARES = (0.5, 0.02)
# Of the estimated share of translations; likelihoods stay finite.
_MIN_SHARE = 1e-9
_MAX_LOG_ODDS = 50.0
# Choice: of wrong best candidates in eight kinds of text, 4 to 21 % score more than 3 spreads above
# the runners-up, by ratio. If more of the pairs that count as wrong do, translations are among
# them: where the excess was below this share of all pairs, the estimated share of translations was
# off by 0.13 at most, otherwise by 0.27 to 0.86. A cosine does not show that; of "absolute", an
# estimate of next to none may mean anything.
_HIGH, _SHARE_HIGH, _MAX_EXCESS, _NEXT_TO_NONE = 3.0, 0.2, 0.07, 0.01
_DATA = {"name": str, "sha256": str, "num_rows": int, "languages": list}


@dataclasses.dataclass(frozen=True)
class ScoreCurve:
    """The log likelihood ratio of a score: the lower of two lines.

    Choice: a single logistic regression, all of whose pairs weigh the same, promised more than it
    kept where translations are rare: wrong pairs with high scores are more frequent than a line
    through the bulk of them predicts. Isotonic regression and more lines followed their own text
    and failed on others.

    Attributes:
        lines: (slope, intercept) of each, slope > 0, for scores in spreads above the mean of the
            runners-up: log p(score | translation) / p(score | wrong).
    """

    lines: tuple[tuple[float, float], ...]

    @classmethod
    def fit(cls, scores: np.ndarray, is_translation: np.ndarray) -> ScoreCurve:
        """Fits a logistic regression for equal shares of both kinds, and one for few translations.

        To [pairs] finite scores, and bool with both values. ValueError if translations do not score
        higher.
        """
        from sklearn.linear_model import LogisticRegression

        num_right, num_wrong = (np.count_nonzero(is_translation == kind) for kind in (True, False))
        lines = []
        for share in _FITTED_SHARES:
            weights = np.where(is_translation, share / num_right, (1 - share) / num_wrong)
            model = LogisticRegression(C=1e6, max_iter=1000)
            model.fit(scores[:, None], is_translation, sample_weight=weights * len(scores))
            slope, intercept = float(model.coef_[0, 0]), float(model.intercept_[0])
            if not slope > 0:
                raise ValueError(
                    f"translations score no higher than wrong pairs (slope {slope:.3g}): the "
                    "encoder does not tell them apart"
                )
            lines.append((slope, intercept - math.log(share / (1 - share))))
        return cls(tuple(lines))

    def log_odds(self, scores: np.ndarray) -> np.ndarray:
        """The log likelihood ratio of each score, [pairs] float64; minus infinity stays that."""
        scores = np.asarray(scores, np.float64)
        lowest = np.min([slope * scores + intercept for slope, intercept in self.lines], axis=0)
        return np.where(np.isfinite(scores), np.clip(lowest, -_MAX_LOG_ODDS, _MAX_LOG_ODDS), scores)

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """How likely each pair is a translation, [pairs] float64, given the scores of all of a run.

        Minus infinity is never a translation.
        """
        odds = np.exp(self.log_odds(scores))
        share = _share(odds)
        return share * odds / (share * odds + 1 - share)


def _share(odds: np.ndarray) -> float:
    """The likeliest share of translations among pairs with these likelihood ratios, in (0, 1).

    Where Saerens et al.'s expectation maximization arrives: the root of the derivative of the log
    likelihood, the sum of log(share · odds + 1 - share), which is concave.
    """
    from scipy.optimize import brentq

    def derivative(share: float) -> float:
        return float(np.mean((odds - 1) / (1 + share * (odds - 1))))

    if not len(odds) or derivative(_MIN_SHARE) <= 0:
        return _MIN_SHARE
    if derivative(1 - _MIN_SHARE) >= 0:
        return 1 - _MIN_SHARE
    return brentq(derivative, _MIN_SHARE, 1 - _MIN_SHARE, xtol=1e-9)


@dataclasses.dataclass(frozen=True)
class Threshold:
    """Precision and recall of mined pairs above a score, measured on known translations.

    `precision` is the share of translations among pairs above it, and `recall` the share of these
    translations that is above it, where half of the sentences have a translation;
    `precision_at_tenth` is for a tenth of the sentences.
    """

    score: float
    precision: float
    recall: float
    precision_at_tenth: float


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The meaning of an encoder's scores, measured once on translations."""

    k: int  # size of the neighborhoods
    languages: tuple[str, ...]
    data: tuple[Mapping[str, Any], ...]  # `name`, `sha256`, `num_rows`, `languages` of each set
    curves: Mapping[str, ScoreCurve]  # by margin
    thresholds: Mapping[str, tuple[Threshold, ...]]  # by margin: what pairs above a score were

    def check_applies(self, margin: str, k: int) -> None:
        """Raises ValueError unless scores of this margin and neighborhood were calibrated."""
        check_choice("margin", margin, self.curves)
        if k != self.k:
            raise ValueError(
                f"k={k}: the model was calibrated with k={self.k}; use that, and texts of at least "
                "as many sentences"
            )

    def probabilities(self, pairs: MinedPairs) -> np.ndarray:
        """How likely each of the pairs is a translation, given all of their scores.

        [pairs] float64, of all that `xling_jax.mine` finds in two texts without a threshold, or a
        part of them chosen at random, by vectors that were not cut to a smaller width. ValueError
        if they were mined with another margin or k, or the texts are too small.
        """
        runners_up = pairs.runners_up
        if not len(pairs):
            return np.empty(0)
        if runners_up is None:
            raise ValueError(
                f"pairs: {len(pairs)} of texts in which no sentence has a second candidate; "
                "precision cannot be estimated from them"
            )
        self.check_applies(runners_up.margin, runners_up.k)
        curve = self.curves[runners_up.margin]
        return curve.probabilities(runners_up.standardize(pairs.scores))

    def describes(self, pairs: MinedPairs) -> bool:
        """Whether the estimate holds: pairs that count as wrong score as wrong pairs do.

        It does not where translations score hardly more than their runners-up, as in manuals and
        lists of messages, whose sentences resemble one another. Pairs and errors: see
        `probabilities`.
        """
        wrong = 1 - self.probabilities(pairs)
        if not len(pairs):
            return True
        if pairs.runners_up.margin == "absolute" and np.mean(wrong) > 1 - _NEXT_TO_NONE:
            return False
        is_high = pairs.runners_up.standardize(pairs.scores) > _HIGH
        return float(np.mean(wrong * (is_high - _SHARE_HIGH))) <= _MAX_EXCESS

    def precisions(self, pairs: MinedPairs) -> np.ndarray:
        """The expected precision of the first 1, 2, … pairs, [pairs] float64, best first.

        Pairs and errors: see `probabilities`.
        """
        return np.cumsum(self.probabilities(pairs)) / np.arange(1, len(pairs) + 1)

    @checks_numbers
    def count_for(self, pairs: MinedPairs, precision: float) -> int:
        """The most pairs, best first, that are expected to have a precision between 0 and 1.

        Pairs with equal scores are kept or dropped together. Pairs and errors: see `probabilities`.
        """
        is_end = np.append(pairs.scores[1:] < pairs.scores[:-1], True)[: len(pairs)]
        enough = np.flatnonzero((self.precisions(pairs) >= precision) & is_end)
        return int(enough[-1]) + 1 if len(enough) else 0

    def to_json(self) -> dict[str, Any]:
        """As plain values, which `from_json` reads."""
        content = json.loads(json.dumps(dataclasses.asdict(self)))  # tuples are lists
        return content | {"curves": {k: curve["lines"] for k, curve in content["curves"].items()}}

    @classmethod
    def from_json(cls, value: Any, where: str) -> Calibration:
        """Reads what `to_json` returned, from a file that anybody may have changed.

        ValueError if it is something else; `where` names it.
        """
        try:
            curves = {
                margin: ScoreCurve(tuple(tuple(map(_number, line)) for line in lines))
                for margin, lines in value["curves"].items()
            }
            thresholds = {
                margin: tuple(Threshold(**{k: _number(v) for k, v in row.items()}) for row in rows)
                for margin, rows in value["thresholds"].items()
            }
            k, languages = int(_number(value["k"])), tuple(map(str, value["languages"]))
            data = tuple(
                {name: kind(one[name]) for name, kind in _DATA.items()} for one in value["data"]
            )
            found = cls(k, languages, data, curves, thresholds)
            slopes = [slope for curve in curves.values() for slope, _ in curve.lines]
            if not slopes or min(slopes) <= 0 or k < 2 or found.to_json() != value:
                raise ValueError("a value is missing, left over or of another kind")
            if not curves.keys() == thresholds.keys() <= {*MARGINS}:
                raise ValueError(f"margins must be some of {', '.join(MARGINS)}")
            return found
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            rule = "must be a calibration; calibrate it again"
            raise ValueError(f"{where} {rule}: {f'{error!r:.80}'}") from error


def _number(value: Any) -> int | float:
    """A finite number that float32 can hold."""
    if type(value) not in (int, float) or not abs(value) < 1e30:
        raise ValueError(f"{value!r:.40} must be a number")
    return value
