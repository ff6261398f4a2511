"""The prior covariance of Z: the paper's graph-structured Σ = B Q⁻¹ B (section 5.2.2), or an explicit one.

Both are held as the precision of x in Z = E[Z] + D x, D diagonal: `diagonal` and one entry per edge. For the
graph-structured prior D = B and the precision is Q; for an explicit Σ, D = I and the precision is Σ⁻¹, which
has to have the sparsity of the graph (as it has for a Markov random field on a tree).
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haystream.engines.relax import inverse_entries, scratch, system
from haystream.errors import Code, Rejected
from haystream.events import Covariance, Prior
from haystream.graph import Graph

Floats = NDArray[np.float64]


class Precision(Protocol):
    """The prior precision of x, its inverse where it is needed, and the scale D."""

    diagonal: Floats
    off: Floats
    inverse_diagonal: Floats
    """(Q⁻¹)_uu, shape (participants,)."""
    inverse_edge: Floats
    """(Q⁻¹)_uv, shape (edges,)."""

    def grow(self) -> bool:
        """Follow the graph; True if it had grown."""
        ...

    def scale(self, mean: Floats) -> Floats:
        """D for those prior means of Z, shape (participants,)."""
        ...


class GraphPrecision:
    """Q of section 5.2.2: 1 on the diagonal, −δ / max(n_i, n_j) between contacts."""

    def __init__(self, graph: Graph, correlation: float, tolerance: float) -> None:
        self.correlation = correlation
        self.tolerance = tolerance
        self.diagonal: Floats = np.zeros(0)
        self.off: Floats = np.zeros(0)
        self.inverse_diagonal: Floats = np.zeros(0)
        self.inverse_edge: Floats = np.zeros(0)
        self._graph = graph

    def grow(self) -> bool:
        """Follow the graph; True if it had grown. Costs one local column solve per participant."""
        graph = self._graph
        m, edges = len(graph), graph.edges
        if m == len(self.diagonal) and edges == len(self.off):
            return False
        self.diagonal = np.ones(m)
        self.off = -self.correlation / np.maximum(graph.degree[graph.tail], graph.degree[graph.head])
        self.inverse_diagonal = np.zeros(m)
        self.inverse_edge = np.zeros(edges)
        inverse_entries(
            system(graph, self.diagonal, self.off),
            np.arange(m, dtype=np.int32),
            self.tolerance,
            self.inverse_diagonal,
            self.inverse_edge,
            scratch(m),
        )
        return True

    def scale(self, mean: Floats) -> Floats:
        """B: sqrt(μ_i (1 − μ_i) / (Q⁻¹)_ii), so that Σ_ii = μ_i (1 − μ_i)."""
        return np.sqrt(mean * (1.0 - mean) / self.inverse_diagonal)


class ExplicitPrecision:
    """Σ⁻¹ of a given Σ whose inverse has the sparsity of the graph.

    Raises:
        Rejected: UNSUPPORTED, from `grow`, where the covariance does not name every participant of the graph
            or its inverse joins two who are not contacts.
    """

    def __init__(self, graph: Graph, covariance: Covariance) -> None:
        self.diagonal: Floats = np.zeros(0)
        self.off: Floats = np.zeros(0)
        self.inverse_diagonal: Floats = np.zeros(0)
        self.inverse_edge: Floats = np.zeros(0)
        self._graph = graph
        self._covariance = covariance

    def grow(self) -> bool:
        """Follow the graph; True if it had grown."""
        graph = self._graph
        if len(graph) == len(self.diagonal) and graph.edges == len(self.off):
            return False
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
        return True

    def scale(self, mean: Floats) -> Floats:
        """D = I: x is Z − E[Z] itself."""
        return np.ones(len(mean))


def dense_covariance(graph: Graph, covariance: Covariance) -> Floats:
    """An explicit Σ in the graph's numbering, shape (m, m)."""
    place = {name: i for i, name in enumerate(covariance.participants)}
    missing = [name for name in graph.participants if name not in place]
    if missing:
        raise Rejected(Code.UNSUPPORTED, f"prior.covariance does not name participant {missing[0]!r}")
    order = [place[name] for name in graph.participants]
    return np.asarray(covariance.rows, dtype=np.float64)[np.ix_(order, order)]


def dense_precision(graph: Graph, correlation: float) -> Floats:
    """Q as a dense matrix, shape (m, m)."""
    m, tail, head = len(graph), graph.tail, graph.head
    off = -correlation / np.maximum(graph.degree[tail], graph.degree[head])
    upper = sparse.coo_array((off, (tail, head)), shape=(m, m)).toarray()
    return np.eye(m) + upper + upper.T


def prior_means(graph: Graph, prior: Prior) -> Floats:
    """E[Z], shape (participants,): the common mean, or the participant's own."""
    means = np.full(len(graph), prior.mean)
    for name, mean in prior.participants.items():
        index = graph.participant(name)
        if index is not None:
            means[index] = mean
    return means
