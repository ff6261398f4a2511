"""A linear bandit's Gaussian model, on indicators of who takes part."""

from collections.abc import Sequence

import numpy as np

from haystream_service.study.models.base import Build, Floats, Model, Options
from haystream_service.study.network import Network


class LinearBandit:
    """P_uv = w₀ + w_u + w_v (+ w_uv), an outcome is P plus Gaussian noise; all weights have Gaussian priors.

    Bayesian linear regression, as a linear Thompson or UCB agent does it (bayesianbandits' `NormalRegressor`),
    exact, but over the distinct sets of edges screened, S of them, instead of over weights:

        mean = μ + K A (ȳ − μ),   A = (K_SS + diag(noise/n))⁻¹,   variance = diag(k − K A Kᵀ)

    A verdict changes A by rank one and costs S² + edges. Means are cut to [0, 1] when they are read.
    """

    def __init__(
        self, network: Network, *, mean: float, bias: float, participant: float, pair: float, noise: float
    ) -> None:
        """`mean` is E[w₀]; the others are variances: of w₀, of each w_u, of each w_uv, of the noise."""
        self._tail, self._head = network.tail, network.head
        self._people = len(network.participants)
        self._start, self._bias, self._participant, self._pair, self._noise = mean, bias, participant, pair, noise
        self._mean = np.full(network.edges, mean)
        self._variance = np.full(network.edges, bias + 2.0 * participant + pair)
        self._place: dict[tuple[int, ...], int] = {}
        """Where a screened set stands in `_counts`, `_sums` and `_inverse`."""
        self._counts: list[int] = []
        self._sums: list[int] = []
        self._inverse = np.empty((0, 0))
        self._member, self._of = np.empty(0, np.int64), np.empty(0, np.int64)
        """The edges of the screened sets, and the place of each one's set."""

    def observe(self, edges: Sequence[int], relevant: bool) -> None:
        """A rank-one update. An item of k edges shows the mean of their rates."""
        place = self._place.setdefault(tuple(edges), len(self._place))
        if place == len(self._counts):
            direction, gain = self._enter(edges)
        else:
            n = self._counts[place]
            change = self._noise / (n + 1) - self._noise / n
            direction = self._inverse[:, place].copy()
            gain = -change / (1.0 + change * direction[place])
            self._inverse += np.outer(gain * direction, direction)
        self._counts[place] += 1
        self._sums[place] += relevant
        self._variance -= gain * self._spread(direction) ** 2
        deviation = np.array(self._sums) / np.array(self._counts) - self._start
        self._mean = self._start + self._spread(self._inverse @ deviation)

    def posteriors(self) -> tuple[Floats, Floats]:
        """Mean, cut, and variance: at most M(1 − M), which no rate's can exceed, whatever a Gaussian says."""
        mean = np.clip(self._mean, 0.0, 1.0)
        return mean, np.clip(self._variance, 0.0, mean * (1.0 - mean))

    def _enter(self, edges: Sequence[int]) -> tuple[Floats, float]:
        """Let a new set into A, by its block inverse; what A gains is gain × direction directionᵀ."""
        size = len(self._counts)
        self._member = np.concatenate([self._member, edges])
        self._of = np.concatenate([self._of, np.full(len(edges), size)])
        self._counts.append(0)
        self._sums.append(0)
        of_edge = self._spread(np.eye(size + 1)[size])
        shares = 1.0 / np.bincount(self._of)
        column = np.bincount(self._of, of_edge[self._member]) * shares
        solved = self._inverse @ column[:size]
        gain = 1.0 / (column[size] + self._noise - column[:size] @ solved)
        direction = np.append(-solved, 1.0)
        self._inverse = np.pad(self._inverse, (0, 1)) + gain * np.outer(direction, direction)
        return direction, float(gain)

    def _spread(self, weights: Floats) -> Floats:
        """K times weights of the screened sets: by way of bias, participants and pairs. Shape (edges,)."""
        of_member = (weights / np.bincount(self._of))[self._of]
        edges, people = len(self._tail), self._people
        on_pair = np.bincount(self._member, of_member, edges)
        at_person = np.bincount(self._tail, on_pair, people) + np.bincount(self._head, on_pair, people)
        through_people = self._participant * (at_person[self._tail] + at_person[self._head])
        return np.asarray(self._bias * weights.sum() + through_people + self._pair * on_pair)


def _bandit(network: Network, options: Options) -> Model:
    return LinearBandit(network, **options)


BANDIT = Build(_bandit, {"mean": 0.1, "bias": 0.01, "participant": 0.01, "pair": 0.03, "noise": 0.09})
"""The scales of a rate of 0.1: noise 0.1 × 0.9, and pairs and participants that differ by 0.17 and 0.1 about it.

`pair` = 0 leaves the participants' indicators only; a pair's own is worth a line to whoever writes this.
"""
