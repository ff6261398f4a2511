"""The posterior as a store holds it, and what a reader makes of it.

Under a model that learns a common mean M, every verdict moves every participant's mean a little: by Δ, the shift of
M, times the participant's reach. Rows therefore hold what does not move with M, and what all share stands once
beside them. A verdict then costs the rows near it, and what is read from all rows is exact at any moment. A model
without a common mean has the same rows: reach 0, Δ = 0, v_M = 0, σ² = 1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haystream.arrays import Floats, Ints
from haystream.engines.contract import Engine
from haystream.events import Prior
from haystream.graph import Graph
from haystream.models import MODELS
from haystream.models.base import Ends
from haystream.models.common import Common

PARTICIPANT_COLUMNS = 3
"""X, the adjusted mean of R at the prior's common mean, before the constraint; O, its reach; V, its variance
given the common mean, in units of σ²."""

EDGE_COLUMNS = 3
"""Screened n, relevant y (an item of k edges counts 1/k), and the covariance of the two ends, in the terms of V."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table that changed. index: (k,) ascending, uint32. rows: (k, columns)."""

    index: NDArray[np.uint32]
    rows: Floats


@dataclass(frozen=True, slots=True)
class Changes:
    """What a store must be told: rows that moved, and what all rows are read with, whole."""

    participants: Rows
    edges: Rows
    common: Common
    discrepancy: float


@dataclass(frozen=True, slots=True)
class Tables:
    """All of it, as of one moment.

    participants: (m, PARTICIPANT_COLUMNS); edges: (k, EDGE_COLUMNS); numbered as the entries of the
    collection's log number them that are in the query's scope (`Collection`).
    """

    participants: Floats
    edges: Floats
    common: Common
    discrepancy: float


@dataclass(frozen=True, slots=True)
class Posterior:
    """Constrained adjusted means and variances: of R (Z, or a rate), shape (m,); of P, shape (k,)."""

    participant_mean: Floats
    participant_variance: Floats
    edge_mean: Floats
    edge_variance: Floats


def rows_of(engine: Engine, participants: Ints, edges: Ints) -> Changes:
    """The rows of those participants and edges, ascending, and what all share: all without pending screenings.

    The engine is settled. The rows are what it compares with to say what moves next, not what has moved since by
    too little to be told of: else a reader who was given that would not hear of its moving back.
    """
    mean, reach, variance, covariance = engine.told(participants, edges)
    return Changes(
        Rows(participants.astype(np.uint32), np.column_stack([mean, reach, variance])),
        Rows(edges.astype(np.uint32), np.column_stack([*engine.readings.counts(edges)[:2], covariance])),
        engine.readings.known_common(),
        engine.readings.discrepancy(),
    )


def read(tables: Tables, prior: Prior, graph: Graph) -> Posterior:
    """What the tables say, with q the discrepancy, m̂ = X + Δ O and v = m̂ − clip(m̂, 0, 1):

        E[R_u | Y] = m̂_u − v_u
        Cov(R_u, R_v | Y) = σ² [C_uv + O_u O_v v_M] + v_u v_v / (1 + q)      C_uu = V_u, C_uv of the edge

    and the edge's P from these and its n and y, as the prior's model reads it (docs/method.md).

    `graph`: of the collection's log; it may be ahead of the tables.
    """
    common, inflation = tables.common, 1.0 / (1.0 + tables.discrepancy)
    X, O, V = tables.participants.T  # noqa: E741 - the letters of docs/method.md
    free = X + common.mean_shift * O
    constrained: Floats = np.clip(free, 0.0, 1.0)
    off = free - constrained
    variance = common.scale * (V + common.variance * O * O) + inflation * off * off
    n, y, C = tables.edges.T
    u, v = graph.tail[: len(n)], graph.head[: len(n)]
    covariance = common.scale * (C + common.variance * O[u] * O[v]) + inflation * off[u] * off[v]
    ends = Ends(free[u], free[v], variance[u], variance[v], covariance, O[u], O[v])
    edge_mean, edge_variance, _ = MODELS[prior.model](prior).posteriors(
        ends, np.ascontiguousarray(n), np.ascontiguousarray(y), common
    )
    return Posterior(constrained, variance, edge_mean, edge_variance)
