"""The common mean: what is learned of it, and what scores are made with (docs/local-engine.md, docs/scores.md)."""

import math
from typing import NamedTuple

STEPS_PER_OCTAVE = 2
"""Scores are made with the odds of m, and with 1/κ + v_M, rounded to so many steps an octave from what they are
before data: at most 19 % off, with which a search finds as much. Finer steps make all edges be scored again more
often."""

MOST_ROUNDED = math.exp2(0.5 / STEPS_PER_OCTAVE) - 1.0
"""By so much of m (1 − m) rounding moves m at most."""


class Common(NamedTuple):
    """What all participants and edges of a query share, under a model with an unknown common mean M.

    A model without one has the defaults, with `base_rate` its prior mean.
    """

    base_rate: float
    """m, the adjusted expectation of M, kept inside (0, 1)."""
    mean_shift: float = 0.0
    """Δ, the adjusted less the prior expectation of M."""
    variance: float = 0.0
    """v_M, the adjusted variance of M in units of `scale`."""
    scale: float = 1.0
    """σ² = m (1 − m), which all variances of the model carry."""


def learned(prior_mean: float, weight: float, shift: float, variance: float) -> Common:
    """What all share, from the adjusted shift Δ of M and its variance v_M in units of σ².

    m is kept between what it would be if all that was screened were irrelevant, or all relevant: an estimate beyond
    (offsets of a watch-list that the data contradict) would be no probability, and σ² no variance.
    """
    if weight == 0.0:
        return Common(base_rate=prior_mean)
    learnt = 1.0 - weight * variance
    base = prior_mean + min(max(shift, -prior_mean * learnt), (1.0 - prior_mean) * learnt)
    return Common(base_rate=base, mean_shift=shift, variance=variance, scale=base * (1.0 - base))


def rounded(common: Common, prior_mean: float, weight: float, own: float) -> Common:
    """The same to STEPS_PER_OCTAVE an octave; without data, exactly what it is.

    `own`: 1/κ, by which an edge's rate varies about that of its ends. v_M matters beside it: where that sum is 19 %
    off, a score's variance is by no more, however much of v_M its data let through, and v_M alone would take step
    after step with no end.
    """
    if weight == 0.0:
        return common
    prior_odds, most = prior_mean / (1.0 - prior_mean), 1.0 / weight
    odds = prior_odds * _step(common.base_rate / (1.0 - common.base_rate) / prior_odds)
    base = odds / (1.0 + odds)
    return Common(
        base_rate=base,
        mean_shift=base - prior_mean,
        variance=max(most - (1.0 - _step((common.variance + own) / (most + own))) * (most + own), 0.0),
        scale=base * (1.0 - base),
    )


def is_beyond(exact: Common, near: Common) -> bool:
    """Whether Δ is farther from that of the `rounded` common mean than rounding takes it: m is kept where it may be
    (`learned`), and Δ, by which means move, is not."""
    return abs(exact.mean_shift - near.mean_shift) > MOST_ROUNDED * near.scale


def _step(ratio: float) -> float:
    return float(2.0 ** (round(STEPS_PER_OCTAVE * math.log2(ratio)) / STEPS_PER_OCTAVE))
