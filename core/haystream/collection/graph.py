"""The graph of participants: append-only, with adjacency that kernels can walk."""

from collections.abc import Iterable
from copy import copy
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haystream.events import Pair
from haystream.memory.arrays import Growing, Ints, Longs
from haystream.memory.compiled import compiled


def stable_hashes(texts: Iterable[str], seed: int = 0) -> NDArray[np.uint64]:
    """A 64-bit hash of each text, the same in every process: what breaks ties, whatever the order of events."""
    # To copy one that has its key takes less than to make one.
    begun = blake2b(digest_size=8, key=seed.to_bytes(8, "little")).copy
    digests = []
    for text in texts:
        this = begun()
        this.update(text.encode())
        digests.append(this.digest())
    return np.frombuffer(b"".join(digests), "<u8")


class Graph:
    """The participants and the edges between them, with room to grow.

    Edge e joins `tail[e]` and `head[e]`, the participant whose id sorts first being the tail. The contacts of
    participant u are `contact[start[u] : start[u] + degree[u]]`, over the edges `incident[…]` at the same
    places: a slab per participant, moved to the end at double size when it is full.
    """

    def __init__(self) -> None:
        self.participants: list[str] = []
        self._index: dict[str, int] = {}
        self._edge: dict[int, int] = {}
        """By `tail << 32 | head`: one number is half the memory of a pair."""
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
        return None if u is None or v is None else self._edge.get(u << 32 | v)

    @property
    def pairs(self) -> NDArray[np.int32]:
        """Tail and head of each edge, shape (edges, 2): a copy."""
        return np.column_stack([self.tail, self.head])

    def ends(self, edge: int) -> tuple[int, int]:
        """The edge's tail and head."""
        return self._tail.data.item(edge), self._head.data.item(edge)

    def names(self, edge: int) -> Pair:
        """The ids at the edge's ends, sorted."""
        people = self.participants
        return people[self._tail.data.item(edge)], people[self._head.data.item(edge)]

    def names_of(self, edges: Ints) -> list[Pair]:
        """The same of some edges, in their order."""
        of = self.participants.__getitem__
        tails, heads = self._tail.data[edges].tolist(), self._head.data[edges].tolist()
        return list(zip(map(of, tails), map(of, heads), strict=True))

    def edges_of(self, participant: int) -> NDArray[np.int32]:
        """The edges of a participant, in the order in which they came."""
        begin = int(self._start.data[participant])
        return self._incident.data[begin : begin + int(self._degree.data[participant])]

    def digest(self, edges: int) -> bytes:
        """Of the ids at the ends of the first so many edges, in their order."""
        return blake2b(self.edge_key[:edges].tobytes(), digest_size=16).digest()

    def intern(self, pairs: Iterable[Pair]) -> list[int]:
        """The edges between the two (sorted) ids of each pair, made where they are new, in that order."""
        index, participants, edge_of = self._index, self.participants, self._edge
        edges: list[int] = []
        ends: list[int] = []
        names: list[str] = []
        known = self.edges
        for pair in pairs:
            first, second = pair
            u = index.get(first)
            if u is None:
                u = index[first] = len(participants)
                participants.append(first)
            v = index.get(second)
            if v is None:
                v = index[second] = len(participants)
                participants.append(second)
            key = u << 32 | v
            edge = edge_of.get(key)
            if edge is None:
                edge = edge_of[key] = known + len(ends)
                ends.append(key)
                names.append("\0".join(pair))
            edges.append(edge)
        if ends:
            self._grow(np.array(ends), stable_hashes(names))
        return edges

    def _grow(self, ends: Longs, keys: NDArray[np.uint64]) -> None:
        done = self.edges
        self._tail.extend(ends >> 32)
        self._head.extend(ends & 0xFFFFFFFF)
        self._edge_key.extend(keys)
        for column in (self._start, self._degree, self._room):
            column.resize(len(self.participants))
        size = self._contact.size
        while done < self.edges:
            people = _People(self._start.data, self._degree.data, self._room.data)
            slabs = _Slabs(self._contact.data, self._incident.data)
            done, size, wanted = _connect(people, slabs, self._tail.view(), self._head.view(), done, size)
            for slab in (self._contact, self._incident):
                slab.resize(size)
                slab.resize(wanted)  # keeps what is given away by now


class _People(NamedTuple):
    """Where each one's slab begins, how much of it is in use, and how long it is."""

    start: Longs
    degree: Longs
    room: Longs


class _Slabs(NamedTuple):
    """The slabs, of which as many entries are given away as is said beside them."""

    contact: Ints
    incident: Ints


@compiled
def _connect(people: _People, slabs: _Slabs, tail: Ints, head: Ints, begin: int, size: int) -> tuple[int, int, int]:
    """Put the edges from `begin` on into the slabs of both ends, as far as there is room for longer slabs.

    Returns the edge that comes next, the entries that are given away then, and how many there have to be room for.
    """
    for edge in range(begin, len(tail)):
        u, v = tail[edge], head[edge]
        wanted = size + _longer(people, u) + _longer(people, v)
        if wanted > len(slabs.contact):
            return edge, size, wanted
        size = _put(people, slabs, u, v, edge, size)
        size = _put(people, slabs, v, u, edge, size)
    return len(tail), size, size


@compiled
def _longer(people: _People, u: int) -> int:
    """How long a slab it takes to put in one more; 0 where there is room."""
    degree = people.degree[u]
    return 0 if degree < people.room[u] else max(2, 2 * degree)


@compiled
def _put(people: _People, slabs: _Slabs, u: int, v: int, edge: int, size: int) -> int:
    """Add a contact; how many entries are given away then."""
    room, degree = _longer(people, u), people.degree[u]
    if room:
        old = people.start[u]
        for i in range(degree):
            slabs.contact[size + i] = slabs.contact[old + i]
            slabs.incident[size + i] = slabs.incident[old + i]
        people.start[u], people.room[u] = size, room
    place = people.start[u] + degree
    slabs.contact[place], slabs.incident[place] = v, edge
    people.degree[u] = degree + 1
    return size + room
