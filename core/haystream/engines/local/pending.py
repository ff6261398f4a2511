"""Screenings that have been made and whose outcome is not known, in the local engine: for variances, and no mean.

p of them on an edge that has n give it the weight of n + p. With B the β̃ of the edges that have any, a column
each, and Δw by how much their weights grow,

    Λ' = Λ + B Δw Bᵀ        Λ'⁻¹ = Λ⁻¹ − K R Rᵀ Kᵀ        K = Λ⁻¹ B        R Rᵀ = (Δw⁻¹ + BᵀK)⁻¹

Such a screening sees M by 1 − β̃ᵀx₂, and the sum of what remains by β̃ᵀΛ⁻¹h + L Var(η). So with Z = D K R,
z = Rᵀ (1 − Bᵀx₂) and t = Rᵀ (BᵀΛ⁻¹h + L Var(η)),

    V' = V − Σ Z²        reach' = reach − Z z        1/v'_M = 1/v_M + zᵀz
    of what remains, given M: Var' = Var − tᵀt, a' = a − tᵀz

Λ, the right-hand sides and the entries of the inverse know nothing of it: what is read without pending screenings,
or when they are gone, is what it would be had there been none.
"""

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from haystream.arrays import Floats, Growing, Ints, Switches
from haystream.compiled import compiled
from haystream.engines.local.budget import HUB_CONTACTS
from haystream.engines.local.columns import Columns
from haystream.engines.local.edge_priors import NOISE, ON_HEAD, ON_TAIL, OWN_VARIANCE, edge_prior, numbers
from haystream.engines.local.sides import COMMON, REMAINING
from haystream.engines.local.solve import VALUE, Scratch, System, begin, forget, solve
from haystream.engines.local.state import Edges, State
from haystream.models.base import Ends
from haystream.models.common import Common
from haystream.overlay import entries, rows

NOBODY = -1
"""The row of Z of whom the solves do not reach: its last one, which is zero."""
LARGEST = 1.01
"""On the diagonal of such an inverse (`inverse_root`) nothing is above 1. Where more is, under extreme settings, an
eigenvalue has become too small."""


@compiled
def solve_edge(system: System, edges: Edges, edge: int, tolerance: float, room: Scratch) -> None:
    """Leave Λ⁻¹β̃ of an edge in `room`."""
    prior = edge_prior(edges.prior, edge)
    begin(system, room, edges.tail[edge], prior.on_tail)
    begin(system, room, edges.head[edge], prior.on_head)
    solve(system, tolerance, room)


def inverse_root(matrix: Floats) -> Floats:
    """R with R Rᵀ the inverse of a symmetric matrix whose eigenvalues are 1 or more, but for what solves left."""
    with suppress(np.linalg.LinAlgError):
        root = np.linalg.inv(np.linalg.cholesky(matrix)).T
        if (root * root).sum(axis=1).max(initial=0.0) < LARGEST:
            return np.asarray(root)
    values, Q = np.linalg.eigh(matrix)
    return np.asarray(Q / np.sqrt(np.maximum(values, 1.0)))


class Solved(NamedTuple):
    """What pending screenings on k edges do to those whom the solves reach: a row each, and a last one of zeros."""

    edges: Ints
    """Ascending, shape (k,)."""
    screenings: Floats
    """p, shape (k,)."""
    people: Ints
    """Ascending."""
    Z: Floats
    """Shape (people + 1, k); the last row is zero."""
    less: Floats
    """Σ Z² by row: what V loses."""
    short: Floats
    """Z z by row: what the reach does."""
    z: Floats
    t: Floats


NONE = Solved(
    np.zeros(0, np.int32),
    np.zeros(0),
    np.zeros(0, np.int32),
    np.zeros((1, 0)),
    np.zeros(1),
    np.zeros(1),
    np.zeros(0),
    np.zeros(0),
)


class Pending:
    """The pending screenings of a query, and what they do as of the last `settle`."""

    def __init__(self) -> None:
        self._counts: dict[int, float] = {}
        self._changed: set[int] = set()
        """Edges whose count did, since `settle`."""
        self._columns: dict[int, tuple[Ints, Floats]] = {}
        """Whose entry in K is not zero, and the entry, by edge."""
        self._solved = NONE
        self._row = Growing(np.int32, fill=NOBODY)
        """By participant."""
        self._told_less, self._told_short = Growing(np.float64), Growing(np.float64)
        """By participant, what `settle` last told of."""

    def __bool__(self) -> bool:
        """Whether there are any, now or as of the last `settle`."""
        return bool(self._counts or self._changed)

    def add(self, edge: int, screenings: float) -> None:
        """Count so many more on an edge; or, if negative, fewer."""
        self._changed.add(edge)
        self._counts[edge] = self._counts.get(edge, 0.0) + screenings
        if self._counts[edge] == 0.0:
            del self._counts[edge]

    def settle(self, columns: Columns, telling: float, *, stale: bool) -> Ints:
        """Find out what they do: a local solve for every edge that has any, or for new ones if nothing is `stale`.

        Returns the edges whose variance moved: their own count did, or V or the reach of an end by more than
        `telling` (of a hub by as much more as `announce.patience` has it), since this last named them.
        """
        if not (stale or self._changed):
            return np.zeros(0, np.int32)
        kept = {} if stale else self._columns
        self._columns = {edge: kept.get(edge) or _column(columns.state, edge) for edge in sorted(self._counts)}
        for of_people in (self._row, self._told_less, self._told_short):
            of_people.resize(columns.participants)
        system, before = columns.state.system, self._solved.people
        self._row.data[before] = NOBODY
        self._solved = self._solve(columns.state)
        people = np.union1d(before, self._solved.people)
        less, short = self._at(people)
        off = np.maximum(np.abs(less - self._told_less.data[people]), np.abs(short - self._told_short.data[people]))
        tell = off > telling * np.maximum(system.degree[people] / HUB_CONTACTS, 1.0)
        self._told_less.data[people[tell]], self._told_short.data[people[tell]] = less[tell], short[tell]
        begin, end = system.start, system.start + system.degree
        near = [system.incident[begin[u] : end[u]] for u in people[tell].tolist()]
        changed, self._changed = np.array(sorted(self._changed), dtype=np.int32), set()
        return np.unique(np.concatenate([changed, *near]))

    def _solve(self, state: State) -> Solved:
        edges, people = state.edges, state.people
        which = np.array(list(self._columns), dtype=np.int32)
        reached = [who for who, _ in self._columns.values()]
        everybody = np.unique(np.concatenate([np.zeros(0, np.int32), *reached]))
        row = self._row.data
        row[everybody] = np.arange(len(everybody))
        K = np.zeros((len(everybody) + 1, len(which)))
        for i, (who, values) in enumerate(self._columns.values()):
            K[row[who], i] = values

        tail, head = edges.tail[which], edges.head[which]
        on_tail, on_head, noise, residual = (
            numbers(edges.prior, which, column) for column in (ON_TAIL, ON_HEAD, NOISE, OWN_VARIANCE)
        )
        p = np.array([self._counts[edge] for edge in self._columns])
        one = state.data.n[which] * residual + noise
        root = np.sqrt(p * noise / (one * (one + p * residual)))  # of Δw
        inner = on_tail[:, None] * K[row[tail]] + on_head[:, None] * K[row[head]]
        R = root[:, None] * inverse_root(np.eye(len(which)) + 0.5 * root[:, None] * (inner + inner.T) * root)

        def at_ends(side: int) -> Floats:
            at_tail, at_head = rows(people.x, tail)[:, side], rows(people.x, head)[:, side]
            return np.asarray(on_tail * at_tail + on_head * at_head)

        learns = people.residual.shape[1] > COMMON
        Z = np.append(entries(people.scale, everybody), 0.0)[:, None] * (K @ R)
        z = (1.0 - at_ends(COMMON)) @ R if learns else np.zeros(len(which))
        t = (at_ends(REMAINING) + state.data.offered[which] * residual) @ R
        return Solved(which, p, everybody, Z, (Z * Z).sum(axis=1), Z @ z, z, t)

    # ---- reading ----

    def screenings(self, edges: Ints) -> Floats:
        """p of those edges."""
        known = self._solved
        place = np.searchsorted(known.edges, edges)
        found = np.append(known.edges, -1)[place] == edges
        return np.where(found, np.append(known.screenings, 0.0)[place], 0.0)

    def reaches(self, tail: Ints, head: Ints) -> Switches:
        """Whether they move a variance of edges with these ends, shape (k,)."""
        if not self._row.size:
            return np.zeros(len(tail), np.bool_)
        row = self._row.data
        return np.asarray((row[tail] != NOBODY) | (row[head] != NOBODY))

    def _at(self, participants: Ints) -> tuple[Floats, Floats]:
        rows = self._row.data[participants]
        return self._solved.less[rows], self._solved.short[rows]

    def common(self, known: Common) -> Common:
        """What all share, given what they share without pending screenings."""
        seen = float(self._solved.z @ self._solved.z)
        return known._replace(variance=known.variance / (1.0 + known.variance * seen))

    def variances(self, participants: Ints, variance: Floats, reach: Floats, common: Common) -> Floats:
        """Var(R), given what it would be if only `common`, which is that with pending screenings, knew of them."""
        less, short = self._at(participants)
        through_common = common.variance * short * (2.0 * reach - short)
        return np.maximum(variance - common.scale * (less + through_common), 0.0)

    def ends(self, ends: Ends, tail: Ints, head: Ints, common: Common) -> Ends:
        """Of edges' ends, likewise."""
        _, at_tail = self._at(tail)
        _, at_head = self._at(head)
        covariance = ends.covariance.copy()
        both = np.flatnonzero(self.reaches(tail, head))
        Z, row = self._solved.Z, self._row.data
        less = (Z[row[tail[both]]] * Z[row[head[both]]]).sum(axis=1)
        s, o = at_tail[both], at_head[both]
        through_common = s * ends.reach_head[both] + o * ends.reach_tail[both] - s * o
        covariance[both] -= common.scale * (less + common.variance * through_common)
        return ends._replace(
            variance_tail=self.variances(tail, ends.variance_tail, ends.reach_tail, common),
            variance_head=self.variances(head, ends.variance_head, ends.reach_head, common),
            covariance=covariance,
        )

    def remaining(self, given_common: float, reach: float) -> tuple[float, float]:
        """Of the sum of what remains the variance given M, in units of σ², and the reach, given these without."""
        t, z = self._solved.t, self._solved.z
        return given_common - float(t @ t), reach - float(t @ z)


def _column(state: State, edge: int) -> tuple[Ints, Floats]:
    room = state.rooms.column
    solve_edge(state.system, state.edges, edge, state.inverse.tolerances.corrected, room)
    who = room.touched[: room.listed[0]]
    who = who[room.cells[who, VALUE] != 0.0]
    values = room.cells[who, VALUE]
    forget(room)
    return who, values
