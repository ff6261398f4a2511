"""Label propagation between pairs that share a participant, anchored to the rates seen."""

from collections.abc import Sequence

import numpy as np

from haystream_service.study.models.base import Build, Counts, Floats, Options, beta_moments
from haystream_service.study.network import Network

TOLERANCE = 1e-5
"""Propagation stops when no pair's label moves by more; ten times less changed no search tried."""


class LabelPropagation:
    """f_uv = (w (α (f_u + f_v)/2 + (1 − α) μ) + y_uv) / (w + n_uv), f_u the mean of u's pairs' labels.

    Learning with local and global consistency (Zhou et al. 2004) on the graph of pairs and participants: what a
    pair has shown holds it as firmly as it has been screened, the rest flows in from pairs near by, a share 1 − α
    from the starting rate μ (`mean`); `weight` is w, the screenings that what flows in is worth.
    """

    def __init__(self, network: Network, options: Options) -> None:
        self._tail, self._head = network.tail, network.head
        self._degree = network.collection.graph.degree
        self._counts = Counts(network.edges)
        self._start, self._weight, self._share = (options[name] for name in ("mean", "weight", "alpha"))
        self._label = np.full(network.edges, self._start)
        self._settled = True

    def observe(self, edges: Sequence[int], relevant: bool) -> None:
        """Count it."""
        self._counts.add(edges, relevant)
        self._settled = False

    def posteriors(self) -> tuple[Floats, Floats]:
        """Propagate from the last labels until they stand still: a contraction, by α or less a round."""
        concentration = self._weight + self._counts.n
        own = (self._weight * (1.0 - self._share) * self._start + self._counts.y) / concentration
        flow = 0.5 * self._weight * self._share / concentration
        while not self._settled:
            people = len(self._degree)
            sums = np.bincount(self._tail, self._label, people) + np.bincount(self._head, self._label, people)
            rate = sums / self._degree
            label = own + flow * (rate[self._tail] + rate[self._head])
            self._settled = bool(np.abs(label - self._label).max() <= TOLERANCE)
            self._label = label
        return beta_moments(self._label, concentration)


LABEL_PROPAGATION = Build(LabelPropagation, {"mean": 0.1, "weight": 3, "alpha": 0.8})
