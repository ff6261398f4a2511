"""Which items lie on the very same edges, and which sets of items lie on an edge."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np

from haystream.collection.chains import Chains
from haystream.memory.arrays import Floats, Growing, Ints, Longs
from haystream.memory.compiled import allocating
from haystream.memory.prefetch import SOON, prefetch

SHARE_UNIT = 2.0**-36
"""What an item of k edges adds to each of them, 1/k, is rounded to a multiple of this. Sums of such multiples are
exact (below 131,072 screenings an edge), so a retraction gives back the very same number, in any order."""


def share_of(edges: int) -> float:
    """1/k, as counted, of an item of k edges."""
    return round(1.0 / edges / SHARE_UNIT) * SHARE_UNIT


def shares_of(edges: Longs) -> Floats:
    """1/k, as counted, of items of so many edges each, in the same shape."""
    return np.asarray(np.round(1.0 / edges / SHARE_UNIT) * SHARE_UNIT)


class SetEdges(NamedTuple):
    """The edges of set s are edge[start[s] : start[s + 1]]."""

    start: Longs
    """Shape (sets + 1,)."""
    edge: Ints

    def of(self, which: Ints) -> "tuple[SetEdges, Ints]":
        """The same of some sets, with the edges that they lie on numbered anew; and these, shape (edges,).

        An edge that several of them lie on is there for each.
        """
        start, edges = edges_of(self, which)
        return SetEdges(start, np.arange(len(edges), dtype=np.int32)), edges

    @property
    def sizes(self) -> Longs:
        """How many edges each set has, shape (sets,)."""
        return np.diff(self.start)

    def sums(self, of_edges: Iterable[Floats]) -> list[Floats]:
        """The sum over each set's edges of some columns that have a row for each edge; of shape (sets,) each."""
        first = self.start[:-1]
        return [np.add.reduceat(column, first) if len(first) else np.zeros(0) for column in of_edges]

    def stretch(self, which: slice) -> "tuple[SetEdges, Ints]":
        """The same of sets that follow each other."""
        start = self.start[which.start : which.stop + 1]
        edges = self.edge[start[0] : start[-1]]
        return SetEdges(start - start[0], np.arange(len(edges), dtype=np.int32)), edges


@allocating
def edges_of(sets: SetEdges, which: Ints) -> tuple[Longs, Ints]:
    """The edges of some sets one after the other, and where each set's begin: `SetEdges.start`."""
    start, last = np.zeros(len(which) + 1, np.int64), len(which) - 1
    for i in range(len(which)):
        prefetch(sets.start, which[min(i + SOON, last)])
        start[i + 1] = start[i] + sets.start[which[i] + 1] - sets.start[which[i]]
    edges = np.empty(start[-1], np.int32)
    for i in range(len(which)):
        prefetch(sets.edge, sets.start[which[min(i + SOON, last)]])
        first = sets.start[which[i]]
        for j in range(start[i], start[i + 1]):
            edges[j] = sets.edge[first + j - start[i]]
    return start, edges


class ItemSets:
    """Items that lie on the same edges form one set: they share a score, whatever the query.

    The edges of set s are edge[start[s] : start[s + 1]]. The sets on edge e are chained: link i, on edge[i], stands
    for set linked[i].
    """

    def __init__(self) -> None:
        self.start = Growing(np.int64)
        self.links = Chains()
        """By edge: one for each edge of each set."""
        self.linked = Growing(np.int32)
        self._alone = array("i")
        """By edge, the set on just that edge, -1 where there is none: as most sets are, and most edges have one."""
        self._number: dict[tuple[int, ...], int] = {}
        """Of the sets on several edges, by those."""
        self.start.append(0)

    def __len__(self) -> int:
        return self.start.size - 1

    @property
    def edge(self) -> Growing[np.int32]:
        """The edges of all sets, one set after the other."""
        return self.links.of

    @property
    def layout(self) -> SetEdges:
        """The edges of all sets, as they are now: views."""
        return SetEdges(self.start.view(), self.edge.view())

    def edges(self, which: int) -> tuple[int, ...]:
        """The edges of a set, ascending."""
        start = self.start.data
        return tuple(self.edge.data[start.item(which) : start.item(which + 1)].tolist())

    def on_edge(self, edge: int) -> Iterator[int]:
        """The sets on an edge."""
        return map(self.linked.data.item, self.links.members(edge))

    def offered(self, of: Ints) -> tuple[Ints, Floats]:
        """The edges that some items lie on, given the set of each, ascending; what they add, 1/k on each of k."""
        which, count = np.unique(of, return_counts=True)
        start = self.start.view()
        size = start[which + 1] - start[which]
        first = np.repeat(start[which] - np.cumsum(size) + size, size)
        edges, at = np.unique(self.edge.view()[first + np.arange(len(first))], return_inverse=True)
        return edges, np.bincount(at, np.repeat(count * shares_of(size), size)).astype(np.float64)

    def intern(self, edges: Sequence[int], sizes: Iterable[int]) -> list[int]:
        """The set of each of some items, made where it is new: the first lies on the first `sizes[0]` edges, the
        next on those that follow, and so on; at least one each.
        """
        alone, number, of = self._alone, self._number, []
        alone.extend(repeat(-1, max(edges) + 1 - len(alone)))
        new: list[tuple[int, ...]] = []
        known, at = len(self), 0
        for size in sizes:
            if size == 1:
                edge = edges[at]
                which = alone[edge]
                if which < 0:
                    which = alone[edge] = known + len(new)
                    new.append((edge,))
            else:
                on = tuple(sorted(edges[at : at + size]))
                which = number.setdefault(on, known + len(new))
                if which == known + len(new):
                    new.append(on)
            of.append(which)
            at += size
        if new:
            self._grow(new)
        return of

    def _grow(self, new: Sequence[tuple[int, ...]]) -> None:
        size = np.array(list(map(len, new)))
        self.linked.extend(np.repeat(np.arange(len(self), len(self) + len(new)), size))
        self.links.extend(list(chain.from_iterable(new)))
        self.start.extend(self.start.data[self.start.size - 1] + np.cumsum(size))
