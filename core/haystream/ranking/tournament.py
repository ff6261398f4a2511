"""A tournament over item sets: who has the best score, and how many relevant items are left, in O(log sets).

Leaves hold a set's score, the tie hash of its first unscreened item, and the terms of some sums; every inner node
holds the better of its two children and the sum of their terms. An entry without unscreened items scores −inf.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haystream.arrays import Floats, Ints
from haystream.compiled import compiled

Hashes = NDArray[np.uint64]

RESOLUTION = 2.0**-30
"""Scores are compared as multiples of this, about 1e-9. Sums taken in another order differ by 1e-15 or so: that
must not decide between scores that are equal, or the ranking would depend on the order of events."""

TERMS = 3
"""How many sums are kept."""


class Nodes(NamedTuple):
    """The matches, by node: 1 is the root, i has the children 2i and 2i + 1, and entry e is the leaf room + e.

    Children stand side by side in memory: a match looks there, not at leaves far away. Every member is (2 room, …).
    """

    score: Floats
    tie: Hashes
    entry: Ints
    """Who won."""
    sums: Floats
    """Shape (2 room, TERMS)."""


def nodes(room: int) -> Nodes:
    """Of `room` (a power of 2) entries without a score."""
    entry = np.zeros(2 * room, np.int32)
    entry[room:] = np.arange(room)
    last = np.full(2 * room, np.iinfo(np.uint64).max, np.uint64)
    tree = Nodes(np.full(2 * room, -np.inf), last, entry, np.zeros((2 * room, TERMS)))
    replay_all(tree)
    return tree


@compiled
def comes_first(tree: Nodes, a: int, b: int) -> bool:
    """Whether who won a comes before who won b: by the higher score, the lower tie hash, the lower number."""
    if tree.score[a] != tree.score[b]:
        return bool(tree.score[a] > tree.score[b])
    if tree.tie[a] != tree.tie[b]:
        return bool(tree.tie[a] < tree.tie[b])
    return bool(tree.entry[a] <= tree.entry[b])


@compiled
def replay_match(tree: Nodes, node: int) -> None:
    """Bring one inner node up to date."""
    one, other = 2 * node, 2 * node + 1
    winner = one if comes_first(tree, one, other) else other
    tree.score[node] = tree.score[winner]
    tree.tie[node] = tree.tie[winner]
    tree.entry[node] = tree.entry[winner]
    for i in range(TERMS):
        tree.sums[node, i] = tree.sums[one, i] + tree.sums[other, i]


@compiled
def replay_matches(tree: Nodes, leaves: Ints) -> None:
    """Bring the inner nodes above `leaves` (ascending nodes; overwritten) up to date, level by level, each once."""
    count = len(leaves)
    while count > 0 and leaves[0] > 1:
        parents = 0
        for i in range(count):
            node = leaves[i] // 2
            if parents == 0 or leaves[parents - 1] != node:
                leaves[parents] = node
                parents += 1
                replay_match(tree, node)
        count = parents


@compiled
def replay_all(tree: Nodes) -> None:
    """Bring every inner node up to date."""
    for node in range(len(tree.score) // 2 - 1, 0, -1):
        replay_match(tree, node)


@compiled
def lead(tree: Nodes, heap: NDArray[np.int64], which: Ints) -> int:
    """The entries from the best on into `which`, as many as fit; how many there are. `heap` is room for nodes."""
    room, count, found = len(tree.score) // 2, 1, 0
    heap[0] = 1
    while count > 0 and found < len(which):
        node = heap[0]
        count -= 1
        heap[0] = heap[count]
        place = 0
        while 2 * place + 1 < count:  # sift down
            child = 2 * place + 1
            if child + 1 < count and comes_first(tree, heap[child + 1], heap[child]):
                child += 1
            if comes_first(tree, heap[place], heap[child]):
                break
            heap[place], heap[child] = heap[child], heap[place]
            place = child
        if tree.score[node] == -np.inf:
            break
        if node >= room:
            which[found] = tree.entry[node]
            found += 1
            continue
        for child in (2 * node, 2 * node + 1):
            heap[count] = child
            place = count
            count += 1
            while place > 0:  # sift up
                parent = (place - 1) // 2
                if comes_first(tree, heap[parent], heap[place]):
                    break
                heap[place], heap[parent] = heap[parent], heap[place]
                place = parent
    return found


class Tournament:
    """See the module. `size` entries; new ones score −inf until `set` is called."""

    def __init__(self) -> None:
        self.size = 0
        self._tree = nodes(2)

    @property
    def _room(self) -> int:
        return len(self._tree.score) // 2

    def resize(self, size: int) -> None:
        """Make room for `size` entries; never shrinks."""
        old, room = self._tree, self._room
        if size > room:
            self._tree = nodes(1 << (size - 1).bit_length())
            here, there = slice(self._room, self._room + self.size), slice(room, room + self.size)
            self._tree.score[here], self._tree.tie[here] = old.score[there], old.tie[there]
            self._tree.sums[here] = old.sums[there]
            replay_all(self._tree)
        self.size = max(self.size, size)

    def set(self, which: Ints, score: Floats, tie: Hashes, terms: Floats) -> None:
        """Give the entries in `which` new scores (rounded here), tie hashes and terms, shape (k, TERMS)."""
        leaves = which + np.int32(self._room)
        self._tree.score[leaves] = np.round(score / RESOLUTION) * RESOLUTION
        self._tree.tie[leaves] = tie
        self._tree.sums[leaves] = terms
        if 4 * len(which) > self.size:
            replay_all(self._tree)
        else:
            replay_matches(self._tree, np.sort(leaves))

    def totals(self) -> Floats:
        """The sums of the terms over all entries, shape (TERMS,)."""
        return np.array(self._tree.sums[1])

    def leaders(self, most: int) -> tuple[Ints, Floats]:
        """The best entries with a score above −inf, best first, at most so many; and their rounded scores."""
        which = np.empty(min(most, self.size), np.int32)
        heap = np.empty(2 + (len(which) + 1) * self._room.bit_length(), np.int64)
        count = lead(self._tree, heap, which)
        return which[:count], self._tree.score[self._room + which[:count]]
