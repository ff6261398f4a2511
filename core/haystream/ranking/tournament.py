"""A tournament over item sets: who has the best score, and how many relevant items are left, in O(log sets).

A leaf holds a set's score, the tie hash of its first unscreened item, and the terms of some sums. Leaves play in
blocks; every node above says who is the best below it, and the sum of the terms there. So a query that scores many
sets pays for their leaves, and little more. An entry without unscreened items scores −inf.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haystream.arrays import SPARE, Floats, Ints
from haystream.compiled import compiled

Hashes = NDArray[np.uint64]

TERMS = 3
"""How many sums are kept."""

BLOCK = 8
"""So many leaves play each other at once: a cache line of scores."""

LAST_HASH = int(np.iinfo(np.uint64).max)
"""The tie hash of a set that has nothing left."""

NOBODY = -1
"""Who is the best where there is no entry."""


class Leaves(NamedTuple):
    """By entry, with room behind those in use."""

    score: Floats
    tie: Hashes
    terms: Floats
    """Shape (room, TERMS)."""


class Matches(NamedTuple):
    """By node: 1 is the root, i has the children 2i and 2i + 1, and node blocks + b is that of block b."""

    best: Ints
    """The entry, or NOBODY, shape (2 blocks,)."""
    sums: Floats
    """Shape (2 blocks, TERMS)."""


@compiled
def comes_first(leaves: Leaves, a: int, b: int) -> bool:
    """Whether entry a comes before entry b: by the higher score, the lower tie hash, the lower number."""
    if a == NOBODY or b == NOBODY:
        return b == NOBODY
    if leaves.score[a] != leaves.score[b]:
        return bool(leaves.score[a] > leaves.score[b])
    if leaves.tie[a] != leaves.tie[b]:
        return bool(leaves.tie[a] < leaves.tie[b])
    return a <= b


@compiled
def replay(leaves: Leaves, matches: Matches, size: int, node: int) -> None:
    """Bring one node up to date with the leaves, or the nodes, below it."""
    blocks = len(matches.best) // 2
    best, sums = NOBODY, matches.sums[node]
    sums[:] = 0.0
    if node >= blocks:
        first = (node - blocks) * BLOCK
        for entry in range(first, min(first + BLOCK, size)):
            best = entry if comes_first(leaves, entry, best) else best
            sums += leaves.terms[entry]
    else:
        for child in (2 * node, 2 * node + 1):
            best = matches.best[child] if comes_first(leaves, matches.best[child], best) else best
            sums += matches.sums[child]
    matches.best[node] = best


@compiled
def replay_some(leaves: Leaves, matches: Matches, size: int, nodes: Ints) -> None:
    """Bring `nodes` (of blocks, ascending; overwritten) and all above up to date, level by level, each once."""
    count = len(nodes)
    while count > 0 and nodes[0] > 0:
        replayed = 0
        for i in range(count):
            if replayed == 0 or nodes[replayed - 1] != nodes[i]:
                nodes[replayed] = nodes[i]
                replay(leaves, matches, size, nodes[i])
                replayed += 1
        count = replayed
        for i in range(count):
            nodes[i] //= 2


@compiled
def replay_all(leaves: Leaves, matches: Matches, size: int) -> None:
    """Bring every node up to date."""
    for node in range(len(matches.best) - 1, 0, -1):
        replay(leaves, matches, size, node)


@compiled
def best_of(matches: Matches, place: int) -> int:
    """The best entry at a place of the heap of `lead`."""
    return int(matches.best[place]) if place > 0 else -place


@compiled
def push(leaves: Leaves, matches: Matches, heap: NDArray[np.int64], count: int, place: int) -> int:
    """Put a node, or an entry as its number's negative, into a heap of `count`; return how many it has now."""
    at = count
    heap[at] = place
    while at > 0:
        parent = (at - 1) // 2
        if comes_first(leaves, best_of(matches, heap[parent]), best_of(matches, heap[at])):
            break
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent
    return count + 1


@compiled
def pop(leaves: Leaves, matches: Matches, heap: NDArray[np.int64], count: int) -> int:
    """Take what comes first out of a heap of `count`, and return it."""
    first = int(heap[0])
    count -= 1
    heap[0] = heap[count]
    at = 0
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and comes_first(
            leaves, best_of(matches, heap[child + 1]), best_of(matches, heap[child])
        ):
            child += 1
        if comes_first(leaves, best_of(matches, heap[at]), best_of(matches, heap[child])):
            break
        heap[at], heap[child] = heap[child], heap[at]
        at = child
    return first


@compiled
def lead(leaves: Leaves, matches: Matches, size: int, heap: NDArray[np.int64], which: Ints) -> int:
    """The entries from the best on into `which`, as many as fit; how many there are. `heap` is room."""
    blocks, count, found = len(matches.best) // 2, 0, 0
    if matches.best[1] != NOBODY:
        count = push(leaves, matches, heap, count, 1)
    while count > 0 and found < len(which):
        place = pop(leaves, matches, heap, count)
        count -= 1
        if place <= 0:
            which[found] = -place
            found += 1
        elif place >= blocks:
            first = (place - blocks) * BLOCK
            for entry in range(first, min(first + BLOCK, size)):
                if leaves.score[entry] > -np.inf:
                    count = push(leaves, matches, heap, count, -entry)
        else:
            for child in (2 * place, 2 * place + 1):
                best = matches.best[child]
                if best != NOBODY and leaves.score[best] > -np.inf:
                    count = push(leaves, matches, heap, count, child)
    return found


class Tournament:
    """See the module. `size` entries; new ones score −inf until `set` is called."""

    def __init__(self) -> None:
        self.size = 0
        self.leaves: Leaves = _leaves(0)
        """Whoever changes any of these calls `set` for the entry before he asks who leads."""
        self._matches = _matches(1)

    def resize(self, size: int) -> None:
        """Make room for `size` entries; never shrinks."""
        old, known = self.leaves, self.size
        self.size = size = max(size, known)
        if size > len(old.score):
            self.leaves = _leaves(size + size // SPARE)
            for new, before in zip(self.leaves, old, strict=True):
                new[:known] = before[:known]
        if size > BLOCK * len(self._matches.best) // 2:
            self._matches = _matches(1 << ((size - 1) // BLOCK).bit_length())
            replay_all(self.leaves, self._matches, size)

    def set(self, which: Ints, score: Floats, terms: Floats) -> None:
        """Give the entries in `which` new scores and terms, shape (k, TERMS); their tie hashes are in `leaves`."""
        leaves, matches, size = self.leaves, self._matches, self.size
        leaves.score[which], leaves.terms[which] = score, terms
        if 4 * len(which) > size:
            replay_all(leaves, matches, size)
        else:
            nodes = np.sort(which) // np.int32(BLOCK) + np.int32(len(matches.best) // 2)
            replay_some(leaves, matches, size, nodes)

    def totals(self) -> Floats:
        """The sums of the terms over all entries, shape (TERMS,)."""
        return np.array(self._matches.sums[1])

    def leaders(self, most: int) -> Ints:
        """The best entries with a score above −inf, best first, at most so many."""
        which = np.empty(min(most, self.size), np.int32)
        blocks = len(self._matches.best) // 2
        room = min((len(which) + 1) * (BLOCK + blocks.bit_length()), self.size + 2 * blocks)
        count = lead(self.leaves, self._matches, self.size, np.empty(1 + room, np.int64), which)
        return which[:count]


def _leaves(room: int) -> Leaves:
    """Without a score."""
    return Leaves(np.full(room, -np.inf), np.full(room, LAST_HASH, np.uint64), np.zeros((room, TERMS)))


def _matches(blocks: int) -> Matches:
    """Of so many blocks (a power of 2), none of them played."""
    return Matches(np.full(2 * blocks, NOBODY, np.int32), np.zeros((2 * blocks, TERMS)))
