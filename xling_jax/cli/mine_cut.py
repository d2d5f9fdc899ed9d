"""The cut of `xling mine`: which pairs are kept, by score, expected precision or count."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from xling_jax.align.filters import Filters
from xling_jax.align.histogram import ScoreHistogram, format_histogram, score_histogram
from xling_jax.align.mining import MinedPairs
from xling_jax.cli.options import flag
from xling_jax.files.lines import BrokenLine
from xling_jax.options import OptionError, option

if TYPE_CHECKING:
    from xling_jax.align.bitext import Line
    from xling_jax.align.precision import Calibration
    from xling_jax.encode.encoder import Encoder

_logger = logging.getLogger(__name__)

# A cut that keeps a smaller share of the pairs is rarely meant.
_FEW = 0.01
# Fewer scores have no shape to show.
_SHOWN_FROM = 100
_AUTO = "auto"
_SHOWN_PRECISIONS = (0.99, 0.95, 0.9, 0.8, 0.5)


def _threshold(text: str) -> float | str:
    try:
        return text if text == _AUTO else float(text)
    except ValueError:
        raise ValueError(f"must be a number or {_AUTO}; got {text!r}") from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cut:
    """The cut as options; by default all pairs are kept."""

    threshold: float | str | None = option(
        None,
        "keep pairs that score more than this; auto: than the valley of the scores",
        type=_threshold,
        metavar="SCORE",
    )
    precision: float | None = option(
        None, "keep the most pairs with this expected share of translations, such as 0.95"
    )
    top: int | None = option(None, "keep this many pairs, the best", positive=True, metavar="N")

    def given(self) -> list[str]:
        """Arguments that were given, such as "--top 100"."""
        values = dataclasses.asdict(self).items()
        shown = lambda value: value if isinstance(value, str) else f"{value:g}"
        return [f"{flag(name)} {shown(value)}" for name, value in values if value is not None]

    def check(self, retrieval: str, model: str | None) -> None:
        """Raises `OptionError` if the arguments contradict each other, or others."""
        given = self.given()
        if len(given) > 1:
            raise OptionError(f"{' and '.join(given)}: give only one of them")
        if self.precision is None:
            return
        if not 0 < self.precision < 1:
            raise OptionError(f"{given[0]}: must be between 0 and 1, such as 0.95")
        if not model:
            raise OptionError(
                f"{given[0]}: needs --model, a calibrated one; or use --top or --threshold"
            )
        if retrieval != "max":
            raise OptionError(
                f"{given[0]}: needs --retrieval max, with which models are calibrated"
            )

    def calibration(
        self,
        encoder: Encoder | None,
        margin: str,
        k: int,
        retrieval: str,
        model: str | None,
        truncate_dim: int | None = None,
    ) -> Calibration | None:
        """Returns what the scores mean, as probabilities; None if that is unknown.

        `model` and `truncate_dim` are what the encoder was loaded from, for errors.

        Raises:
            OptionError: if it is needed and unknown.
        """
        calibration = encoder.calibration if encoder else None
        if calibration and retrieval == "max":
            try:
                calibration.check_applies(margin, k)
                return calibration
            except ValueError as error:
                problem = str(error)
        elif truncate_dim:
            problem = (
                f"not calibrated for {truncate_dim} dimensions; write a model of these, "
                f"xling_jax.load({model!r}, truncate_dim={truncate_dim}).save(DIR), and run "
                "xling calibrate --model DIR --data FILE"
            )
        else:
            problem = f"not calibrated; run xling calibrate --model {model} --data FILE"
        if self.precision is not None:
            problem += ", or use --top or --threshold"
            raise OptionError(f"--precision {self.precision:g}: {model}: {problem}")
        return None

    def apply(
        self,
        pairs: MinedPairs,
        filters: Filters,
        calibration: Calibration | None,
        source: Sequence[Line],
        target: Sequence[Line],
        *,
        unusable: np.ndarray | None,
        unit: str,
    ) -> MinedPairs:
        """Keeps pairs, in their order, and logs what is kept and why.

        Precision is estimated from the scores of all pairs; --top counts those that pass the
        filters. `unusable` are the given pairs with a blank or broken side, [pairs] bool; the texts
        of given pairs are filtered here. None if the pairs were mined.
        """
        order = np.argsort(-pairs.scores, kind="stable")
        ranked = pairs.take(order[pairs.scores[order] > -np.inf])
        precisions, runners_up = None, ranked.runners_up
        # Texts of a few lines have fewer candidates than the calibration; only --precision needs
        # them.
        is_alike = calibration and runners_up is not None and runners_up.k == calibration.k
        histogram = score_histogram(ranked.scores)
        if is_alike or self.precision is not None:
            if calibration.describes(ranked):
                precisions = calibration.precisions(ranked)
            else:
                self._log_unknown(histogram.valley)
        _log_scores(ranked, histogram, precisions, unit)
        given = unusable is not None
        problem_of = filters.of_given_pairs() if given else filters.pair_problem
        count = len(ranked)
        threshold = histogram.valley if self.threshold == _AUTO else self.threshold
        if threshold is not None:
            count = np.count_nonzero(ranked.scores > threshold)
        elif self.threshold == _AUTO:
            _logger.warning("--threshold auto: the scores have no valley; all pairs are kept")
        elif self.precision is not None:
            count = calibration.count_for(ranked, self.precision)
        passing, dropped = _passing(ranked.take(slice(count)), self.top, problem_of, source, target)
        if self.top is not None:
            count = len(passing)
        if given and (num_below := np.count_nonzero(np.isneginf(pairs.scores) & ~unusable)):
            dropped["cosine"] = num_below
        cuts = self.given()
        # Without a cut, given pairs that have no score stay, but for those that filters drop.
        kept = unusable.copy() if given and not cuts else np.zeros(len(pairs), bool)
        unscored = np.flatnonzero(kept)
        kept[unscored], also_dropped = _passing(
            pairs.take(unscored), None, problem_of, source, target
        )
        dropped += also_dropped
        kept[order[np.flatnonzero(passing)]] = True
        if cuts or precisions is not None or dropped:
            self._log(
                ranked, count, int(kept.sum()), len(pairs), precisions, dropped, unit, threshold
            )
        if count < _FEW * len(ranked) and self.top is None:
            _logger.warning(
                "%s keeps next to nothing, %s of %s pairs; relax it, or use --top N",
                *(cuts[0], f"{count:,}", f"{len(ranked):,}"),
            )
        return pairs.take(kept)

    def _log_unknown(self, valley: float | None) -> None:
        """Says that there is no estimate of the precision, and what to take in its place."""
        instead = (
            f"--threshold auto takes {valley:.4f}, the valley of the scores"
            if valley is not None
            else "their scores have one mode, as those of texts that are all translations"
        )
        _logger.log(
            logging.INFO if self.precision is None else logging.WARNING,
            "cannot estimate precision, as sentences of these texts resemble one another; %s",
            instead,
        )

    def _log(
        self,
        ranked: MinedPairs,
        count: int,
        num_kept: int,
        num_pairs: int,
        precisions: np.ndarray | None,
        dropped: Counter[str],
        unit: str,
        score: float | None,
    ) -> None:
        text = f"kept {num_kept:,} of {num_pairs:,} pairs"
        if score is None and 0 < count < len(ranked):
            score = round(float(ranked.scores[count - 1 : count + 1].mean()), 4)
        if score is not None:
            text += f" with {unit} > {round(score, 6):g}"
        if count and precisions is not None:
            text += f", expected precision {precisions[count - 1]:.2f}"
        if dropped:
            text += "; dropped: " + ", ".join(f"{n} {why}" for why, n in sorted(dropped.items()))
        _logger.info("%s", text)


def _passing(
    pairs: MinedPairs,
    enough: int | None,
    problem_of: Callable[[str, str], str | None],
    source: Sequence[Line],
    target: Sequence[Line],
) -> tuple[np.ndarray, Counter[str]]:
    """Filters the first pairs until enough pass; returns which do, bool, and counts of reasons."""
    passing, dropped, num_passing = np.ones(len(pairs), bool), Counter(), 0
    for index, (_, i, j) in enumerate(pairs):
        if num_passing == enough:
            return passing[:index], dropped
        texts = ("" if isinstance(t, BrokenLine) else t for t in (source[i], target[j]))
        if problem := problem_of(*texts):
            passing[index] = False
            dropped[problem] += 1
        else:
            num_passing += 1
    return passing, dropped


def _log_scores(
    ranked: MinedPairs, histogram: ScoreHistogram, precisions: np.ndarray | None, unit: str
) -> None:
    """Logs the shape of the scores, and what thresholds would keep."""
    if len(ranked) < _SHOWN_FROM:
        return
    _logger.info("%ss of the %s pairs:", unit, f"{len(ranked):,}")
    for line in format_histogram(histogram):
        _logger.info("  %s", line)
    for precision in _SHOWN_PRECISIONS if precisions is not None else ():
        if len(enough := np.flatnonzero(precisions >= precision)):
            last = int(enough[-1])
            _logger.info(
                "  expected precision %.2f: %s pairs, %s ≥ %.4f",
                *(precision, f"{last + 1:,}", unit, ranked.scores[last]),
            )
