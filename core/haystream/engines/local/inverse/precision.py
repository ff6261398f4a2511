"""The precision of x in Z = E[Z] + D x, D diagonal, as engines need it: Q, Q⁻¹ on the graph, and what moved them.

For the paper's graph-structured prior Σ = B Q⁻¹ B (section 5.2.2) D = B and the precision is Q: a diagonal entry
per participant and one entry per edge (`prior_inverse`). For an explicit Σ, D = I and the precision is Σ⁻¹, which
has to have the sparsity of the graph (`explicit_precision`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np

from haystream.engines.local.state.state import Workspace
from haystream.memory.arrays import Floats, Ints, union

ALWAYS_ONE_BY_ONE, ONE_BY_ONE = 2, 8
"""So many new edges are let in one by one, each with some local solves, half a millisecond; more than the first
only where the work is small (`ENTRIES_ONE_BY_ONE`). What more of them do to Q⁻¹ is estimated, and healed when there
is time: in all that takes longer, by twice and more, but a verdict waits for little of it."""

ENTRIES_ONE_BY_ONE = 256
"""Entries of Q that change in all, at most, where more than ALWAYS_ONE_BY_ONE edges are let in one by one: an edge
at a hub takes as long as many."""

ROWS_AN_EDGE = 3
"""Rows of Q that a new edge changes, one after the other: both ends' other entries shrink, then its own comes.

Up to so many for each edge are followed one by one, by the same rule. More of them are summed up; what they do to
Λ⁻¹ where data have reached is estimated, and healed when there is time."""

MOST_BEHIND = 4096
"""So many changes are kept for who has not been told. Who is further behind starts afresh: that costs less then."""


@dataclass(frozen=True, slots=True)
class Change:
    """Some off-diagonal entries of Q changed by `deltas`; (Q⁻¹) moved at `touched`."""

    row: int | None
    """The participant at whom all of them are; or the change of Q⁻¹ was estimated."""
    edges: Ints
    deltas: Floats
    touched: Ints


class UnreadChanges:
    """Some changes in a row, and what whoever follows them needs of them: made once for all who do.

    More changed rows than are followed one by one, and rows beside what was estimated, are followed in two: all of
    Q at once, as if what that does to Q⁻¹ had been estimated; then Q⁻¹, solved afresh wherever it moved. Where it
    is an estimate still, that is told again once it is solved.
    """

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        of_rows = [len(change.edges) for change in changes if change.row is not None]
        rows, entries = len(of_rows), sum(of_rows)
        estimated = any(change.row is None and len(change.edges) for change in changes)
        self.moves_edges = bool(rows) or estimated
        """Whether entries of Q change."""
        self.summed = (rows > 0 and estimated) or not one_by_one(rows / ROWS_AN_EDGE, entries)
        self.estimated = estimated or self.summed
        """Whether what entries of Q do to the inverse is estimated, of any that change."""

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.changes)

    @cached_property
    def of_edges(self) -> Sequence[Change]:
        """The changes of Q, in the order in which to follow them."""
        if not self.summed:
            return [change for change in self.changes if len(change.edges)]
        edges, at = np.unique(np.concatenate([change.edges for change in self.changes]), return_inverse=True)
        deltas = np.zeros(len(edges))
        np.add.at(deltas, at, np.concatenate([change.deltas for change in self.changes]))
        return [Change(None, edges, deltas, self.touched)]

    @cached_property
    def solved(self) -> Ints:
        """Where Q⁻¹ is to be taken over."""
        return self.touched if self.summed else union(*(c.touched for c in self.changes if not len(c.edges)))

    @cached_property
    def touched(self) -> Ints:
        """Where Q⁻¹ moved at all."""
        return union(*(change.touched for change in self.changes))


def one_by_one(new: float, entries: int) -> bool:
    """Whether new edges are let in one by one, that change so many entries of Q."""
    return new <= ALWAYS_ONE_BY_ONE or (new <= ONE_BY_ONE and entries <= ENTRIES_ONE_BY_ONE)


class Changes:
    """What happened to a precision since it last changed throughout, in order; each reader is told once.

    What every reader has been told is forgotten, and so is what is MOST_BEHIND ago; readers that are gone do not
    count.
    """

    def __init__(self, log: Sequence[Change] | None = ()) -> None:
        """`log`: what has happened before anybody is told; None where that is forgotten."""
        self._log: list[Change] = list(log or ())
        self._begin = 0 if log is not None else 1
        self._told: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._unread: dict[int, UnreadChanges] = {}
        """All that happened since some moment, as it was last asked for."""

    def append(self, change: Change) -> None:
        """Something happened."""
        self._log.append(change)
        self._unread.clear()

    def clear(self) -> None:
        """Everything has changed: what came before does not matter any more."""
        self._begin += len(self._log)
        self._log.clear()
        self._unread.clear()

    def pending(self, reader: object) -> float:
        """At how many participants (Q⁻¹) moved since this reader last asked, each time counted; inf if that is not
        known any more.
        """
        since = self._told.get(reader, 0) - self._begin
        return sum(len(change.touched) for change in self._log[since:]) if since >= 0 else np.inf

    @property
    def followed(self) -> bool:
        """Whether any reader is there."""
        return len(self._told) > 0

    def follow(self, reader: object, like: object) -> None:
        """Count a reader as one who has been told what another has."""
        self._told[reader] = self._told.get(like, 0)

    def unread(self, reader: object) -> UnreadChanges | None:
        """What happened since this reader last asked, or None where some of that is forgotten."""
        since = self._told.get(reader, 0)
        news = None if since < self._begin else self._unread.get(since)
        if news is None and since >= self._begin:
            news = self._unread[since] = UnreadChanges(self._log[since - self._begin :])
        self._told[reader] = self._begin + len(self._log)
        if news is not None and not news:
            return news  # whom it was told before is asked for by whoever is told more: there may be many readers
        everybody = max(min(self._told.values()) - self._begin, len(self._log) - MOST_BEHIND)
        if everybody > 0:
            del self._log[:everybody]
            self._begin += everybody
        return news


class Precision(Protocol):
    """The prior precision of x, and its inverse on the graph."""

    builds: int
    """How often it changed throughout; between, `changes` says what happened to it."""
    changes: Changes
    workspace: Workspace
    """The rooms of all engines that have this precision."""

    @property
    def diagonal(self) -> Floats:
        """The diagonal of Q, shape (participants,)."""
        ...

    @property
    def off(self) -> Floats:
        """Q_uv of each edge's ends, shape (edges,)."""
        ...

    @property
    def inverse_diagonal(self) -> Floats:
        """(Q⁻¹)_uu, shape (participants,)."""
        ...

    @property
    def inverse_edge(self) -> Floats:
        """(Q⁻¹)_uv, shape (edges,)."""
        ...

    def grow(self) -> None:
        """Follow the graph."""
        ...

    def tend(self, most: int, stop: Ints) -> None:
        """Undo drift of the inverse at up to `most` participants that wait for it, until `stop` is set."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether any participants wait for `tend`."""
        ...

    @property
    def given_up(self) -> bool:
        """Whether a solve took too many steps: the inverse is good for nothing any more."""
        ...


class PrecisionAsItWas:
    """A precision as it was at some moment, for work on it in another thread while it goes on changing."""

    def __init__(self, precision: Precision, news: UnreadChanges | None) -> None:
        """`news`: what whoever is to work with this has not been told of it, as `Changes.unread` says it."""
        self.builds = precision.builds
        self.changes = Changes(None if news is None else news.changes)
        self.workspace = Workspace()
        self.diagonal, self.off = precision.diagonal.copy(), precision.off.copy()
        self.inverse_diagonal, self.inverse_edge = precision.inverse_diagonal.copy(), precision.inverse_edge.copy()
        self.given_up = precision.given_up
        self.waiting = precision.waiting
        """Whether any did: what they have is an estimate, and so is what is made of it."""

    def grow(self) -> None:
        """Nothing comes any more."""

    def tend(self, most: int, stop: Ints) -> None:
        """Nothing is done about drift here."""
