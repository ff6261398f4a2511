"""Which items lie on the very same edges, and which sets of items lie on an edge."""

from collections.abc import Iterator

import numpy as np

from haystream.arrays import Floats, Growing, Ints, Longs

SHARE_UNIT = 2.0**-36
"""What an item of k edges adds to each of them, 1/k, is rounded to a multiple of this. Sums of such multiples are
exact (below 131,072 screenings an edge), so a retraction gives back the very same number, in any order."""


def share_of(edges: int) -> float:
    """1/k, as counted, of an item of k edges."""
    return float(shares_of(np.array(edges)))


def shares_of(edges: Longs) -> Floats:
    """1/k, as counted, of items of so many edges each, in the same shape."""
    return np.asarray(np.round(1.0 / edges / SHARE_UNIT) * SHARE_UNIT)


class ItemSets:
    """Items that lie on the same edges form one set: they share a score, whatever the query.

    The edges of set s are edge[start[s] : start[s + 1]]. The sets on edge e are a chain: link i =
    last_link[e] holds set linked[i], and previous_link[i] is the next link of the chain, -1 its end.
    """

    def __init__(self) -> None:
        self.start = Growing(np.int64)
        self.edge = Growing(np.int32)
        self.last_link = Growing(np.int32, fill=-1)
        self.linked = Growing(np.int32)
        self.previous_link = Growing(np.int32)
        self.items: list[list[int]] = []
        """Per set, its items by their stable hashes."""
        self._number: dict[tuple[int, ...], int] = {}
        self._edges: list[tuple[int, ...]] = []
        """Its keys, by set."""
        self.start.append(0)

    def __len__(self) -> int:
        return len(self.items)

    def edges(self, which: int) -> tuple[int, ...]:
        """The edges of a set, ascending."""
        return self._edges[which]

    def on_edge(self, edge: int) -> Iterator[int]:
        """The sets on an edge."""
        link = int(self.last_link.data[edge])
        while link >= 0:
            yield int(self.linked.data[link])
            link = int(self.previous_link.data[link])

    def offered(self, of: Ints) -> tuple[Ints, Floats]:
        """The edges that some items lie on, given the set of each, ascending; what they add, 1/k on each of k."""
        which, count = np.unique(of, return_counts=True)
        start = self.start.view()
        size = start[which + 1] - start[which]
        first = np.repeat(start[which] - np.cumsum(size) + size, size)
        edges, at = np.unique(self.edge.view()[first + np.arange(len(first))], return_inverse=True)
        return edges, np.bincount(at, np.repeat(count * shares_of(size), size)).astype(np.float64)

    def intern(self, edges: tuple[int, ...]) -> int:
        """The set on these edges (ascending), made if it is new."""
        which = self._number.get(edges)
        if which is None:
            which = self._number[edges] = len(self.items)
            self.items.append([])
            self._edges.append(edges)
            self.last_link.resize(edges[-1] + 1)
            for edge in edges:
                self.edge.append(edge)
                self.previous_link.append(self.last_link.data[edge])
                self.last_link.data[edge] = self.linked.size
                self.linked.append(which)
            self.start.append(self.edge.size)
        return which
