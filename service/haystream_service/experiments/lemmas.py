"""Bayes linear by the paper's lemmas, for priors whose covariance is not graph-structured (section 5.1)."""

from collections.abc import Sequence

import numpy as np

from haystream.collection.graph import Graph
from haystream.collection.item_sets import share_of
from haystream.engines.reference import ReferenceEngine
from haystream.events import Conditional, Covariance, Prior
from haystream.memory.arrays import Longs
from haystream_service.study.models import mrf
from haystream_service.study.models.base import Floats
from haystream_service.study.network import Network


def prior_of_field(network: Network, *, factor: Floats, conditional: Conditional) -> Prior:
    """The prior whose mean and covariance are the Markov random field's own (section 5.1)."""
    names = tuple(network.participants)
    pairs = np.column_stack([network.tail, network.head]).astype(np.int64)
    mean, covariance = mrf.prior_moments(len(names), pairs, factor)
    return Prior(
        model="relevance",
        conditional=conditional,
        participants=dict(zip(names, mean.tolist(), strict=True)),
        covariance=Covariance(names, tuple(tuple(row) for row in covariance.tolist())),
    )


Moments = tuple[Floats, Floats]
"""Cov(Z, P), shape (participants, edges), and Cov(P, P), shape (edges, edges), before any data."""


class LemmaEngine(ReferenceEngine):
    """The reference engine on a fixed graph: the prior moments, which no data change, are computed once.

    `moments` are those of an engine on the same graph with the same prior, if there was one.
    """

    def __init__(self, graph: Graph, prior: Prior, moments: Moments | None = None) -> None:
        super().__init__(graph, prior)
        super()._set_prior()
        edges = np.arange(graph.edges, dtype=np.int64)
        self.moments = moments or (super()._cov_zp(edges), super()._cov_pp(edges, edges))

    def _set_prior(self) -> None:
        """It is set."""

    def _cov_zp(self, edges: Longs) -> Floats:
        return self.moments[0][:, edges]

    def _cov_pp(self, first: Longs, second: Longs) -> Floats:
        return self.moments[1][np.ix_(first, second)]


class LemmaModel:
    """The lemmas as a model to search with."""

    def __init__(self, network: Network, prior: Prior, moments: Moments | None = None) -> None:
        self.engine = LemmaEngine(network.collection.graph, prior, moments)
        self._edges = np.arange(network.edges, dtype=np.int32)
        self._posteriors: tuple[Floats, Floats] | None = None

    def observe(self, edges: Sequence[int], relevant: bool) -> None:
        """Record it."""
        share = share_of(len(edges))
        for edge in edges:
            self.engine.record(edge, screened=share, relevant=share * relevant)
        self._posteriors = None

    def posteriors(self) -> tuple[Floats, Floats]:
        """Adjust the prior by all the data."""
        if self._posteriors is None:
            self.engine.settle()
            self._posteriors = self.engine.readings.edges(self._edges)
        return self._posteriors
