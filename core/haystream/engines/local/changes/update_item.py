"""What changes with the data of several edges, as those of one item: Λ by a low rank, and the right-hand sides.

Edge by edge (`update_verdict`) that would be as many changes, each with a column to solve and three sides to push.
"""

import numpy as np

from haystream.engines.local.changes.push import add_residual, push_side, push_unpushed
from haystream.engines.local.inverse.low_rank import (
    NO_COLUMNS,
    NOWHERE,
    by_rows,
    columns_of,
    correct_inverse,
    loosened,
    low_rank,
    solve_columns,
    some_rows,
    woodbury,
)
from haystream.engines.local.solves.sides import COMMON, REMAINING
from haystream.engines.local.solves.solve import EXCEEDED, add_off_diagonal, add_on_diagonal
from haystream.engines.local.state.edge_ends import at_ends, edge_reach
from haystream.engines.local.state.edge_priors import edge_prior
from haystream.engines.local.state.state import OWN, State
from haystream.memory.arrays import Floats, Ints, mark, union, unmark_all
from haystream.memory.compiled import compiled
from haystream.memory.overlay import cell

MOST_COLUMNS = 64
"""So many edges are changed at once, or all of them where they are between so many people, as those of an item
without roles are. What that does to whom it reaches takes time with the square of it."""


def change_edges(state: State, which: Ints, weights: Floats, coefficients: Floats) -> None:
    """Give the edges of `which` new weights, shape (k,), and new coefficients, shape (k, sides)."""
    edges = state.edges
    few = len(which) <= MOST_COLUMNS or len(union(edges.tail[which], edges.head[which])) <= MOST_COLUMNS
    at_once = len(which) if few else MOST_COLUMNS
    for begin in range(0, len(which), at_once):
        some = slice(begin, begin + at_once)
        changes = weights[some] - edges.weight[which[some]]
        if changes.any():
            _change_weights(state, which[some], changes, weights[some], coefficients[some])
        else:
            change_system(state, which[some], weights[some], coefficients[some])
    push_from_ends(state)


def _change_weights(state: State, which: Ints, changes: Floats, weights: Floats, coefficients: Floats) -> None:
    system, edges, inverse, rooms = state.system, state.edges, state.inverse, state.rooms
    change = low_rank(edges, which, changes)
    size = np.abs(change.M).sum(axis=1) * len(change.M)
    tolerances = loosened(size, inverse.tolerances.corrected)
    U = columns_of(change.people, change.U)
    columns = solve_columns(system, U, tolerances, NOWHERE, NO_COLUMNS, rooms.column)
    rows = by_rows(columns, rooms.row)
    if not rooms.column.steps[EXCEEDED]:
        T = woodbury(change, some_rows(rows, rooms.row[change.people], len(change.M)))
        change_system(state, which, weights, coefficients)
        correct_inverse(state, rows, T, tolerances, np.empty(len(T)))
    rooms.row[rows.people] = 0


@compiled
def change_system(state: State, which: Ints, weights: Floats, coefficients: Floats) -> None:
    """Have Λ and the right-hand sides take the new weights and coefficients; `push_from_ends` is to follow.

    The solutions x stay, and b and Λ change: with Δc the change of a coefficient, r by β̃ (Δc − Δw β̃ᵀx).
    """
    system, edges, people, sums = state.system, state.edges, state.people, state.sums
    unpushed, sides = state.rooms.unpushed, state.people.residual.shape[1]
    for i in range(len(which)):
        e = which[i]
        u, v, prior = edges.tail[e], edges.head[e], edge_prior(edges.prior, e)
        dw, reach = weights[i] - edges.weight[e], edge_reach(edges, people, e)
        common = coefficients[i, sides - 1] - edges.coefficient[sides - 1, e] - dw * (1.0 - reach)
        for side in range(sides):
            dc, at_edge = coefficients[i, side] - edges.coefficient[side, e], at_ends(edges, people, e, side)
            left = dc - dw * at_edge
            add_residual(people, unpushed, u, side, left * prior.on_tail)
            add_residual(people, unpushed, v, side, left * prior.on_head)
            sums.form[side] += (dc + left) * at_edge
            if sides > COMMON:
                sums.border[side] += dc * reach - common * at_edge
        for side in range(sides):
            edges.coefficient[side, e] = coefficients[i, side]
        if dw != 0.0:
            edges.weight[e] = weights[i]
            add_on_diagonal(system, u, dw * prior.on_tail * prior.on_tail)
            add_on_diagonal(system, v, dw * prior.on_head * prior.on_head)
            add_off_diagonal(system, e, dw * prior.on_tail * prior.on_head)
        mark(state.news.stale, e)


@compiled
def push_from_ends(state: State) -> None:
    """Push what `change_system` left of the sides' residuals."""
    push_unpushed(state, state.tolerances.owed)


@compiled
def offer_items(state: State, which: Ints) -> None:
    """Bring the edges of `which`, all of which have a prior, in line with how many items are on offer there.

    That changes no reading of theirs, but what is expected of what remains.
    """
    edges, data, people, sums = state.edges, state.data, state.people, state.sums
    unpushed = state.rooms.unpushed
    for e in which:
        prior = edge_prior(edges.prior, e)
        left = data.offered[e] * (1.0 - prior.residual * edges.weight[e])
        change = left - edges.coefficient[REMAINING, e]
        edges.coefficient[REMAINING, e] = left
        own = data.offered[e] * left * prior.residual
        sums.data[OWN] += own - data.own[e]
        data.own[e] = own
        if people.residual.shape[1] > COMMON:
            sums.border[REMAINING] += change * edge_reach(edges, people, e)
        for t, beta in ((edges.tail[e], prior.on_tail), (edges.head[e], prior.on_head)):
            add_residual(people, unpushed, t, REMAINING, change * beta)
            sums.form[REMAINING] += 2.0 * change * beta * cell(people.x, t, REMAINING)
        mark(state.news.stale, e)
    push_side(state, REMAINING, state.tolerances.sides[REMAINING])
    unmark_all(unpushed)
