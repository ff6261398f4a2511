"""Which items each set has, in the order in which they are offered."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from haystream.collection.chains import Chains
from haystream.memory.arrays import Growing, Ints


class Members:
    """The items of each set, by their stable hashes.

    What comes is only chained: an order is made when somebody asks for it, and kept up from then on. Few sets ever
    come so far up a ranking that anybody does, and a start adds items by the million.
    """

    def __init__(self) -> None:
        self.chains = Chains()
        """The items by set."""
        self.hash = Growing(np.uint64)
        """By item: what orders it in its set."""
        self.left = Growing(np.int32)
        """By set, how many of its items were not withdrawn."""
        self._ordered: dict[int, list[int]] = {}

    def add(self, sets: Sequence[int], hashes: NDArray[np.uint64]) -> None:
        """Add the next items, given the set and the stable hash of each; one at least."""
        begin = self.hash.size
        self.chains.extend(sets)
        self.hash.extend(hashes)
        self.left.resize(self.chains.last.size)
        np.add.at(self.left.data, self.chains.of.data[begin : self.hash.size], 1)
        for item, which in enumerate(sets, begin) if self._ordered else ():
            if which in self._ordered:
                self._insert(item, self._ordered[which])

    def withdraw(self, items: Ints) -> None:
        """Count these among what is left no more: they stay in their sets."""
        np.subtract.at(self.left.data, self.chains.of.data[items], 1)

    def ordered(self, which: int) -> list[int]:
        """The items of a set, withdrawn ones included, by their stable hashes: good until the next `add`."""
        known = self._ordered.get(which)
        if known is None:
            items = np.fromiter(self.chains.members(which), np.int32)
            known = self._ordered[which] = items[np.argsort(self.hash.data[items], kind="stable")].tolist()
        return known

    def _insert(self, item: int, ordered: list[int]) -> None:
        hash_of = self.hash.data.item
        ordered.insert(bisect_left(ordered, hash_of(item), key=hash_of), item)
