"""The whole of the local engine's state, computed at once: for a graph that is new, or largely so."""

import numpy as np

from haystream.arrays import Floats
from haystream.engines.contract import NEVER
from haystream.engines.local.columns import Columns
from haystream.engines.local.healing import AT_ONCE, COLUMN_TOLERANCE, heal, healing, let_wait
from haystream.engines.local.prior_inverse import Precision
from haystream.engines.local.solve import ALLOWED, DIAGONAL, LISTED, MARK, RESIDUAL, ROUNDS, UNMARKED, VALUE, relax
from haystream.engines.local.state import COMMON, ENTRIES
from haystream.models.base import Priors


def solve_afresh(columns: Columns, precision: Precision, priors: Priors, tolerances: Floats) -> None:
    """Fill in everything that follows from counts, the precision and the edges' priors, from the last solution.

    `priors`: of all edges. `tolerances`: (sides,). Afterwards nobody is listed as moved; of those
    whose entries of the inverse data have reached, all but AT_ONCE wait for healing.
    """
    m, count = columns.participants, columns.edge_count
    people, edges = columns.people, columns.edges
    tail, head = edges.tail, edges.head
    everyone = np.arange(m, dtype=np.int32)

    columns.bound[:count] = priors.bound
    for column, values in zip(edges[2:7], priors[:5], strict=True):
        column[:count] = values
    n, y, offered = columns.data.n[:count], columns.data.y[:count], columns.data.offered[:count]
    weight = n / (n * priors.residual + priors.noise)
    deviation = np.divide(y, n, out=priors.prior_mean.copy(), where=n > 0) - priors.prior_mean
    free = 1.0 - priors.residual * weight
    edges.weight[:count] = weight
    coefficients = weight * deviation, offered * free, weight
    edges.coefficient[:, :count] = coefficients[: len(edges.coefficient)]
    columns.data.square[:count] = weight * deviation * deviation
    columns.data.own[:count] = offered * offered * priors.residual * free

    def at_people(at_tail: Floats, at_head: Floats) -> Floats:
        return np.bincount(tail, at_tail, m).astype(np.float64) + np.bincount(head, at_head, m)

    on_tail, on_head = priors.on_tail, priors.on_head
    diagonal = precision.diagonal + at_people(weight * on_tail**2, weight * on_head**2)
    columns.off[:count] = precision.off + weight * on_tail * on_head
    for cells in (*people.sides, columns.work.column.cells, columns.work.room.cells):
        cells[:m, DIAGONAL] = diagonal
    for side, (cells, tolerance) in enumerate(zip(people.sides, tolerances[:ENTRIES], strict=True)):
        c, x = edges.coefficient[side, :count], cells[:m, VALUE]
        people.rhs[:m, side] = at_people(c * on_tail, c * on_head)
        applied = diagonal * x + at_people(columns.off[:count] * x[head], columns.off[:count] * x[tail])
        cells[:m, RESIDUAL] = people.rhs[:m, side] - applied
        cells[:m, MARK] = LISTED
        columns.work.room.touched[:m] = everyone
        rhs, along = people.rhs[:, side], columns.work.room.nothing
        columns.work.room.steps[ALLOWED] += ROUNDS * (m + 2 * count)
        relax(columns.system, cells, tolerance, columns.work.room, m, rhs, people.sides, along)
        columns.work.room.steps[ALLOWED] -= ROUNDS * (m + 2 * count)
        cells[:m, MARK] = UNMARKED

    people.variance[:m] = people.prior_variance[:m] = precision.inverse_diagonal
    edges.covariance[:count] = precision.inverse_edge
    # Λ⁻¹ is Q⁻¹ but near data. Healing finds out how far that is.
    columns.work = columns.work._replace(healing=healing(len(columns.work.moved_flags)))
    screened = np.flatnonzero(weight)
    let_wait(columns.work.healing, np.union1d(tail[screened], head[screened]).astype(np.int32))
    heal(
        columns.system,
        columns.work.healing,
        AT_ONCE,
        tolerances[ENTRIES],
        COLUMN_TOLERANCE,
        people.variance,
        edges.covariance,
        columns.work.room,
        columns.work.changed,
        NEVER,
    )
    rhs, x = people.rhs[:m], people.sides[:, :m, VALUE].T
    columns.work.sums.form[:] = np.einsum("us,us->s", rhs, x)
    if len(people.sides) > COMMON:
        taken_back = rhs.T @ x[:, COMMON] + x.T @ people.sides[COMMON, :m, RESIDUAL]
        columns.work.sums.border[:] = edges.coefficient[:, :count].sum(axis=1) - taken_back
    columns.work.moved_flags[:] = 0
    columns.edge_flags[:] = 0
