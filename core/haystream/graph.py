"""The graph of participants: append-only, with adjacency that kernels can walk."""

from copy import copy
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from haystream.arrays import Growing
from haystream.events import Pair


def stable_hash(text: str, seed: int = 0) -> int:
    """A 64-bit hash that is the same in every process: what ties are broken by, whatever the order of events."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8, key=seed.to_bytes(8, "little")).digest(), "little")


class Graph:
    """The participants and the edges between them, with room to grow.

    Edge e joins `tail[e]` and `head[e]`, the participant whose id sorts first being the tail. The contacts of
    participant u are `contact[start[u] : start[u] + degree[u]]`, over the edges `incident[…]` at the same
    places: a slab per participant, moved to the end at double size when it is full.
    """

    def __init__(self) -> None:
        self.participants: list[str] = []
        self.pairs: list[tuple[int, int]] = []
        self._index: dict[str, int] = {}
        self._edge: dict[tuple[int, int], int] = {}
        self._tail = Growing(np.int32)
        self._head = Growing(np.int32)
        self._edge_key = Growing(np.uint64)
        self._start = Growing(np.int64)
        self._degree = Growing(np.int64)
        self._room = Growing(np.int64)
        self._contact = Growing(np.int32)
        self._incident = Growing(np.int32)

    def __len__(self) -> int:
        """The number of participants."""
        return self._degree.size

    @property
    def edges(self) -> int:
        """The number of edges."""
        return self._tail.size

    def as_now(self) -> "Graph":
        """The graph as it is now, for reading in another thread while this one grows.

        Only slabs and edges are added, so all but what says where slabs lie is on the same memory.
        """
        now = copy(self)
        now._tail, now._head, now._edge_key = self._tail.as_now(), self._head.as_now(), self._edge_key.as_now()
        now._contact, now._incident = self._contact.as_now(), self._incident.as_now()
        now._start, now._degree = self._start.as_now(), self._degree.as_now()
        now._start.data, now._degree.data = now._start.data.copy(), now._degree.data.copy()
        return now

    def as_of(self, edges: int) -> "Graph":
        """The graph as it was when it had so many edges, as `as_now`: this one must not grow meanwhile.

        Participants are numbered as edges bring them, and a slab is in the order in which edges came.
        """
        then = self.as_now()
        for of_edges in (then._tail, then._head, then._edge_key):
            of_edges.data, of_edges.size = of_edges.data[:edges], edges
        ends = np.concatenate([then.tail, then.head])
        people = int(ends.max(initial=-1)) + 1
        then._start.data, then._start.size = then.start[:people], people
        then._degree.data, then._degree.size = np.bincount(ends, minlength=people).astype(np.int64), people
        return then

    @property
    def tail(self) -> NDArray[np.int32]:
        """Shape (edges,): the endpoint whose id sorts first."""
        return self._tail.view()

    @property
    def head(self) -> NDArray[np.int32]:
        """Shape (edges,): the endpoint whose id sorts last."""
        return self._head.view()

    @property
    def edge_key(self) -> NDArray[np.uint64]:
        """Shape (edges,): a stable hash of the pair of ids, for policies that draw at random."""
        return self._edge_key.view()

    @property
    def degree(self) -> NDArray[np.int64]:
        """Shape (participants,): the number of contacts, n_i in the paper's Q."""
        return self._degree.view()

    @property
    def start(self) -> NDArray[np.int64]:
        """Shape (participants,): where the participant's slab begins."""
        return self._start.view()

    @property
    def contact(self) -> NDArray[np.int32]:
        """The slabs: the participant at the other end."""
        return self._contact.view()

    @property
    def incident(self) -> NDArray[np.int32]:
        """The slabs: the edge to the contact at the same place."""
        return self._incident.view()

    def participant(self, name: str) -> int | None:
        """The participant's index, or None."""
        return self._index.get(name)

    def edge_between(self, pair: Pair) -> int | None:
        """The edge between two participants, or None."""
        u, v = self._index.get(pair[0]), self._index.get(pair[1])
        return None if u is None or v is None else self._edge.get((u, v))

    def names(self, edge: int) -> Pair:
        """The ids at the edge's ends, sorted."""
        u, v = self.pairs[edge]
        return self.participants[u], self.participants[v]

    def edges_of(self, participant: int) -> NDArray[np.int32]:
        """The edges of a participant, in the order in which they came."""
        begin = int(self._start.data[participant])
        return self._incident.data[begin : begin + int(self._degree.data[participant])]

    def digest(self, edges: int) -> bytes:
        """Of the ids at the ends of the first so many edges, in their order."""
        return blake2b(self.edge_key[:edges].tobytes(), digest_size=16).digest()

    def intern(self, pair: Pair) -> int:
        """The edge between the two (sorted) ids, made if it is new."""
        ends = self._intern_participant(pair[0]), self._intern_participant(pair[1])
        edge = self._edge.get(ends)
        if edge is None:
            edge = self._edge[ends] = len(self.pairs)
            self.pairs.append(ends)
            self._tail.append(ends[0])
            self._head.append(ends[1])
            self._edge_key.append(stable_hash("\0".join(pair)))
            self._connect(ends[0], ends[1], edge)
            self._connect(ends[1], ends[0], edge)
        return edge

    def _intern_participant(self, name: str) -> int:
        index = self._index.get(name)
        if index is None:
            index = self._index[name] = len(self.participants)
            self.participants.append(name)
            for column in (self._start, self._degree, self._room):
                column.append(0)
        return index

    def _connect(self, u: int, v: int, edge: int) -> None:
        degree = int(self._degree.data[u])
        if degree == self._room.data[u]:
            room = max(2, 2 * degree)
            old, new = int(self._start.data[u]), self._contact.size
            for slab in (self._contact, self._incident):
                slab.resize(new + room)
                slab.data[new : new + degree] = slab.data[old : old + degree]
            self._start.data[u] = new
            self._room.data[u] = room
        place = int(self._start.data[u]) + degree
        self._contact.data[place] = v
        self._incident.data[place] = edge
        self._degree.data[u] = degree + 1
