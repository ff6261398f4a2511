"""Screenings that have been made and whose outcome is not known, in the local engine: for variances, and no mean.

p of them on an edge that has n give it the weight of n + p. With B the β̃ of the edges that have any, a column
each, and Δw by how much their weights grow,

    Λ' = Λ + B Δw Bᵀ        Λ'⁻¹ = Λ⁻¹ − K R Rᵀ Kᵀ        K = Λ⁻¹ B √Δw        R Rᵀ = (1 + √Δw BᵀK)⁻¹

or with the fewer columns U G in place of B √Δw (`pending_parts`). Such a screening sees M by 1 − β̃ᵀx₂, and the sum
of what remains by β̃ᵀΛ⁻¹h + L Var(η). So with Z = D K R, z = Rᵀ √Δw (1 − Bᵀx₂), t = Rᵀ √Δw (BᵀΛ⁻¹h + L Var(η)), and
below them in z and t whatever of these is along no column,

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
from haystream.engines.local.budget import HUB_CONTACTS, THINNED_FACTOR
from haystream.engines.local.columns import Columns
from haystream.engines.local.edge_priors import NOISE, ON_HEAD, ON_TAIL, OWN_VARIANCE, numbers
from haystream.engines.local.low_rank import Rows, dot, some_rows
from haystream.engines.local.pending_columns import Located, PendingColumns
from haystream.engines.local.pending_parts import parts_of
from haystream.engines.local.pending_squares import NOTHING, Squared, between, squared_by, thinned
from haystream.engines.local.sides import COMMON, REMAINING
from haystream.engines.local.state import State
from haystream.models.base import Ends
from haystream.models.common import Common
from haystream.overlay import entries, rows

LARGEST = 1.01
"""On the diagonal of such an inverse (`inverse_root`) nothing is above 1. Where more is, under extreme settings, an
eigenvalue has become too small."""


def inverse_root(matrix: Floats) -> Floats:
    """R with R Rᵀ the inverse of a symmetric matrix whose eigenvalues are 1 or more, but for what solves left."""
    with suppress(np.linalg.LinAlgError):
        root = np.linalg.inv(np.linalg.cholesky(matrix)).T
        if (root * root).sum(axis=1).max(initial=0.0) < LARGEST:
            return np.asarray(root)
    values, Q = np.linalg.eigh(matrix)
    return np.asarray(Q / np.sqrt(np.maximum(values, 1.0)))


class Solved(NamedTuple):
    """What pending screenings on k edges do to those whom the solves reach: a row each after one of zeros."""

    edges: Ints
    """Ascending, shape (k,)."""
    screenings: Floats
    """p, shape (k,)."""
    squared: Squared
    """Z Zᵀ."""
    less: Floats
    """Σ Z² by row: what V loses."""
    short: Floats
    """Z z by row: what the reach does."""
    z: Floats
    t: Floats


NONE = Solved(
    np.zeros(0, np.int32),
    np.zeros(0),
    NOTHING,
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
        self._columns = PendingColumns()
        self._solved = NONE
        self._row = Growing(np.int32)
        """By participant; 0 of whom the solves do not reach."""
        self._told_less, self._told_short = Growing(np.float64), Growing(np.float64)
        """By participant, what `settle` last told of."""

    def __bool__(self) -> bool:
        """Whether there are any, now or as of the last `settle`."""
        return bool(self._counts or self._changed)

    def add(self, edges: Ints, screenings: float) -> None:
        """Count so many more on some edges; or, if negative, fewer."""
        for edge in edges.tolist():
            self._changed.add(edge)
            self._counts[edge] = self._counts.get(edge, 0.0) + screenings
            if self._counts[edge] == 0.0:
                del self._counts[edge]

    def settle(self, columns: Columns, telling: float, stale: Ints | None) -> Ints:
        """Find out what they do, by local solves for what is new, and for what is near where Λ has changed.

        `stale`: edges since the last call whose prior has changed, or where Λ has; None for any. Healing the
        entries of the inverse changes no solution.

        Returns the edges whose variance moved: their own count did, or V or the reach of an end by more than
        `telling` (of a hub by as much more as `announce.patience` has it), since this last named them.
        """
        if stale is not None and not (len(stale) or self._changed):
            return np.zeros(0, np.int32)
        for of_people in (self._row, self._told_less, self._told_short):
            of_people.resize(columns.participants)
        system, before = columns.state.system, self._solved.squared.rows.people
        self._row.data[before] = 0
        self._solved = self._solve(columns.state, stale) if self._counts else NONE
        people = np.union1d(before, self._solved.squared.rows.people)
        less, short = self._at(people)
        off = np.maximum(np.abs(less - self._told_less.data[people]), np.abs(short - self._told_short.data[people]))
        tell = off > telling * np.maximum(system.degree[people] / HUB_CONTACTS, 1.0)
        self._told_less.data[people[tell]], self._told_short.data[people[tell]] = less[tell], short[tell]
        begin, end = system.start, system.start + system.degree
        near = [system.incident[begin[u] : end[u]] for u in people[tell].tolist()]
        changed, self._changed = np.array(sorted(self._changed), dtype=np.int32), set()
        return np.unique(np.concatenate([changed, *near]))

    def _solve(self, state: State, stale: Ints | None) -> Solved:
        edges, people = state.edges, state.people
        which = np.array(sorted(self._counts), dtype=np.int32)
        tail, head = edges.tail[which], edges.head[which]
        on_tail, on_head, noise, residual = (
            numbers(edges.prior, which, column) for column in (ON_TAIL, ON_HEAD, NOISE, OWN_VARIANCE)
        )
        p = np.array([self._counts[edge] for edge in which.tolist()])
        one = state.data.n[which] * residual + noise
        root = np.sqrt(p * noise / (one * (one + p * residual)))  # of Δw
        parts = parts_of(edges, which, root, state.inverse.tolerances.corrected)

        row = self._row.data
        K = self._columns.solve(state, parts, stale, row)
        at_sources = some_rows(K, row[parts.U.who], len(parts.names))
        inner = np.add.reduceat(parts.U.value[:, None] * at_sources, parts.U.begin[:-1])  # UᵀΛ⁻¹U
        inner = parts.from_right(parts.from_right(inner).T)
        R = inverse_root(np.eye(len(inner)) + 0.5 * (inner + inner.T))

        def at_ends(side: int) -> Floats:
            at_tail, at_head = rows(people.x, tail)[:, side], rows(people.x, head)[:, side]
            return np.asarray(on_tail * at_tail + on_head * at_head)

        def seen(of_edges: Floats) -> Floats:
            through, rest = parts.along(root * of_edges)
            return np.concatenate([through @ R, rest])

        z = seen(1.0 - at_ends(COMMON) if people.residual.shape[1] > COMMON else np.zeros(len(which)))
        t = seen(at_ends(REMAINING) + state.data.offered[which] * residual)
        GR, D = parts.from_left(R), entries(people.scale, K.people)
        short = np.zeros(len(D) + 1)
        times_vector(K, GR @ z[: len(R)], short)
        short[1:] *= D
        leaves_out = THINNED_FACTOR * state.inverse.tolerances.corrected
        K = thinned(state.system, Located(K, row), leaves_out / (2.0 * parts.most))
        squared = squared_by(K._replace(value=K.value * np.repeat(D, np.diff(K.begin[1:]))), GR @ GR.T)
        each = np.arange(len(short), dtype=np.int32)
        return Solved(which, p, squared, between(squared, each, each), short, z, t)

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
        return np.asarray((row[tail] != 0) | (row[head] != 0))

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
        row = self._row.data
        less = between(self._solved.squared, row[tail[both]], row[head[both]])
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


@compiled
def times_vector(rows: Rows, vector: Floats, products: Floats) -> None:
    """Each row times a vector, shape (rows,)."""
    for i in range(len(products)):
        products[i] = dot(rows, i, vector)
