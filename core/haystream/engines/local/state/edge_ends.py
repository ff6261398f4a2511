"""The adjusted moments of participants, and of the two ends of edges, as the models want them; edges' counts."""

import numpy as np

from haystream.engines.local.solves.sides import COMMON, MEAN
from haystream.engines.local.state.edge_priors import edge_prior
from haystream.engines.local.state.state import AT_MEAN, AT_REACH, AT_VARIANCE, Data, Edges, People, State, Told
from haystream.memory.arrays import Floats, Ints
from haystream.memory.compiled import allocating, compiled, inlined
from haystream.memory.overlay import cell, entry, fetch_entry, fetch_line, fetch_own_entry, fetch_own_line
from haystream.memory.prefetch import SOON, prefetch
from haystream.models.base import Ends
from haystream.models.common import Common


@compiled
def adjusted(people: People, participant: int, shift: float) -> tuple[float, float]:
    """The adjusted mean of R at a shift of the common mean, and its reach (`models.base.Ends`)."""
    scale, reference = entry(people.scale, participant), people.reference[0]
    mean = people.prior_mean[participant] + scale * cell(people.x, participant, MEAN)
    if people.residual.shape[1] <= COMMON:
        return mean, 0.0
    reach = 1.0 - scale * cell(people.x, participant, COMMON)
    return mean + reference + (shift - reference) * reach, reach


@compiled
def edge_reach(edges: Edges, people: People, edge: int) -> float:
    """1 − β̃ᵀx₂: how much of a move of the common mean an edge's ends let through; 0 without a common mean."""
    if people.residual.shape[1] <= COMMON:
        return 0.0
    return 1.0 - at_ends(edges, people, edge, COMMON)


@compiled
def at_ends(edges: Edges, people: People, edge: int, side: int) -> float:
    """β̃ᵀx: what the solution of a side comes to on an edge."""
    prior, u, v = edge_prior(edges.prior, edge), edges.tail[edge], edges.head[edge]
    both: float = prior.on_tail * cell(people.x, u, side) + prior.on_head * cell(people.x, v, side)
    return both


@compiled
def edge_ends(state: State, which: Ints, common: Common, discrepancy: float, out: Ends) -> None:
    """The adjusted moments of the ends of the edges in `which`, row i of `out` for which[i].

    Cov(R_u, R_v) = σ² [D_u D_v (Λ⁻¹)_uv + reach_u reach_v v_M] + v_u v_v / (1 + q), v what the constraint takes off
    a mean (docs/method.md, "The constraint is a clip").
    """
    shift, variance, scale = common.mean_shift, common.variance, common.scale
    edges, people, inverse = state.edges, state.people, state.inverse
    for i in range(len(which)):
        e = which[i]
        u, v = edges.tail[e], edges.head[e]
        mean_u, reach_u = adjusted(people, u, shift)
        mean_v, reach_v = adjusted(people, v, shift)
        D_u, D_v = entry(people.scale, u), entry(people.scale, v)
        off_u = mean_u - min(max(mean_u, 0.0), 1.0)
        off_v = mean_v - min(max(mean_v, 0.0), 1.0)
        inflation = 1.0 / (1.0 + discrepancy)
        out.mean_tail[i] = mean_u
        out.mean_head[i] = mean_v
        out.variance_tail[i] = scale * (D_u * D_u * entry(inverse.on_participant, u) + reach_u * reach_u * variance)
        out.variance_head[i] = scale * (D_v * D_v * entry(inverse.on_participant, v) + reach_v * reach_v * variance)
        out.covariance[i] = scale * (D_u * D_v * entry(inverse.on_edge, e) + reach_u * reach_v * variance)
        out.variance_tail[i] += off_u * off_u * inflation
        out.variance_head[i] += off_v * off_v * inflation
        out.covariance[i] += off_u * off_v * inflation
        out.reach_tail[i] = reach_u
        out.reach_head[i] = reach_v


@compiled
def told_ends(state: State, which: Ints, common: Common, out: Ends) -> None:
    """What readers were told of the ends of the edges in `which`, row i of `out` for which[i].

    As `edge_ends` has it, but for what the constraint does to variances and covariances.
    """
    shift, variance, scale = common.mean_shift, common.variance, common.scale
    edges, told, people = state.edges, state.news.told, state.news.told.people
    last = len(which) - 1
    for i in range(len(which)):
        fetch_told(edges, told, which[min(i + 3 * SOON, last)])
        fetch_told_ends(edges, told, which[min(i + 2 * SOON, last)])
        fetch_own_told(edges, told, which[min(i + SOON, last)])
        e = which[i]
        u, v = edges.tail[e], edges.head[e]
        # All is read before anything is written: the compiler then looks each row up once.
        mean_u, reach_u, spread_u = (
            cell(people, u, AT_MEAN),
            cell(people, u, AT_REACH),
            cell(people, u, AT_VARIANCE),
        )
        mean_v, reach_v, spread_v = (
            cell(people, v, AT_MEAN),
            cell(people, v, AT_REACH),
            cell(people, v, AT_VARIANCE),
        )
        covariance = entry(told.covariance, e)
        out.mean_tail[i] = mean_u + shift * reach_u
        out.mean_head[i] = mean_v + shift * reach_v
        out.variance_tail[i] = scale * (spread_u + reach_u * reach_u * variance)
        out.variance_head[i] = scale * (spread_v + reach_v * reach_v * variance)
        out.covariance[i] = scale * (covariance + reach_u * reach_v * variance)
        out.reach_tail[i] = reach_u
        out.reach_head[i] = reach_v


@inlined
def fetch_told(edges: Edges, told: Told, edge: int) -> None:
    """Have fetched what readers were told of an edge; then, `SOON` later, of its ends; then what of it is laid
    over."""
    prefetch(edges.tail, edge)
    prefetch(edges.head, edge)
    fetch_entry(told.covariance, edge)


@inlined
def fetch_told_ends(edges: Edges, told: Told, edge: int) -> None:
    """See `fetch_told`."""
    fetch_line(told.people, edges.tail[edge])
    fetch_line(told.people, edges.head[edge])
    fetch_own_entry(told.covariance, edge)


@inlined
def fetch_own_told(edges: Edges, told: Told, edge: int) -> None:
    """See `fetch_told`."""
    fetch_own_line(told.people, edges.tail[edge])
    fetch_own_line(told.people, edges.head[edge])


@allocating
def counts_on(data: Data, which: Ints) -> tuple[Floats, Floats, Floats]:
    """Screened n, relevant y and unscreened items of some edges, each of shape (len(which),)."""
    n, y, offered = np.empty(len(which)), np.empty(len(which)), np.empty(len(which))
    last = len(which) - 1
    for i in range(len(which)):
        e, later = which[i], which[min(i + SOON, last)]
        for column in (data.n, data.y, data.offered):
            prefetch(column, later)
        n[i], y[i], offered[i] = data.n[e], data.y[e], data.offered[e]
    return n, y, offered
