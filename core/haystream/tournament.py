"""A tournament over item sets: who has the best score, and how many relevant items are left, in O(log sets).

Leaves hold a set's score, the tie hash of its first unscreened item, and the terms of some sums; every inner node
holds the better of its two children and the sum of their terms. An entry without unscreened items scores −inf.
"""

import numpy as np
from numpy.typing import NDArray

from haystream.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Hashes = NDArray[np.uint64]

RESOLUTION = 2.0**-30
"""Scores are compared as multiples of this, about 1e-9. Sums taken in another order differ by 1e-15 or so: that
must not decide between scores that are equal, or the ranking would depend on the order of events."""


TERMS = 3
"""How many sums are kept."""


@compiled
def better(score: Floats, tie: Hashes, a: int, b: int) -> int:
    """The leaf that comes first: the higher score, then the lower tie hash, then the lower number."""
    if score[b] > score[a] or (score[b] == score[a] and (tie[b] < tie[a] or (tie[b] == tie[a] and b < a))):
        return b
    return a


@compiled
def replay_match(node: int, score: Floats, tie: Hashes, terms: Floats, best: Ints, sums: Floats) -> None:
    """Bring one inner node up to date. Node 1 is the root; node i has children 2i and 2i + 1."""
    size = len(score)
    left, right = 2 * node, 2 * node + 1
    if left >= size:
        a, b = left - size, right - size
        best[node] = better(score, tie, a, b)
        for i in range(TERMS):
            sums[node, i] = terms[a, i] + terms[b, i]
    else:
        best[node] = better(score, tie, best[left], best[right])
        for i in range(TERMS):
            sums[node, i] = sums[left, i] + sums[right, i]


@compiled
def replay_matches(score: Floats, tie: Hashes, terms: Floats, best: Ints, sums: Floats, leaves: Ints) -> None:
    """Bring the inner nodes above `leaves` (ascending; overwritten) up to date, level by level, each once."""
    size, count = len(score), len(leaves)
    for i in range(count):
        leaves[i] += size
    while count > 0 and leaves[0] > 1:
        parents = 0
        for i in range(count):
            node = leaves[i] // 2
            if parents == 0 or leaves[parents - 1] != node:
                leaves[parents] = node
                parents += 1
                replay_match(node, score, tie, terms, best, sums)
        count = parents


@compiled
def replay_all(score: Floats, tie: Hashes, terms: Floats, best: Ints, sums: Floats) -> None:
    """Bring every inner node up to date."""
    for node in range(len(score) - 1, 0, -1):
        replay_match(node, score, tie, terms, best, sums)


@compiled
def comes_first(score: Floats, tie: Hashes, best: Ints, a: int, b: int) -> bool:
    """Whether the best leaf under node a comes before the best under node b."""
    size = len(score)
    x = a - size if a >= size else best[a]
    y = b - size if b >= size else best[b]
    return better(score, tie, x, y) == x


@compiled
def lead(score: Floats, tie: Hashes, best: Ints, heap: NDArray[np.int64], which: Ints) -> int:
    """The leaves from the best on into `which`, as many as fit; how many there are. `heap` is room for nodes."""
    size, count, found = len(score), 1, 0
    heap[0] = 1
    while count > 0 and found < len(which):
        node = heap[0]
        count -= 1
        heap[0] = heap[count]
        place = 0
        while 2 * place + 1 < count:  # sift down
            child = 2 * place + 1
            if child + 1 < count and comes_first(score, tie, best, heap[child + 1], heap[child]):
                child += 1
            if comes_first(score, tie, best, heap[place], heap[child]):
                break
            heap[place], heap[child] = heap[child], heap[place]
            place = child
        if node >= size:
            if score[node - size] == -np.inf:
                break
            which[found] = node - size
            found += 1
            continue
        for child in (2 * node, 2 * node + 1):
            heap[count] = child
            place = count
            count += 1
            while place > 0:  # sift up
                parent = (place - 1) // 2
                if comes_first(score, tie, best, heap[parent], heap[place]):
                    break
                heap[place], heap[parent] = heap[parent], heap[place]
                place = parent
    return found


class Tournament:
    """See the module. `size` entries; new ones score −inf until `set` is called."""

    def __init__(self) -> None:
        self.size = 0
        self._allocate(2)

    def _allocate(self, room: int) -> None:
        self._score = np.full(room, -np.inf)
        self._tie = np.full(room, np.iinfo(np.uint64).max, np.uint64)
        self._terms = np.zeros((room, TERMS))
        self._best = np.zeros(room, np.int32)
        self._sums = np.zeros((room, TERMS))

    def resize(self, size: int) -> None:
        """Make room for `size` entries; never shrinks."""
        if size > len(self._score):
            score, tie, terms = self._score, self._tie, self._terms
            self._allocate(1 << (size - 1).bit_length())
            self._score[: self.size] = score[: self.size]
            self._tie[: self.size] = tie[: self.size]
            self._terms[: self.size] = terms[: self.size]
            self.size = size
            replay_all(self._score, self._tie, self._terms, self._best, self._sums)
        self.size = max(self.size, size)

    def set(self, which: Ints, score: Floats, tie: Hashes, terms: Floats) -> None:
        """Give the entries in `which` new scores (rounded here), tie hashes and terms, shape (k, TERMS)."""
        self._score[which] = np.round(score / RESOLUTION) * RESOLUTION
        self._tie[which] = tie
        self._terms[which] = terms
        if 4 * len(which) > self.size:
            replay_all(self._score, self._tie, self._terms, self._best, self._sums)
        else:
            replay_matches(self._score, self._tie, self._terms, self._best, self._sums, np.sort(which))

    def totals(self) -> Floats:
        """The sums of the terms over all entries, shape (TERMS,)."""
        return np.array(self._sums[1])

    def leaders(self, most: int) -> tuple[Ints, Floats]:
        """The best entries with a score above −inf, best first, at most so many; and their rounded scores."""
        which = np.empty(min(most, self.size), np.int32)
        heap = np.empty(2 + len(which) * len(self._score).bit_length(), np.int64)
        count = lead(self._score, self._tie, self._best, heap, which)
        return which[:count], self._score[which[:count]]
