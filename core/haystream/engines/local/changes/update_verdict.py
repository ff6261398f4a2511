"""What changes with an edge's data: Λ by rank one, its inverse, and the right-hand sides."""

import numpy as np

from haystream.engines.local.changes.push import push_unpushed
from haystream.engines.local.solves.healing import add_strain, lower
from haystream.engines.local.solves.sides import COMMON, MEAN, REMAINING
from haystream.engines.local.solves.solve import (
    CONTACTS_AHEAD,
    DIAGONAL,
    RESIDUAL,
    VALUE,
    add_off_diagonal,
    add_on_diagonal,
    begin,
    diagonal_of,
    forget,
    solve,
    touched_by,
)
from haystream.engines.local.state.edge_priors import NOISE, edge_prior, number
from haystream.engines.local.state.state import OWN, SQUARE, Data, State
from haystream.memory.arrays import Floats, Ints, mark
from haystream.memory.compiled import allocating, compiled
from haystream.memory.overlay import add_to, add_to_cell, cell
from haystream.memory.prefetch import prefetch


@compiled
def regress(data: Data, edge: int, level: float, noise: float, residual: float) -> tuple[float, float, float]:
    """An edge's weight w, its deviation d − Δ₀ from the `level` E[P] + Δ₀, and L (1 − ρ), what its items on offer
    weigh."""
    n = data.n[edge]
    if n <= 0.0:
        return 0.0, 0.0, data.offered[edge]
    weight = n / (n * residual + noise)
    return weight, data.y[edge] / n - level, data.offered[edge] * (1.0 - residual * weight)


@compiled
def coefficient_of(side: int, weight: float, deviation: float, left: float) -> float:
    """What an edge adds to a right-hand side, over β̃: w (d − Δ₀), L (1 − ρ), or w."""
    if side == MEAN:
        return weight * deviation
    return left if side == REMAINING else weight


@compiled
def regress_edges(state: State, which: Ints, weights: Floats, coefficients: Floats) -> None:
    """Find the weights and coefficients that edges with a prior have by their counts, shapes (k,) and (k, sides);
    and bring what they add to `Sums.data` in line with them."""
    edges, data, people, sums = state.edges, state.data, state.people, state.sums
    for i in range(len(which)):
        e = which[i]
        prior = edge_prior(edges.prior, e)
        level = prior.mean + people.reference[0]
        weight, deviation, left = regress(data, e, level, prior.noise, prior.residual)
        weights[i] = weight
        for side in range(people.residual.shape[1]):
            coefficients[i, side] = coefficient_of(side, weight, deviation, left)
        square, own = weight * deviation * deviation, data.offered[e] * left * prior.residual
        sums.data[SQUARE] += square - data.square[e]
        sums.data[OWN] += own - data.own[e]
        data.square[e], data.own[e] = square, own


@allocating
def let_in(state: State, edges: Ints) -> Ints:
    """The edges, of these, that have a prior already, shape (k,)."""
    found, count = np.empty(len(edges), np.int32), 0
    for edge in edges:
        if number(state.edges.prior, edge, NOISE) > 0.0:
            found[count] = edge
            count += 1
    return found[:count]


@compiled
def heaviest(state: State, which: Ints, weights: Floats) -> float:
    """The most that any of these edges adds to an entry of Λ's diagonal with such a weight, shape (k,)."""
    most = 0.0
    for i in range(len(which)):
        prior = edge_prior(state.edges.prior, which[i])
        most = max(most, weights[i] * max(prior.on_tail * prior.on_tail, prior.on_head * prior.on_head))
    return most


@compiled
def change_edge(state: State, edge: int, weight: float, coefficients: Floats) -> None:
    """Give an edge another weight, and new coefficients, shape (sides,): a rank-one change of Λ, and new right-hand
    sides.

    With K = Λ⁻¹β̃, γ = 1 + Δw β̃ᵀK and Δc the change of a coefficient, the solution moves by K (Δc − Δw β̃ᵀx) / γ
    and covariances by −K_u K_v Δw / γ (docs/local-engine.md). K is solved locally; what it leaves
    unsolved stays in the residuals, so the solutions' errors do not accumulate. Of two sides a part is owed."""
    edges, people, sums = state.edges, state.people, state.sums
    u, v, prior = edges.tail[edge], edges.head[edge], edge_prior(edges.prior, edge)
    beta_u, beta_v = prior.on_tail, prior.on_head
    x, residual, unpushed, column = people.x, people.residual, state.rooms.unpushed, state.rooms.column
    K, left = column.cells[:, VALUE], column.cells[:, RESIDUAL]
    dw, sides, owed = weight - edges.weight[edge], residual.shape[1], state.tolerances.owed
    gamma = change_weight(state, edge, dw)
    edges.weight[edge] = weight
    for side in range(sides):
        dc = coefficients[side] - edges.coefficient[side, edge]
        at_edge = beta_u * cell(x, u, side) + beta_v * cell(x, v, side)
        sums.change[side], sums.step[side] = dc, (dc - dw * at_edge) / gamma
        sums.along[side], sums.back[side] = at_edge, 0.0
        edges.coefficient[side, edge] += dc
    mark(unpushed, u)
    mark(unpushed, v)
    own, touched = 0.0, touched_by(column)
    for i, t in enumerate(touched):
        if i + CONTACTS_AHEAD < len(touched):
            prefetch(residual, touched[i + CONTACTS_AHEAD])
        own += K[t] * left[t]
        diagonal = column.cells[t, DIAGONAL]  # but for those of u and v, as it is
        for side in range(sides):
            step, r = sums.step[side], residual[t, side]
            if K[t] != 0.0:
                sums.back[side] += K[t] * r
                add_to_cell(x, t, side, step * K[t])
            r += step * left[t]
            residual[t, side] = r
            if abs(r) > owed[side] * diagonal:
                mark(unpushed, t)
    for side in range(sides):
        step, back = sums.step[side], sums.back[side]
        at_ends = sums.change[side] * (beta_u * cell(x, u, side) + beta_v * cell(x, v, side))
        sums.along[side] += back
        sums.form[side] += step * (sums.along[side] + back + step * own) + at_ends
    if sides > COMMON:
        step, back = sums.step[COMMON], sums.back[COMMON]
        at_edge = beta_u * cell(x, u, COMMON) + beta_v * cell(x, v, COMMON)
        for side in range(sides):
            sums.border[side] += sums.change[side] * (1.0 - at_edge) - step * sums.along[side]
            sums.border[side] -= sums.step[side] * (back + step * own)
    push_unpushed(state, owed)
    forget(column)
    mark(state.news.stale, edge)


@compiled
def change_weight(state: State, edge: int, change: float) -> float:
    """Have Λ and the entries of its inverse take a change of an edge's weight; return γ, and leave K in
    `rooms.column` (`change_edge`)."""
    system, edges, inverse, column = state.system, state.edges, state.inverse, state.rooms.column
    u, v, prior = edges.tail[edge], edges.head[edge], edge_prior(edges.prior, edge)
    beta_u, beta_v, tolerance = prior.on_tail, prior.on_head, inverse.tolerances.corrected
    K = column.cells[:, VALUE]
    begin(system, column, u, beta_u)
    begin(system, column, v, beta_v)
    solve(system, tolerance, column)
    gamma = 1.0 + change * (beta_u * K[u] + beta_v * K[v])
    shrink = change / gamma
    add_on_diagonal(system, u, change * beta_u * beta_u)
    add_on_diagonal(system, v, change * beta_v * beta_v)
    for t in touched_by(column):
        if K[t] == 0.0:
            continue
        mark(state.news.moved, t)
        least = 1.0 / diagonal_of(system, t)  # of an estimate too (`change_row`)
        lower(inverse.on_participant, t, shrink * K[t] * K[t], least)
        add_strain(inverse.healing, t, 2.0 * abs(shrink * K[t]) * tolerance, inverse.tolerances.strain)
        first = system.start[t]
        for j in range(first, first + system.degree[t]):
            other = system.contact[j]
            if other > t and K[other] != 0.0:
                e = system.incident[j]
                add_to(inverse.on_edge, e, -shrink * K[t] * K[other])
    add_off_diagonal(system, edge, change * beta_u * beta_v)
    return float(gamma)
