"""The joint specification of `rates`, dense: what the engine `reference` adjusts."""

import numpy as np

from haystream.collection.graph import Graph
from haystream.events import Prior
from haystream.memory.arrays import Flags, Floats, Longs
from haystream.models.graph_prior import dense_precision, prior_means


class LinearMoments:
    """The joint specification, dense (`models.base.Moments`): R = M + o + x and P = aR_u + (1 − a)R_v + η.

    `on_tail`: a.
    """

    def __init__(self, graph: Graph, prior: Prior, *, on_tail: float = 0.5) -> None:
        m, edges = len(graph), graph.edges
        sigma = np.linalg.inv(dense_precision(graph, prior.correlation))
        S = 1.0 / np.sqrt(sigma.diagonal())
        self._slopes = np.zeros((edges, m))
        self._slopes[np.arange(edges), graph.tail] = on_tail
        self._slopes[np.arange(edges), graph.head] = 1.0 - on_tail
        self._residual = 1.0 / prior.edge
        self.common_variance = 1.0 / prior.weight
        self.mean: Floats = prior_means(graph, prior)
        self.covariance: Floats = self.common_variance + S[:, None] * sigma * S / prior.participant
        self.edge_mean: Floats = self._slopes @ self.mean
        self.noise: Floats = np.ones(edges)
        self.bound: Flags = np.zeros(edges, np.uint8)

    def with_participants(self, edges: Longs) -> Floats:
        """Cov(R_u, P_e): η is uncorrelated with R."""
        return np.asarray(self.covariance @ self._slopes[edges].T)

    def between(self, first: Longs, second: Longs) -> Floats:
        """Cov(P_e, P_f): Var(η) on the diagonal."""
        own = self._residual * (first[:, None] == second)
        return np.asarray(self._slopes[first] @ self.covariance @ self._slopes[second].T + own)
