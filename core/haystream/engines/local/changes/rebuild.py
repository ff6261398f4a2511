"""The whole of the local engine's state, computed at once: for a graph that is new, or largely so."""

import numpy as np

from haystream.engines.contract import NEVER
from haystream.engines.local.changes.push import push_everybody
from haystream.engines.local.inverse.precision import Precision
from haystream.engines.local.solves.healing import HEALED_AT_ONCE, heal, healing, let_wait
from haystream.engines.local.solves.sides import COMMON
from haystream.engines.local.solves.solve import ALLOWED, WHOLE_GRAPH_ROUNDS
from haystream.engines.local.state.columns import Columns
from haystream.engines.local.state.state import OWN, SQUARE
from haystream.memory.arrays import Floats, union, unmark_all
from haystream.memory.overlay import flattened, whole
from haystream.models.base import Priors


def weigh(columns: Columns, precision: Precision, priors: Priors) -> None:
    """Give every edge its prior, and the weight and coefficients that follow from it and its counts."""
    columns.bound[: columns.edge_count] = priors.bound
    columns.take_priors(np.column_stack([*priors[:5], precision.inverse_edge]))
    state = columns.state
    count, edges = len(priors.noise), state.edges
    n, y, offered = state.data.n[:count], state.data.y[:count], state.data.offered[:count]
    weight = n / (n * priors.residual + priors.noise)
    level = priors.prior_mean + state.people.reference
    deviation = np.divide(y, n, out=level.copy(), where=n > 0) - level
    free = 1.0 - priors.residual * weight
    edges.weight[:count] = weight
    coefficients = weight * deviation, offered * free, weight
    edges.coefficient[:, :count] = coefficients[: len(edges.coefficient)]
    state.data.square[:count] = weight * deviation * deviation
    state.data.own[:count] = offered * offered * priors.residual * free


def rebuild(columns: Columns, precision: Precision, priors: Priors) -> None:
    """Fill in what follows from the precision and from what edges were given (`weigh`), from the last solution.

    `priors`: of all edges. Afterwards nobody is listed as moved; of those whose entries of the inverse data have
    reached, all but HEALED_AT_ONCE wait for healing.
    """
    sides = _solve_sides(columns, precision, priors)
    _start_inverse(columns, precision)
    _sum_up(columns, sides)


def _solve_sides(columns: Columns, precision: Precision, priors: Priors) -> Floats:
    """Λ and the right-hand sides anew, shape (sides, participants), and their solutions from the last ones."""
    m, count, state = columns.participants, columns.edge_count, columns.state
    edges, room = state.edges, state.rooms.other
    people = state.people._replace(x=flattened(state.people.x))
    tail, head, weight = edges.tail, edges.head, edges.weight[:count]
    on_tail, on_head = priors.on_tail, priors.on_head

    def at_people(at_tail: Floats, at_head: Floats) -> Floats:
        return np.bincount(tail, at_tail, m).astype(np.float64) + np.bincount(head, at_head, m)

    diagonal = np.ones(len(people.prior_mean))
    diagonal[:m] = precision.diagonal + at_people(weight * on_tail**2, weight * on_head**2)
    off = np.zeros(columns.edge_room)
    off[:count] = precision.off + weight * on_tail * on_head
    system = state.system._replace(off=whole(off), diagonal=whole(diagonal, 1))
    columns.state = state._replace(system=system, people=people)
    room.steps[ALLOWED] += WHOLE_GRAPH_ROUNDS * (m + 2 * count)
    sides = np.empty((people.residual.shape[1], m))
    for side, x in enumerate(_solutions(columns)):
        c = edges.coefficient[side, :count]
        sides[side] = at_people(c * on_tail, c * on_head)
        applied = diagonal[:m] * x + at_people(off[:count] * x[head], off[:count] * x[tail])
        people.residual[:m, side] = sides[side] - applied
    push_everybody(columns.state, m)
    room.steps[ALLOWED] -= WHOLE_GRAPH_ROUNDS * (m + 2 * count)
    return sides


def _solutions(columns: Columns) -> Floats:
    """The solutions, shape (sides, participants), where they are whole: a view."""
    x = columns.state.people.x
    return x.below.reshape(-1, x.own.shape[1])[: columns.participants].T


def _start_inverse(columns: Columns, precision: Precision) -> None:
    """Λ⁻¹ is Q⁻¹ but near data. Healing finds out how far that is."""
    m, count = columns.participants, columns.edge_count
    on_edge = np.zeros(columns.edge_room)
    on_edge[:count] = precision.inverse_edge
    people = columns.state.people
    taken = np.ones(len(people.prior_mean))
    taken[:m] = precision.inverse_diagonal
    waiting = healing(len(taken))
    inverse = columns.state.inverse._replace(
        healing=waiting, on_participant=whole(taken.copy(), 1), on_edge=whole(on_edge)
    )
    people = people._replace(prior_variance=whole(taken, 1))
    columns.state = columns.state._replace(inverse=inverse, people=people)
    state = columns.state
    screened = np.flatnonzero(state.edges.weight[:count])
    ends = union(state.edges.tail[screened], state.edges.head[screened])
    let_wait(inverse.healing, ends)
    heal(state.system, inverse, HEALED_AT_ONCE, state.rooms.other, state.rooms.people, NEVER)


def _sum_up(columns: Columns, sides: Floats) -> None:
    """The sums over the graph of these right-hand sides; and nobody has moved."""
    m, count, state = columns.participants, columns.edge_count, columns.state
    people, sums, news = state.people, state.sums, state.news
    x, residual = _solutions(columns), people.residual[:m].T
    sums.form[:] = np.einsum("su,su->s", sides + residual, x)
    if len(sides) > COMMON:
        taken_back = sides @ x[COMMON] + x @ residual[COMMON]
        sums.border[:] = state.edges.coefficient[:, :count].sum(axis=1) - taken_back
    sums.data[SQUARE], sums.data[OWN] = state.data.square[:count].sum(), state.data.own[:count].sum()
    for listed in (news.moved, news.later, news.stale):
        unmark_all(listed)
