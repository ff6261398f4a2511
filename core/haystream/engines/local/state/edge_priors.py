"""What edges have by their prior: rows that lie over somebody else's, some neighbours at a time (`overlay`)."""

from typing import NamedTuple

import numpy as np

from haystream.memory.arrays import Floats, Ints
from haystream.memory.compiled import allocating, compiled, inlined
from haystream.memory.overlay import GROUP_POWER, LINE_ENTRIES, Overlay, cell, flat, put_cell, whole_table
from haystream.memory.prefetch import prefetch


class EdgePrior(NamedTuple):
    """What one edge has by its prior. One without noise (0) is not let in yet."""

    mean: float
    """E[P_e]."""
    noise: float
    """s_e = E[P_e (1 − P_e)]."""
    on_tail: float
    """β̃_e at the tail: D_u β_u."""
    on_head: float
    residual: float
    """Var(η_e)."""


PRIOR_MEAN, NOISE, ON_TAIL, ON_HEAD, OWN_VARIANCE, USED_ENTRY = range(6)
"""Columns of a row: the members of `EdgePrior`, and the entry of Q⁻¹ that they were made with."""
PRIOR_COLUMNS = 6


@inlined
def number(priors: Overlay, edge: int, column: int) -> float:
    """One number of an edge."""
    return cell(priors, edge >> (LINE_ENTRIES - 1), (edge & (LINE_ENTRIES - 1)) * PRIOR_COLUMNS + column)


@inlined
def fetch_number(priors: Overlay, edge: int, column: int) -> None:
    """Have one number of an edge fetched as it is below, and what says whether it is laid over (`prefetch`)."""
    prefetch(priors.chunks, edge >> (LINE_ENTRIES - 1 + GROUP_POWER))
    prefetch(priors.below, edge * PRIOR_COLUMNS + column)


@inlined
def put_number(priors: Overlay, edge: int, column: int, value: float) -> None:
    """Write one number of an edge."""
    put_cell(priors, edge >> (LINE_ENTRIES - 1), (edge & (LINE_ENTRIES - 1)) * PRIOR_COLUMNS + column, value)


@compiled
def edge_prior(priors: Overlay, edge: int) -> EdgePrior:
    """An edge's prior."""
    return EdgePrior(
        number(priors, edge, PRIOR_MEAN),
        number(priors, edge, NOISE),
        number(priors, edge, ON_TAIL),
        number(priors, edge, ON_HEAD),
        number(priors, edge, OWN_VARIANCE),
    )


@allocating
def numbers(priors: Overlay, edges: Ints, column: int) -> Floats:
    """One number of each of these edges, shape (len(edges),)."""
    values = np.empty(len(edges))
    for i in range(len(edges)):
        values[i] = number(priors, edges[i], column)
    return values


def rows_of(priors: Overlay) -> Floats:
    """All numbers of all edges there is room for, shape (edges, PRIOR_COLUMNS): of whole ones a view."""
    return flat(priors).reshape(-1, PRIOR_COLUMNS)


def whole_priors(rows: Floats, room: int) -> Overlay:
    """Rows of some edges, shape (edges, PRIOR_COLUMNS), with nothing over them, and room for so many edges."""
    lines = -(-room // LINE_ENTRIES)
    longer = np.zeros((lines * LINE_ENTRIES, PRIOR_COLUMNS))
    longer[: len(rows)] = rows
    return whole_table(longer.reshape(lines, LINE_ENTRIES * PRIOR_COLUMNS))
