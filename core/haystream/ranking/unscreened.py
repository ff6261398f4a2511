"""The items that are on offer, set by set."""

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice

import numpy as np

from haystream.collection.collection import Collection
from haystream.memory.arrays import Ints
from haystream.ranking.tournament import LAST_HASH


class Unscreened:
    """The items of a collection that are not withdrawn, and that nobody has taken, by the order of their hashes."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._taken: set[int] = set()
        self._skip: dict[int, int] = {}
        """By set, how many of its first items need not be looked at."""

    def take(self, item: int) -> None:
        """An item is not on offer any more."""
        self._taken.add(item)

    def give_back(self, item: int) -> None:
        """An item is on offer again."""
        self._taken.discard(item)
        self._skip.pop(self._collection.set_of(item), None)

    def come(self, of: Ints) -> None:
        """The collection has got items of these sets: such a one may come before the others."""
        for which in self._skip.keys() & of.tolist() if self._skip else ():
            del self._skip[which]

    def free(self, items: Ints) -> Ints:
        """1 for each of these items that nobody has taken, shape (len(items),)."""
        return np.array([item not in self._taken for item in items.tolist()], dtype=np.int32)

    def of(self, which: int) -> Iterator[int]:
        """Those of a set."""
        members, taken, gone = self._collection.members.ordered(which), self._taken, self._collection.withdrawals
        begin = self._skip.get(which, 0)
        while begin < len(members) and (members[begin] in taken or members[begin] in gone):
            begin += 1
        self._skip[which] = begin
        for item in islice(members, begin, None):
            if item not in taken and item not in gone:
                yield item

    def first_hash(self, which: int) -> int:
        """The hash of the first one of a set; LAST_HASH where there is none."""
        return next(map(self._collection.hash_of, self.of(which)), LAST_HASH)

    def of_tied(self, sets: Sequence[int]) -> Iterator[tuple[int, int]]:
        """(item, its set) of several sets."""
        if len(sets) <= 1:
            return ((item, which) for which in sets for item in self.of(which))
        return ((item, which) for _, item, which in merge(*map(self._hashed, sets)))

    def _hashed(self, which: int) -> Iterator[tuple[int, int, int]]:
        for item in self.of(which):
            yield self._collection.hash_of(item), item, which
