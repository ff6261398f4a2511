"""Which rows of a query's tables have moved since a store was last told, and what it is told of them."""

from haystream.engines.contract import Engine
from haystream.memory.arrays import Ints, union
from haystream.posterior.rows import Changes, Size
from haystream.posterior.tables import Writer

MOST_UNASKED = 100
"""Rows that are written with a verdict, where the graph has grown, without the question whether they are as the
prior says: to ask it of more takes less time than to write them."""

MOST_OCCASIONS = 64
"""On which rows moved, that are kept apart until a store is told of these."""


class MovedRows:
    """Rows that moved: participants and edges."""

    def __init__(self) -> None:
        self._moved: list[tuple[Ints, Ints]] = []

    def __bool__(self) -> bool:
        return bool(self._moved)

    def add(self, participants: Ints, edges: Ints) -> None:
        """Take some more, each ascending. Nobody may ask for long, and the same rows move again and again."""
        if len(participants) or len(edges):
            self._moved.append((participants, edges))
        if len(self._moved) > MOST_OCCASIONS:
            self._moved = [self.united()]

    def take(self) -> list[tuple[Ints, Ints]]:
        """All of them, which are then forgotten."""
        taken, self._moved = self._moved, []
        return taken

    def united(self) -> tuple[Ints, Ints]:
        """All of them, each once and ascending."""
        return _united(self._moved)


class UnsavedRows:
    """The rows that an engine moved and a store has otherwise, from the engine's beginning on."""

    def __init__(self) -> None:
        self.settled = MovedRows()
        """What facts moved."""
        self.tended = MovedRows()
        """What only `tend` moved."""
        self._not_asked = MovedRows()
        """What was drained without having been asked whether it is as the prior says."""
        self._writer = Writer()
        self._drained = Size(0, 0)

    def drop_needless(self, engine: Engine) -> None:
        """Forget what `tend` moved, if a store need not be told of any of it."""
        if not self._writer.concerned(engine, *self.tended.united()):
            self.tended.take()

    def outdated(self, engine: Engine, told: float) -> bool:
        """Whether a store lacks what `tend` moved, or what all rows are read with. `told`: what readers are told of
        a mean."""
        return bool(self.tended) or self._writer.outdated(engine, told)

    def drain(self, engine: Engine, size: Size, *, tended: bool) -> Changes:
        """What a store is to be told, where the engine has settled on a graph of that size (`QueryState.drain`)."""
        everything = tended or not self._writer.begun
        parts = [self.settled, self.tended, self._not_asked] if everything else [self.settled]
        people, edges = _united([rows for part in parts for rows in part.take()])
        may_leave = engine.may_leave
        many = len(people) + len(edges) > MOST_UNASKED
        asked = may_leave and (everything or (many and size != self._drained))
        changes = self._writer.changes(engine, size, people, edges, leaving=asked)
        self._drained = size
        if everything:
            engine.may_leave = False
        elif may_leave and not asked:
            self._not_asked.add(people, edges)
        return changes


def _united(moved: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    return union(*(people for people, _ in moved)), union(*(edges for _, edges in moved))
