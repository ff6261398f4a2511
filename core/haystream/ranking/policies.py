"""Policies: how an edge's posterior becomes the score that items are ranked by.

A policy is one small function of the edges' posterior means and variances. To add one, write the function and
give it a line in `POLICIES` (docs/extending.md). It must be a function of its arguments alone: chance comes from
`draws`, which is the same for the same seed, step and edge, so that any order of events gives the same ranking.

Some scores move with every step even where the posterior does not. To score a million edges again for each of them
would cost a hundred times what the verdict costs, so on large graphs they move in turns (`lap`), or in jumps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from haystream.events import Policy
from haystream.memory.arrays import Floats


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
    lap: int = 1
    """A draw of chance lasts an edge for so many steps: see `lap_of`."""

    def in_turn(self) -> NDArray[np.bool_]:
        """Who draws anew at this step: everyone once a lap."""
        return np.asarray((self.key + np.uint64(self.step)) % np.uint64(self.lap) == 0)

    def turn(self) -> NDArray[np.uint64]:
        """The number of the step at which the edge's present draw began."""
        return np.uint64(self.step) - (self.key + np.uint64(self.step)) % np.uint64(self.lap)


Score = Callable[[Posteriors, Policy], Floats]


class Moves(Enum):
    """When scores change where the posterior does not."""

    NEVER = auto()
    IN_JUMPS = auto()
    """All of them, when `jump_of` the step changes."""
    IN_TURN = auto()
    """Those of the edges whose turn it is, at this step or the one before."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy, and when its scores change with t."""

    score: Score | None
    """Of edges: an item's is the mean of theirs. None: of item sets (`set_scores.own_score`)."""
    moves: Moves


DRAWN_AT_ONCE = 4096
"""Up to so many edges all draw anew at each step."""


def lap_of(edges: int) -> int:
    """For how many steps a draw lasts: 1 up to DRAWN_AT_ONCE edges, then doubling with them."""
    return 1 << max(0, (edges - 1).bit_length() - (DRAWN_AT_ONCE - 1).bit_length())


def jump_of(step: int, lap: int) -> int:
    """t as it enters a score: exactly where the lap is 1, else rounded down to 8 jumps an octave."""
    if lap == 1 or step < 16:
        return step
    octave = step.bit_length() - 4
    return step >> octave << octave


def greedy(posteriors: Posteriors, policy: Policy) -> Floats:
    """The posterior mean (section 2.1)."""
    return posteriors.mean


def epsilon_greedy(posteriors: Posteriors, policy: Policy) -> Floats:
    """Greedy, but with probability ε random edges come first, in random order (section 5.1.3).

    Those whose turn it is, that is, all of up to DRAWN_AT_ONCE edges: their scores are then above 1.
    """
    if draws(policy.seed, posteriors.step, np.zeros(1, np.uint64))[0] < policy.epsilon:
        drawn = 1.0 + draws(policy.seed, posteriors.step, posteriors.key)
        return np.where(posteriors.in_turn(), drawn, posteriors.mean)
    return posteriors.mean


def bayes_ucb(posteriors: Posteriors, policy: Policy) -> Floats:
    """The 1 - 1/t quantile of a normal with the posterior's moments; at t = 1 the median (appendix D).

    Of more than DRAWN_AT_ONCE edges t is rounded (`jump_of`): scores are then at most 0.04 sd too low.
    """
    step = jump_of(posteriors.step, posteriors.lap)
    level = 0.5 if step <= 1 else 1.0 - 1.0 / step
    return posteriors.mean + float(ndtri(level)) * np.sqrt(posteriors.variance)


def thompson(posteriors: Posteriors, policy: Policy) -> Floats:
    """A draw from a normal with the posterior's moments, renewed at each step, or of many edges each lap."""
    uniform = draws(policy.seed, posteriors.turn(), posteriors.key)
    return posteriors.mean + ndtri(uniform) * np.sqrt(posteriors.variance)


def look_ahead(posteriors: Posteriors, policy: Policy) -> Floats:
    """Expected finds over expected screenings of 'try one; go on with the rest only if it was relevant'.

    With R = min(left, horizon) and M⁺ = M + Var/M the mean after one relevant item (docs/policies.md: M⁺ =
    (MK + 1)/(K + 1) with K = M(1 − M)/Var − 1), M (1 + (R − 1) M⁺) / (1 + (R − 1) M).
    """
    mean = posteriors.mean
    rest = np.clip(posteriors.left, 1.0, policy.horizon) - 1.0
    return np.asarray((mean + rest * (mean * mean + posteriors.variance)) / (1.0 + rest * mean))


POLICIES: Mapping[str, Entry] = MappingProxyType(
    {
        "look-ahead-by-set": Entry(None, Moves.NEVER),
        "look-ahead": Entry(look_ahead, Moves.NEVER),
        "greedy": Entry(greedy, Moves.NEVER),
        "epsilon-greedy": Entry(epsilon_greedy, Moves.IN_TURN),
        "bayes-ucb": Entry(bayes_ucb, Moves.IN_JUMPS),
        "thompson": Entry(thompson, Moves.IN_TURN),
    }
)


def draws(seed: int, step: int | NDArray[np.uint64], key: NDArray[np.uint64]) -> Floats:
    """Uniform numbers in (0, 1), one per key: a hash (splitmix64) of seed, step and key."""
    with np.errstate(over="ignore"):
        state = _mix(_mix(np.uint64(seed & 0xFFFFFFFFFFFFFFFF) + np.asarray(step, np.uint64)) ^ key)
    return ((state >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mix(z: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    z = np.asarray(z) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))
