"""Random order: what every model has to beat."""

from collections.abc import Sequence

import numpy as np

from haystream_service.study.models.base import Build, Floats, Options
from haystream_service.study.network import Network

NEXT_TO_NOTHING = 1e-24
"""A variance that every policy can divide by and that separates no two scores."""


class Indifferent:
    """Every edge is the same, whatever is seen: all items tie, and ties are broken at random."""

    def __init__(self, network: Network, options: Options) -> None:
        self._mean = np.full(network.edges, 0.5)
        self._variance = np.full(network.edges, NEXT_TO_NOTHING)

    def observe(self, edges: Sequence[int], relevant: bool) -> None:
        """Learn nothing."""

    def posteriors(self) -> tuple[Floats, Floats]:
        """The same of every edge."""
        return self._mean, self._variance


RANDOM = Build(Indifferent)
