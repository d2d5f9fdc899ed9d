"""The cut of `xling mine`: which pairs are kept, by score, expected precision or count."""

import argparse
import dataclasses
import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from xling_jax.align.bitext import Line
from xling_jax.align.mining import MinedPairs
from xling_jax.align.precision import Calibration
from xling_jax.align.valley import score_valley
from xling_jax.cli.options import flag
from xling_jax.encode.encoder import Encoder
from xling_jax.files.lines import BrokenLine
from xling_jax.options import OptionError, option

_logger = logging.getLogger(__name__)

# Of fewer pairs, it is not said what other cuts would keep.
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
        if self.threshold != self.threshold:  # no score is more than NaN
            raise OptionError(f"{given[0]}: must be a number or {_AUTO}")
        if self.precision is None:
            return
        if not 0 < self.precision < 1:
            raise OptionError(f"{given[0]}: must be between 0 and 1, such as 0.95")
        if not model:
            raise OptionError(
                f"{given[0]}: needs --model, a calibrated one; or use --top or --threshold"
            )
        if retrieval != "max":
            raise OptionError(f"{given[0]}: needs --retrieval max, for which models are calibrated")

    def calibration(
        self, encoder: Encoder | None, args: argparse.Namespace, margin: str, k: int, retrieval: str
    ) -> Calibration | None:
        """What the scores mean, as probabilities; None if that is unknown and not needed."""
        calibration = encoder.calibration if encoder else None
        problem = f"not calibrated; run xling calibrate --model {args.model} --data FILE"
        if calibration and retrieval == "max":
            try:
                calibration.check_applies(margin, k)
                return calibration
            except ValueError as error:
                problem = str(error)
        elif args.truncate_dim:
            problem = "not calibrated for fewer dimensions; leave out --truncate-dim"
        if self.precision is not None:
            problem += ", or use --top or --threshold"
            raise OptionError(f"--precision {self.precision:g}: {args.model}: {problem}")
        return None

    def apply(
        self,
        pairs: MinedPairs,
        texts: Sequence[Sequence[Line]],
        problem_of: Callable[[str, str], str | None],
        calibration: Calibration | None,
        *,
        unusable: np.ndarray | None,
        unit: str,
    ) -> MinedPairs:
        """Keeps pairs, in their order, and logs what is kept and why.

        Precision is estimated from the scores of all pairs; --top counts those that pass the
        filters, which say why a pair of texts is dropped. `unusable` are the given pairs with a
        blank or broken side, [pairs] bool: without a cut they stay. None if pairs were mined.
        """
        order = np.argsort(-pairs.scores, kind="stable")
        order = order[pairs.scores[order] > -np.inf]
        ranked = pairs.take(order)
        # Only where it is needed: it imports much of SciPy.
        valley = functools.cache(lambda: score_valley(ranked.scores))
        precisions = self._precisions(ranked, calibration, valley)
        if len(ranked) >= _SHOWN_FROM:
            for cut in other_cuts(ranked, valley(), precisions, unit):
                _logger.info("%s", cut)
        count, threshold = len(ranked), self.threshold
        if threshold == _AUTO:
            threshold = valley()
            if threshold is None:
                _logger.warning("--threshold auto: the scores have no valley; all pairs are kept")
        if threshold is not None:
            count = np.count_nonzero(ranked.scores > threshold)
        elif self.precision is not None:
            count = calibration.count_for(ranked, self.precision)
        candidates, dropped = order[:count], Counter()
        if unusable is not None:
            if num_below := np.count_nonzero(np.isneginf(pairs.scores) & ~unusable):
                dropped["cosine"] = num_below
            if not self.given():
                candidates = np.append(candidates, np.flatnonzero(unusable))
        kept = np.zeros(len(pairs), bool)
        num_kept = 0
        for place, (_, i, j) in enumerate(pairs.take(candidates)):
            if num_kept == self.top:
                count = place
                break
            sides = ("" if isinstance(t, BrokenLine) else t for t in (texts[0][i], texts[1][j]))
            if problem := problem_of(*sides):
                dropped[problem] += 1
            else:
                kept[candidates[place]] = True
                num_kept += 1
        said = f"kept {num_kept:,} of {len(pairs):,} pairs"
        if threshold is None and 0 < count < len(ranked):
            threshold = round(float(ranked.scores[count - 1 : count + 1].mean()), 4)
        if threshold is not None:
            said += f" with {unit} > {round(threshold, 6):g}"
        if count and num_kept and precisions is not None:
            blank = 0 if unusable is None else np.count_nonzero(kept & unusable)
            precision = precisions[count - 1] * (num_kept - blank) / num_kept
            said += f", expected precision {precision:.2f}"
        if dropped:
            said += "; dropped: " + ", ".join(f"{n} {why}" for why, n in sorted(dropped.items()))
        if self.given() or precisions is not None or dropped:
            _logger.info("%s", said)
        return pairs.take(kept)

    def _precisions(
        self,
        ranked: MinedPairs,
        calibration: Calibration | None,
        valley: Callable[[], float | None],
    ) -> np.ndarray | None:
        """The expected precision down to each pair; None, and a message, if the estimate fails."""
        runners_up = ranked.runners_up
        # Texts of a few lines have fewer candidates than the calibration; only --precision needs
        # them.
        is_alike = calibration and runners_up is not None and runners_up.k == calibration.k
        if not is_alike and self.precision is None:
            return None
        if calibration.describes(ranked):
            return calibration.precisions(ranked)
        instead = "their scores have one mode, as those of texts that are all translations"
        if (score := valley()) is not None:
            instead = f"--threshold auto takes {score:.4f}, the valley of the scores"
        _logger.log(
            logging.INFO if self.precision is None else logging.WARNING,
            "cannot estimate precision, as sentences of these texts resemble one another; %s",
            instead,
        )
        return None


def other_cuts(
    ranked: MinedPairs, valley: float | None, precisions: np.ndarray | None, unit: str
) -> Iterator[str]:
    """What the valley and some precisions would keep, a line each."""
    if valley is not None:
        count = np.count_nonzero(ranked.scores > valley)
        yield f"--threshold auto: {count:,} pairs, {unit} > {valley:.4f}"
    for precision in _SHOWN_PRECISIONS if precisions is not None else ():
        if len(enough := np.flatnonzero(precisions >= precision)):
            last = int(enough[-1])
            score = f"{unit} ≥ {ranked.scores[last]:.4f}"
            yield f"expected precision {precision:.2f}: {last + 1:,} pairs, {score}"
