"""A store of one query's tables, in a test's own hands."""

import numpy as np

from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE
from haystream.posterior.rows import EDGE_COLUMNS, NOBODY, PARTICIPANT_COLUMNS, Changes, Posterior, Rows, Tables
from haystream.posterior.tables import laid_over, read, settled_inverse
from haystream.query.state import QueryState


class Stored:
    """What it was told since a query began, and what a reader makes of that who computes the prior by himself."""

    def __init__(self, query: QueryState, *, tolerance: float = DEFAULT_TOLERANCE) -> None:
        self.query = query
        self._tolerance = tolerance
        self.people, self.edges = no_rows(PARTICIPANT_COLUMNS), no_rows(EDGE_COLUMNS)

    def save(self, *, tended: bool = True) -> Changes:
        """Take over what changed."""
        self.query.settle()
        changes = self._last = self.query.drain(tended=tended)
        if changes.whole:
            self.people, self.edges = no_rows(PARTICIPANT_COLUMNS), no_rows(EDGE_COLUMNS)
        self.people, self.edges = patched(self.people, changes.participants), patched(self.edges, changes.edges)
        return changes

    def tables(self) -> Tables:
        """As a store would return them."""
        last = self._last
        return Tables(self.query.settings.prior, self.people, self.edges, last.size, last.common, last.discrepancy)

    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows of everybody, and of all edges, the prior's among them."""
        return laid_over(self.tables(), self._graph, self._inverse())

    def read(self) -> Posterior:
        """As somebody else reads them."""
        return read(self.tables(), self.query.collection.graph, self._inverse())

    @property
    def _graph(self):  # type: ignore[no-untyped-def]
        return self.query.collection.graph.as_of(self._last.size.edges)

    def _inverse(self) -> tuple[np.ndarray, np.ndarray]:
        return settled_inverse(self._graph, self.query.settings.prior, self._tolerance)


def no_rows(columns: int) -> Rows:
    return Rows(np.zeros(0, np.uint32), np.zeros((0, columns)), np.zeros(0, np.int32))


def patched(table: Rows, patch: Rows) -> Rows:
    """The table with these rows written where they say that they lie; without those that are NOBODY's."""
    size = max([*table.place, *patch.place], default=-1) + 1
    index, rows = np.full(size, NOBODY, np.uint32), np.full((size, table.rows.shape[1]), np.nan)
    assert len(np.unique(patch.place)) == len(patch.place)
    for written in (table, patch):
        index[written.place], rows[written.place] = written.index, written.rows
    place = np.flatnonzero(index != NOBODY).astype(np.int32)
    assert len(np.unique(index[place])) == len(place)
    assert not np.isnan(rows[place]).any()
    return Rows(index[place], rows[place], place)
