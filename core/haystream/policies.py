"""Policies: how an edge's posterior becomes the score that items are ranked by.

A policy is one small function of the edges' posterior means and variances. To add one, write the function and
give it a line in `POLICIES` (docs/extending.md). It must be a function of its arguments alone: chance comes from
`draws`, which is the same for the same seed, step and edge, so that any order of events gives the same ranking.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from haystream.events import Policy

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Posteriors:
    """What a policy may look at, every array of shape (edges,)."""

    mean: Floats
    """E[P | Y]."""
    variance: Floats
    """Var[P | Y]."""
    key: NDArray[np.uint64]
    """A stable hash of the edge."""
    left: Floats
    """The unscreened items on the edge; one that lies on k edges counts 1/k on each."""
    step: int
    """t: the number of the screening that is being chosen, from 1."""


Score = Callable[[Posteriors, Policy], Floats]


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy, and whether its scores change with t even where the posterior does not."""

    score: Score
    moves_with_step: bool


def greedy(posteriors: Posteriors, policy: Policy) -> Floats:
    """The posterior mean (section 2.1)."""
    return posteriors.mean


def epsilon_greedy(posteriors: Posteriors, policy: Policy) -> Floats:
    """Greedy, but with probability ε a ranking in random order: a random edge first (section 5.1.3)."""
    if draws(policy.seed, posteriors.step, np.zeros(1, np.uint64))[0] < policy.epsilon:
        return draws(policy.seed, posteriors.step, posteriors.key)
    return posteriors.mean


def bayes_ucb(posteriors: Posteriors, policy: Policy) -> Floats:
    """The 1 - 1/t quantile of a normal with the posterior's moments; at t = 1 the median (appendix D)."""
    level = 0.5 if posteriors.step <= 1 else 1.0 - 1.0 / posteriors.step
    return posteriors.mean + float(ndtri(level)) * np.sqrt(posteriors.variance)


def thompson(posteriors: Posteriors, policy: Policy) -> Floats:
    """A draw from a normal with the posterior's moments."""
    uniform = draws(policy.seed, posteriors.step, posteriors.key)
    return posteriors.mean + ndtri(uniform) * np.sqrt(posteriors.variance)


def look_ahead(posteriors: Posteriors, policy: Policy) -> Floats:
    """Expected finds over expected screenings of 'try one; go on with the rest only if it was relevant'.

    With R = min(left, horizon) and M⁺ = M + Var/M the mean after one relevant item (RATES.md: M⁺ =
    (MK + 1)/(K + 1) with K = M(1 − M)/Var − 1), M (1 + (R − 1) M⁺) / (1 + (R − 1) M).
    """
    mean = posteriors.mean
    rest = np.clip(posteriors.left, 1.0, policy.horizon) - 1.0
    return np.asarray((mean + rest * (mean * mean + posteriors.variance)) / (1.0 + rest * mean))


POLICIES: Mapping[str, Entry] = MappingProxyType(
    {
        "look-ahead": Entry(look_ahead, moves_with_step=False),
        "greedy": Entry(greedy, moves_with_step=False),
        "epsilon-greedy": Entry(epsilon_greedy, moves_with_step=True),
        "bayes-ucb": Entry(bayes_ucb, moves_with_step=True),
        "thompson": Entry(thompson, moves_with_step=True),
    }
)


def draws(seed: int, step: int, key: NDArray[np.uint64]) -> Floats:
    """Uniform numbers in (0, 1), one per key: a hash (splitmix64) of seed, step and key."""
    with np.errstate(over="ignore"):
        state = _mix(_mix(np.uint64(seed & 0xFFFFFFFFFFFFFFFF) + np.uint64(step)) ^ key)
    return ((state >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mix(z: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    z = np.asarray(z) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))
