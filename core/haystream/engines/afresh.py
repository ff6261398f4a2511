"""The whole of the local engine's state, computed at once: for a graph that is new, or largely so."""

import numpy as np

from haystream.engines.columns import Columns
from haystream.engines.inverse import AT_ONCE, heal, healing, let_wait
from haystream.engines.relax import TOUCHED, Floats, relax
from haystream.engines.state import COMMON, ENTRIES
from haystream.models.base import Priors
from haystream.prior import Precision


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
    n, y, offered = columns.n[:count], columns.y[:count], columns.offered[:count]
    weight = n / (n * priors.residual + priors.noise)
    deviation = np.divide(y, n, out=priors.prior_mean.copy(), where=n > 0) - priors.prior_mean
    free = 1.0 - priors.residual * weight
    edges.weight[:count] = weight
    coefficients = weight * deviation, offered * free, weight
    edges.coefficient[:, :count] = coefficients[: len(edges.coefficient)]
    columns.square[:count] = weight * deviation * deviation
    columns.own[:count] = offered * offered * priors.residual * free

    def at_people(at_tail: Floats, at_head: Floats) -> Floats:
        return np.bincount(tail, at_tail, m).astype(np.float64) + np.bincount(head, at_head, m)

    on_tail, on_head = priors.on_tail, priors.on_head
    columns.diagonal[:m] = precision.diagonal + at_people(weight * on_tail**2, weight * on_head**2)
    columns.off[:count] = precision.off + weight * on_tail * on_head
    for side, tolerance in enumerate(tolerances[:ENTRIES]):
        c, x = edges.coefficient[side, :count], people.x[side]
        people.rhs[side, :m] = at_people(c * on_tail, c * on_head)
        applied = columns.diagonal[:m] * x[:m]
        applied += at_people(columns.off[:count] * x[head], columns.off[:count] * x[tail])
        people.r[side, :m] = people.rhs[side, :m] - applied
        columns.room.touched[:m] = everyone
        columns.room.flags[:m] = TOUCHED
        relax(columns.system, x, people.r[side], people.rhs[side], tolerance, columns.room, m)
        columns.room.flags[:m] = 0

    people.variance[:m], edges.covariance[:count] = precision.inverse_diagonal, precision.inverse_edge
    # Λ⁻¹ is Q⁻¹ but near data. Healing finds out how far that is.
    columns.healing = healing(len(columns.moved_flags))
    screened = np.flatnonzero(weight)
    let_wait(columns.healing, np.union1d(tail[screened], head[screened]).astype(np.int32))
    heal(
        columns.system,
        columns.healing,
        AT_ONCE,
        tolerances[ENTRIES],
        people.variance,
        edges.covariance,
        columns.room,
        columns.changed,
    )
    columns.sums.form[:] = np.einsum("su,su->s", people.rhs[:, :m], people.x[:, :m])
    if len(people.x) > COMMON:  # as `recount` does
        counted = people.rhs[:, :m] * people.x[COMMON, :m] + people.x[:, :m] * people.r[COMMON, :m]
        people.counted[:, :m] = counted
        columns.sums.border[:] = edges.coefficient[:, :count].sum(axis=1) - counted.sum(axis=1)
    columns.moved_flags[:] = 0
    columns.edge_flags[:] = 0
