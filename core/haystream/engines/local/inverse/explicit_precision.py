"""The precision of an explicit Σ, whose inverse has the sparsity of the graph (as it has for a Markov random field
on a tree)."""

import numpy as np

from haystream.collection.graph import Graph
from haystream.engines.local.inverse.precision import Changes
from haystream.engines.local.state.state import Workspace
from haystream.errors import Code, Rejected
from haystream.events import Covariance
from haystream.memory.arrays import Floats, Ints
from haystream.models.graph_prior import dense_covariance


class ExplicitPrecision:
    """Σ⁻¹ of a given Σ whose inverse has the sparsity of the graph. Computed anew whenever the graph grows.

    Raises:
        Rejected: UNSUPPORTED, from `grow`, where the covariance does not name every participant of the graph
            or its inverse joins two who are not contacts.
    """

    def __init__(self, graph: Graph, covariance: Covariance) -> None:
        self.builds = 0
        self.changes = Changes()
        self.workspace = Workspace()
        self.diagonal: Floats = np.zeros(0)
        self.off: Floats = np.zeros(0)
        self.inverse_diagonal: Floats = np.zeros(0)
        self.inverse_edge: Floats = np.zeros(0)
        self._graph = graph
        self._covariance = covariance

    def grow(self) -> None:
        """Follow the graph."""
        graph = self._graph
        if len(graph) == len(self.diagonal) and graph.edges == len(self.off):
            return
        sigma = dense_covariance(graph, self._covariance)
        precision: Floats = np.asarray(np.linalg.inv(sigma), dtype=np.float64)
        tail, head = graph.tail, graph.head
        rest = precision.copy()
        rest[tail, head] = rest[head, tail] = 0.0
        np.fill_diagonal(rest, 0.0)
        if np.abs(rest).max(initial=0.0) > 1e-9 * np.abs(precision).max(initial=1.0):
            raise Rejected(
                Code.UNSUPPORTED,
                "the inverse of prior.covariance joins participants who are not contacts: "
                "use the reference engine, or a covariance whose precision has the graph's sparsity",
            )
        self.diagonal, self.off = precision.diagonal().copy(), precision[tail, head]
        self.inverse_diagonal, self.inverse_edge = sigma.diagonal().copy(), sigma[tail, head]
        self.builds += 1

    def tend(self, most: int, stop: Ints) -> None:
        """Nothing drifts."""

    @property
    def waiting(self) -> bool:
        """Whether anybody waits for `tend`: never, as nothing drifts."""
        return False

    @property
    def given_up(self) -> bool:
        """Whether a solve took too many steps: never, as none is made step by step."""
        return False
