"""The ten-line script: a pair's rate, shrunk to the mean of its two participants' smoothed rates."""

from collections.abc import Sequence

import numpy as np

from haystream_service.study.models.base import Build, Counts, Floats, Options, beta_moments
from haystream_service.study.network import Network


class ParticipantRate:
    """r_u = (k_p μ + y_u) / (k_p + n_u);  E[P_uv] = (k_e (r_u + r_v)/2 + y_uv) / (k_e + n_uv).

    μ is `mean`; `participant` and `edge` are k_p and k_e: how many screenings a participant's and an edge's
    starting rate are worth. n_u and y_u are sums over u's edges. The variance is that of a beta.
    """

    def __init__(self, network: Network, options: Options) -> None:
        self._tail, self._head = network.tail, network.head
        self._edges = Counts(network.edges)
        self._people = Counts(len(network.participants))
        self._start, self._weight, self._edge_weight = (options[name] for name in ("mean", "participant", "edge"))

    def observe(self, edges: Sequence[int], relevant: bool) -> None:
        """Count it on its edges and their ends."""
        self._edges.add(edges, relevant)
        for ends in (self._tail, self._head):
            self._people.add(edges, relevant, at=ends)

    def posteriors(self) -> tuple[Floats, Floats]:
        """A few operations on arrays."""
        rate = self.rates()
        n, y = self._edges.n, self._edges.y
        concentration = self._edge_weight + n
        shrunk_to = 0.5 * self._edge_weight * (rate[self._tail] + rate[self._head])
        return beta_moments((shrunk_to + y) / concentration, concentration)

    def rates(self) -> Floats:
        """The participants' smoothed rates, shape (participants,)."""
        return self._smoothed(self._start)

    def _smoothed(self, to: float | Floats) -> Floats:
        return np.asarray((self._weight * to + self._people.y) / (self._weight + self._people.n))


PARTICIPANT_RATE = Build(ParticipantRate, {"mean": 0.1, "participant": 3, "edge": 3})
