"""Scores of mined pairs: their histogram, and precision by threshold.

Precision is counted on gold pairs and, as if there were none, estimated from decoys: the same texts
searched again without the best candidate of each sentence, as if its translation were missing. How
many of them score above a threshold says how many wrong pairs do, once the share of wrong pairs is
known; that is estimated from the low scores, where hardly any pair is right (Storey 2002).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from xling_jax.align import mining
from xling_jax.align.histogram import ScoreHistogram, format_histogram, score_histogram
from xling_jax.eval.results import markdown_table, percent

# Of the decoys; below it, pairs are taken for wrong.
_LOW = 0.5


@dataclass(frozen=True)
class ThresholdScores:
    """The pairs that score at least a threshold.

    Attributes:
        threshold: the score.
        num_pairs: how many there are.
        precision: share of them that are gold pairs.
        recall: share of the gold pairs that is among them.
        estimate: of the precision, without gold pairs; None if there are no decoys.
    """

    threshold: float
    num_pairs: int
    precision: float
    recall: float
    estimate: float | None


@dataclass(frozen=True)
class ScoreTable:
    """Scores of the pairs of one text.

    Attributes:
        histogram: of all pairs.
        right: [bins] how many are gold pairs.
        rows: by threshold, ascending: the edges of the bins, and the valley if there is one.
    """

    histogram: ScoreHistogram
    right: np.ndarray
    rows: tuple[ThresholdScores, ...]

    @classmethod
    def measure(
        cls, pairs: mining.MinedPairs, is_right: np.ndarray, num_gold: int, decoys: np.ndarray
    ) -> ScoreTable:
        """Counts the pairs above each threshold.

        `num_gold` are the right pairs in all, found or not; `decoys` the scores of `decoy_pairs`.
        """
        histogram = score_histogram(pairs.scores)
        thresholds = {*histogram.edges[:-1].tolist()}
        thresholds |= set() if histogram.valley is None else {histogram.valley}
        rows = []
        for threshold in sorted(thresholds):
            above = pairs.scores >= threshold
            if num := int(above.sum()):
                num_right = int(is_right[above].sum())
                estimate = estimate_precision(pairs.scores, decoys, threshold)
                shares = (num_right / num, num_right / num_gold, estimate)
                rows.append(ThresholdScores(float(threshold), num, *shares))
        return cls(histogram, histogram.count(pairs.scores[is_right]), tuple(rows))

    @property
    def at_valley(self) -> ThresholdScores | None:
        """The row of the valley; None if there is none."""
        valley = self.histogram.valley
        return next((row for row in self.rows if row.threshold == valley), None)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "edges": self.histogram.edges.tolist(),
            "pairs": self.histogram.counts.tolist(),
            "right": self.right.tolist(),
            "valley": self.histogram.valley,
            "thresholds": [vars(row) for row in self.rows],
        }

    def to_text(self) -> str:
        """The histogram, right pairs as `#` and others as `-`, and a table by threshold."""
        lines = format_histogram(self.histogram, right=self.right)
        rows = []
        for row in self.rows:
            name = "**valley** " if row is self.at_valley else ""
            estimate = "" if row.estimate is None else percent(row.estimate)
            shares = (percent(row.precision), percent(row.recall), estimate)
            rows.append([f"{name}{row.threshold:.3f}", f"{row.num_pairs:,}", *shares])
        header = ["score at least", "pairs", "precision", "recall", "precision, estimated"]
        return "\n".join(["```text", *lines, "```", "", markdown_table(header, rows)])


def decoy_pairs(
    candidates: mining.Candidates, margin: str, retrieval: str
) -> mining.MinedPairs | None:
    """Mines without the best candidate of each sentence; None where one has no other.

    The candidates are one more of each row than the neighborhood has. Most pairs are wrong.
    """
    sides = (candidates.forward_cosines, candidates.forward)
    sides += (candidates.backward_cosines, candidates.backward)
    if min(side.shape[1] for side in sides) < 2:
        return None
    without = mining.Candidates(*(side[:, 1:] for side in sides))
    return mining.choose_pairs(without, margin=margin, retrieval=retrieval)


def estimate_precision(scores: np.ndarray, decoys: np.ndarray, threshold: float) -> float | None:
    """Estimates the share of right pairs, in [0, 1], among those that score at least a threshold.

    The decoys are scores of wrong pairs of the same texts; None if there are none.
    """
    if not len(decoys):
        return None
    low = np.quantile(decoys, _LOW)
    num_wrong = min((scores <= low).sum() / (decoys <= low).mean(), len(scores))
    wrong_above = num_wrong * (decoys >= threshold).mean()
    return float(np.clip(1 - wrong_above / (scores >= threshold).sum(), 0, 1))
