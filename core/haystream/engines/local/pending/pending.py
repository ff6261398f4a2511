"""Screenings that have been made and whose outcome is not known, in the local engine: for variances, and no mean.

p of them on an edge that has n give it the weight of n + p. With B the β̃ of the edges that have any, a column
each, and Δw by how much their weights grow,

    Λ' = Λ + B Δw Bᵀ        V − V' = D (Λ⁻¹ − Λ'⁻¹) D

which few columns tell (`pending.parts`, `pending.squares`). What they see of the common mean and of the sum of what
remains (`pending.seen`), in a 2 × 2 matrix F and the solution y of the former, says

    reach' = reach − D y        1/v'_M = 1/v_M + F₁₁        of what remains, given M: Var' = Var − F₂₂, a' = a − F₁₂

Λ, the right-hand sides and the entries of the inverse know nothing of it: what is read without pending screenings,
or when they are gone, is what it would be had there been none.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from haystream.engines.local.pending.columns import PendingColumns
from haystream.engines.local.pending.light import LEAST_PER_COLUMN, NO_SCREENINGS, Lot, Screenings, screenings
from haystream.engines.local.pending.parts import parts_of
from haystream.engines.local.pending.seen import NOTHING_SEEN, seen_by, sources_of
from haystream.engines.local.pending.squares import NOTHING_TAKEN, between, taken_by
from haystream.engines.local.solves.budget import HUB_CONTACTS
from haystream.engines.local.state.columns import Columns
from haystream.engines.local.state.edge_priors import NOISE, OWN_VARIANCE, numbers
from haystream.engines.local.state.state import State
from haystream.memory.arrays import Floats, Growing, Ints, Switches, union
from haystream.memory.overlay import entries
from haystream.models.base import Ends
from haystream.models.common import Common


class Pending:
    """The pending screenings of a query, and what they do as of the last `settle`."""

    def __init__(self) -> None:
        self._counts: dict[int, float] = {}
        self._calls: dict[bytes, float] = {}
        """What `add` was called with: the edges of an item, and the screenings that wait there."""
        self._changed: set[int] = set()
        """Edges whose count did, since `settle`."""
        self._some, self._screened = NO_SCREENINGS, np.zeros(0)
        """All of them as of the last `settle`, and p of each edge."""
        self._lots: list[Lot] = []
        """What is known to be of items of many people."""
        self._columns, self._taken, self._seen = PendingColumns(), NOTHING_TAKEN, NOTHING_SEEN
        self._row = Growing(np.int32)
        """By participant, in what is taken from variances; 0 of whom no column reaches."""
        self._short = Growing(np.float64)
        """By participant, by how much the reach is less."""
        self._told_less, self._told_short = Growing(np.float64), Growing(np.float64)
        """By participant, what `settle` last told of."""

    def __bool__(self) -> bool:
        """Whether there are any, now or as of the last `settle`."""
        return bool(self._counts or self._changed)

    def add(self, edges: Ints, screenings: float) -> None:
        """Count so many more on some edges; or, if negative, fewer."""
        name = edges.tobytes()
        self._calls[name] = self._calls.get(name, 0.0) + screenings
        if self._calls[name] == 0.0:
            del self._calls[name]
        for edge in edges.tolist():
            self._changed.add(edge)
            self._counts[edge] = self._counts.get(edge, 0.0) + screenings
            if self._counts[edge] == 0.0:
                del self._counts[edge]

    def settle(self, columns: Columns, telling: float, variance: float, stale: Ints | None) -> Ints:
        """Find out what they do, by local solves for what is new, and for what is near where Λ has changed.

        `stale`: edges since the last call whose prior has changed, or where Λ has; None for any. Healing the
        entries of the inverse changes no solution. `variance`: v_M at most, as variances are read with it.

        Returns the edges whose variance moved: their own count did, or V or the reach of an end by more than
        `telling` (of a hub by as much more as `announce.patience` has it), since this last named them.
        """
        if stale is not None and not (len(stale) or self._changed):
            return np.zeros(0, np.int32)
        for of_people in (self._row, self._short, self._told_less, self._told_short):
            of_people.resize(columns.participants)
        system, before = columns.state.system, self._seen.people
        self._solve(columns, variance, stale)
        people = union(before, self._seen.people)
        less, short = self._at(people)
        off = np.maximum(np.abs(less - self._told_less.data[people]), np.abs(short - self._told_short.data[people]))
        tell = off > telling * np.maximum(system.degree[people] / HUB_CONTACTS, 1.0)
        self._told_less.data[people[tell]], self._told_short.data[people[tell]] = less[tell], short[tell]
        begin, end = system.start, system.start + system.degree
        near = [system.incident[begin[u] : end[u]] for u in people[tell].tolist()]
        changed, self._changed = np.array(sorted(self._changed), dtype=np.int32), set()
        return union(changed, *near)

    def _solve(self, columns: Columns, variance: float, stale: Ints | None) -> None:
        """Solve for what has changed, and for nothing else: of a query that is slim, that is what is pending."""
        state, taken = columns.state, self._taken
        parts = taken.parts
        if stale is None or self._changed or np.isin(self._some.which, stale).any():
            some, lots = self._now(state)
            if not (_same(some, self._some) and all(map(_same, lots, self._lots)) and len(lots) == len(self._lots)):
                parts = parts_of(state.edges, some, lots, state.inverse.tolerances.corrected)
            self._some, self._lots = some, lots
        if not self._counts:
            self._row.data[taken.people], self._short.data[self._seen.people] = 0, 0.0
            self._columns, self._taken, self._seen = PendingColumns(), NOTHING_TAKEN, NOTHING_SEEN
            return
        solved = self._columns.solve(state, parts, stale)
        D = entries(state.people.scale, taken.people)
        if parts is not taken.parts or solved is not taken.columns or not np.array_equal(D, taken.D):
            self._row.data[taken.people] = 0
            self._taken = taken_by(state, parts, solved, self._row.data)
        sources, seen = sources_of(state, self._some, variance), self._seen
        as_it_was = self._taken is taken and np.array_equal(entries(state.people.scale, seen.people), seen.D)
        if not (as_it_was and sources.asks_no_more(seen.sources)):
            columns.fill_out()
            self._short.data[seen.people] = 0.0
            self._seen = seen_by(state, self._some, self._taken, sources, seen.y, self._short.data)

    def _now(self, state: State) -> tuple[Screenings, list[Lot]]:
        """All of them, and what is known to be of items of many people."""
        edges, which = state.edges, np.array(sorted(self._counts), dtype=np.int32)
        noise, residual = (numbers(edges.prior, which, column) for column in (NOISE, OWN_VARIANCE))
        p = self._screened = np.array([self._counts[edge] for edge in which.tolist()])
        one = state.data.n[which] * residual + noise
        some = screenings(edges, which, np.sqrt(p * noise / (one * (one + p * residual))))  # √Δw
        if min(self._calls.values(), default=0.0) < 0.0:
            return some, []  # somebody took away what was not added by itself
        lots = []
        of_many = LEAST_PER_COLUMN * which.itemsize  # or more; an item of few is no lot
        for of_item, screened in sorted(call for call in self._calls.items() if len(call[0]) > of_many):
            on = np.frombuffer(of_item, which.dtype)
            rows = np.searchsorted(which, on)
            if np.array_equal(which[rows[rows < len(which)]], on):
                lots.append(Lot(rows, screened / p[rows]))
        return some, lots

    # ---- reading ----

    def screenings(self, edges: Ints) -> Floats:
        """p of those edges."""
        known = self._some.which
        place = np.searchsorted(known, edges)
        found = np.append(known, -1)[place] == edges
        return np.where(found, np.append(self._screened, 0.0)[place], 0.0)

    def reaches(self, tail: Ints, head: Ints) -> Switches:
        """Whether they move a variance of edges with these ends, shape (k,)."""
        if not self._row.size:
            return np.zeros(len(tail), np.bool_)
        moved = [(self._row.data[ends] != 0) | (self._short.data[ends] != 0.0) for ends in (tail, head)]
        return np.asarray(moved[0] | moved[1])

    def _at(self, participants: Ints) -> tuple[Floats, Floats]:
        return self._taken.variance[self._row.data[participants]], self._short.data[participants]

    def common(self, known: Common) -> Common:
        """What all share, given what they share without pending screenings."""
        seen = max(self._seen.forms.item(0, 0), 0.0)
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
        less = between(self._taken.squared, row[tail[both]], row[head[both]])
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
        seen = self._seen.forms
        return given_common - max(seen.item(1, 1), 0.0), reach - seen.item(0, 1)


def _same(some: tuple[NDArray[Any], ...], others: tuple[NDArray[Any], ...]) -> bool:
    return all(map(np.array_equal, some, others))
