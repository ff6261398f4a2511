"""Which items lie on the very same edges, and which sets of items lie on an edge."""

import numpy as np

from haystream.arrays import Growing


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
        self.start.append(0)

    def __len__(self) -> int:
        return len(self.items)

    def edges(self, which: int) -> tuple[int, ...]:
        """The edges of a set, ascending."""
        begin, end = self.start.data[which : which + 2]
        return tuple(self.edge.data[begin:end].tolist())

    def intern(self, edges: tuple[int, ...]) -> int:
        """The set on these edges (ascending), made if it is new."""
        which = self._number.get(edges)
        if which is None:
            which = self._number[edges] = len(self.items)
            self.items.append([])
            self.last_link.resize(edges[-1] + 1)
            for edge in edges:
                self.edge.append(edge)
                self.previous_link.append(self.last_link.data[edge])
                self.last_link.data[edge] = self.linked.size
                self.linked.append(which)
            self.start.append(self.edge.size)
        return which
