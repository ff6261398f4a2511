"""How much growth is let into a collection at once, so that a verdict never waits long for it."""

from collections import deque
from collections.abc import Callable

from haystream.collection.collection import Collection
from haystream.events import Item, ItemFact, Pair

ADDED_AT_ONCE = 250
"""Items added between two looks at the event loop: some 1 ms."""
SLICE_SECONDS = 0.02
"""What a query in memory takes to fold in a slice of growth, about: so long a verdict may wait for it."""
LEAST_COST, MOST_COST = 64.0, 256.0
"""Bounds of a slice, in new pairs. With fewer than the least each costs several times as much."""
KNOWN_COST = 0.1
"""An item on a pair that is known, in new pairs: it changes a count, and scores."""


class Slices:
    """How much of what was read is let in at once: as much as a query takes in within `SLICE_SECONDS`.

    Measured in new pairs, and not in items: an item between 64 people has 2,016 of them, and on pairs that are
    known it is next to no work.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._most = MOST_COST
        self._full = False

    def next(self, left: deque[ItemFact]) -> list[ItemFact]:
        """The entries that come next, taken out of `left`: one at least."""
        known, some = self._collection.graph.edge_between, [left.popleft()]
        cost = _cost(some[0], known)
        while left and len(some) < ADDED_AT_ONCE and cost + (more := _cost(left[0], known)) <= self._most:
            some.append(left.popleft())
            cost += more
        self._full = cost > self._most / 2
        return some

    def adapt(self, seconds: float) -> None:
        """Take less or more from now on, where the slowest query took so long for the last slice."""
        if seconds > 2 * SLICE_SECONDS:
            self._most = max(LEAST_COST, self._most / 2)
        elif seconds < SLICE_SECONDS / 2 and self._full:
            self._most = min(MOST_COST, 2 * self._most)


def _cost(entry: ItemFact, known: Callable[[Pair], int | None]) -> float:
    """New pairs of the item; one that is known counts a part of one, and so does a withdrawal."""
    pairs = entry.pairs() if isinstance(entry, Item) else ()
    return max(KNOWN_COST, sum(1.0 if known(pair) is None else KNOWN_COST for pair in pairs))
