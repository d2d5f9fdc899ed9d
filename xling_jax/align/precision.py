"""From scores to precision: how many of the pairs above a threshold are translations.

A logistic curve, fitted once to pairs whose truth is known, says how much likelier a score is for a
translation than for another pair. What share of new pairs are translations follows from their own
scores, by expectation maximization for a shifted prior (Saerens, Latinne and Decaestecker 2002):
one text has a translation for every sentence, another for one in a thousand.
"""

from __future__ import annotations

import dataclasses

import numpy as np

_MAX_ROUNDS = 1000
_TOLERANCE = 1e-7


@dataclasses.dataclass(frozen=True)
class ScoreCurve:
    """The log likelihood ratio of a score, slope · score + intercept.

    Attributes:
        slope, intercept: of log p(score | translation) / p(score | not).
    """

    slope: float
    intercept: float

    @classmethod
    def fit(cls, scores: np.ndarray, is_translation: np.ndarray) -> ScoreCurve:
        """Fits the curve to pairs of known truth, with both kinds weighing the same.

        Args:
            scores: [pairs] finite.
            is_translation: [pairs] bool, both values present.

        Raises:
            ValueError: if all pairs are of one kind.
        """
        from sklearn.linear_model import LogisticRegression

        if is_translation.all() or not is_translation.any():
            raise ValueError(
                f"{len(scores)} pairs, of which {int(is_translation.sum())} are translations: a "
                "curve needs pairs of both kinds"
            )
        # Scores of good pairs differ in the second decimal: without scaling nothing is learned.
        center, scale = scores.mean(), scores.std()
        model = LogisticRegression(C=1e4, class_weight="balanced", max_iter=1000)
        model.fit(((scores - center) / scale)[:, None], is_translation)
        slope = float(model.coef_[0, 0] / scale)
        return cls(slope, float(model.intercept_[0] - slope * center))

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """How likely each of the pairs is a translation, given all of their scores.

        Args:
            scores: [pairs], those of one run of mining; minus infinity is never a translation.

        Returns:
            [pairs] float64.
        """
        odds = np.exp(np.clip(self.slope * scores.astype(np.float64) + self.intercept, -500, 500))
        odds[~np.isfinite(scores)] = 0
        share = 0.5
        for _ in range(_MAX_ROUNDS if len(odds) else 0):
            found = share * odds / (share * odds + 1 - share)
            before, share = share, float(np.clip(found.mean(), 1e-9, 1 - 1e-9))
            if abs(share - before) < _TOLERANCE:
                break
        return share * odds / (share * odds + 1 - share)

    def precisions(self, scores: np.ndarray) -> np.ndarray:
        """The share of translations that is expected among the first 1, 2, … pairs.

        Args:
            scores: [pairs], best first.
        """
        return np.cumsum(self.probabilities(scores)) / np.arange(1, len(scores) + 1)

    def count_for(self, scores: np.ndarray, precision: float) -> int:
        """The most pairs, best first, that are expected to have a precision.

        Args:
            scores: [pairs], best first.
            precision: from 0 to 1.
        """
        enough = np.flatnonzero(self.precisions(scores) >= precision)
        return int(enough[-1]) + 1 if len(enough) else 0
