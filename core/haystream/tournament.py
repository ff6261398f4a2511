"""A tournament over item sets: who has the best score, and how many relevant items are left, in O(log sets).

Leaves hold a set's score, the tie hash of its first unscreened item, and two sums' terms; every inner node
holds the better of its two children and the sum of their terms. An entry without unscreened items scores −inf.
"""

import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from haystream.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Hashes = NDArray[np.uint64]

RESOLUTION = 2.0**-30
"""Scores are compared as multiples of this, about 1e-9. Sums taken in another order differ by 1e-15 or so: that
must not decide between scores that are equal, or the ranking would depend on the order of events."""


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
        sums[node, 0] = terms[a, 0] + terms[b, 0]
        sums[node, 1] = terms[a, 1] + terms[b, 1]
    else:
        best[node] = better(score, tie, best[left], best[right])
        sums[node, 0] = sums[left, 0] + sums[right, 0]
        sums[node, 1] = sums[left, 1] + sums[right, 1]


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


class Tournament:
    """See the module. `size` entries; new ones score −inf until `set` is called."""

    def __init__(self) -> None:
        self.size = 0
        self._allocate(2)

    def _allocate(self, room: int) -> None:
        self._score = np.full(room, -np.inf)
        self._tie = np.full(room, np.iinfo(np.uint64).max, np.uint64)
        self._terms = np.zeros((room, 2))
        self._best = np.zeros(room, np.int32)
        self._sums = np.zeros((room, 2))

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
        """Give the entries in `which` new scores (rounded here), tie hashes and terms, shape (k, 2)."""
        self._score[which] = np.round(score / RESOLUTION) * RESOLUTION
        self._tie[which] = tie
        self._terms[which] = terms
        if 4 * len(which) > self.size:
            replay_all(self._score, self._tie, self._terms, self._best, self._sums)
        else:
            replay_matches(self._score, self._tie, self._terms, self._best, self._sums, np.sort(which))

    def score(self, entry: int) -> float:
        """The rounded score of an entry."""
        return float(self._score[entry])

    def totals(self) -> tuple[float, float]:
        """The sums of both terms over all entries."""
        return float(self._sums[1, 0]), float(self._sums[1, 1])

    def descending(self) -> Iterator[int]:
        """The entries from the best on, as long as they have a score above −inf."""
        size = len(self._score)

        def key(node: int) -> tuple[float, int, int, int]:
            leaf = node - size if node >= size else int(self._best[node])
            return -float(self._score[leaf]), int(self._tie[leaf]), leaf, node

        heap = [key(1)]
        while heap:
            negative, _, leaf, node = heapq.heappop(heap)
            if negative == np.inf:
                return
            if node >= size:
                yield leaf
            else:
                heapq.heappush(heap, key(2 * node))
                heapq.heappush(heap, key(2 * node + 1))
