"""The posterior as a store holds it: rows of tables, as plain values.

Under a model that learns a common mean M, every verdict moves every participant's mean a little: by Δ, the shift of
M, times the participant's reach. Rows therefore hold what does not move with M, and what all share stands once
beside them. A verdict then costs the rows near it, and what is read from all rows is exact at any moment. A model
without a common mean has the same rows: reach 0, Δ = 0, v_M = 0, σ² = 1.

Most of them are the prior's, which follows from the query's settings and the graph of its collection: there are
rows only of whom readers were told anything else. A row has a place of its own, in the order in which rows came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from haystream.events import Prior
from haystream.models.common import Common

if TYPE_CHECKING:  # whoever hands rows on, or has none, loads no arrays
    import numpy as np
    from numpy.typing import NDArray

PARTICIPANT_COLUMNS = 3
"""X, the adjusted mean of R at the prior's common mean, before the constraint; O, its reach; V, its variance
given the common mean, in units of σ²."""

EDGE_COLUMNS = 3
"""Screened n, relevant y (an item of k edges counts 1/k), and the covariance of the two ends, in the terms of V."""

NOBODY = 2**32 - 1
"""Instead of a number, at a place that was given back."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table. index: (k,), whose each is, or NOBODY. rows: (k, columns). place: (k,), where each lies."""

    index: NDArray[np.uint32]
    rows: NDArray[np.float64]
    place: NDArray[np.int32]


class Size(NamedTuple):
    """Of the graph that tables are of: the first so many that the log numbers."""

    participants: int
    edges: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What a store must be told: rows that moved, and what all rows are read with, whole."""

    participants: Rows
    edges: Rows
    size: Size
    common: Common
    discrepancy: float
    whole: bool
    """Whether no other rows are to stay: places are counted from 0 again."""


@dataclass(frozen=True, slots=True)
class Tables:
    """All of it, as of one moment.

    participants: of PARTICIPANT_COLUMNS; edges: of EDGE_COLUMNS; numbered as the entries of the collection's log
    number them that are in the query's scope (`Collection`). Whoever has no row is as the prior says.
    """

    prior: Prior
    participants: Rows
    edges: Rows
    size: Size
    common: Common
    discrepancy: float


@dataclass(frozen=True, slots=True)
class Posterior:
    """Constrained adjusted means and variances: of R (Z, or a rate), shape (m,); of P, shape (k,)."""

    participant_mean: NDArray[np.float64]
    participant_variance: NDArray[np.float64]
    edge_mean: NDArray[np.float64]
    edge_variance: NDArray[np.float64]
    screened: NDArray[np.float64]
    """n and y of each edge, shape (k,)."""
    relevant: NDArray[np.float64]
