"""haystream's own models, through the engine that a worker uses."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from haystream.collection.item_sets import share_of
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE
from haystream.events import Prior, Query
from haystream.models import DEFAULT_PRIORS
from haystream.query.engine_choice import make_engine
from haystream_service.study.models.base import Build, Floats, Model, Options
from haystream_service.study.models.tables import table
from haystream_service.study.network import Network

TENDED = 4
"""Local solves a verdict that undo drift: a worker does it while it waits."""


class BayesLinear:
    """The local engine. Items on offer, which only expected remaining is about, are not told to it."""

    def __init__(self, network: Network, prior: Prior) -> None:
        # Not the precision of an earlier search, which undoing drift has moved by the tolerance: a search must not
        # depend on those before it.
        network.collection.shared.clear()
        self._engine = make_engine(Query("study", prior=prior), network.collection, DEFAULT_TOLERANCE)
        self._engine.settle()
        while self._engine.waiting:
            self._engine.tend(1000)
            self._engine.settle()
        self._mean, self._variance, self._slope = self._engine.readings.scoring(
            np.arange(network.edges, dtype=np.int32)
        )

    def observe(self, edges: Sequence[int], relevant: bool) -> None:
        """Record it."""
        share = share_of(len(edges))
        for edge in edges:
            self._engine.record(edge, screened=share, relevant=share * relevant)

    def posteriors(self) -> tuple[Floats, Floats]:
        """Settle, and read the edges that moved, as a ranking does."""
        self._engine.tend(TENDED)
        before = self._engine.readings.rounded_common()
        edges = self._engine.settle().scores
        if self._engine.readings.rounded_common() != before:
            edges = np.arange(len(self._mean), dtype=np.int32)
        if len(edges):
            self._mean[edges], self._variance[edges], self._slope[edges] = self._engine.readings.scoring(edges)
        return self._mean, self._variance

    def common(self) -> tuple[Floats, float]:
        """The slopes and the rounded common mean that the posteriors were read with."""
        return self._slope, self._engine.readings.rounded_common().base_rate


def _relevance(network: Network, options: Options) -> Model:
    conditional = table(options["table"])
    return BayesLinear(
        network,
        Prior(
            model="relevance",
            mean=options["mean"],
            correlation=options["correlation"],
            conditional=conditional,
        ),
    )


def _rates(network: Network, options: Options) -> Model:
    prior = replace(
        DEFAULT_PRIORS["rates"],
        mean=options["mean"],
        correlation=options["correlation"],
        weight=options["weight"],
        participant=options["participant"],
        edge=options["edge"],
    )
    return BayesLinear(network, prior)


RATES = Build(_rates, {"mean": 0.1, "correlation": 0.9, "weight": 2.0, "participant": 3.0, "edge": 3.0})
"""Rates around a common mean that is learned."""

RELEVANCE = Build(_relevance, {"mean": 0.25, "correlation": 0.8, "table": 2})
"""The paper's model. `table`: its prior conditional 1 or 2, or `tables.MAIL`, 3."""
