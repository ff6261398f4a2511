"""The first items of a queue, and what would make them others."""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from haystream.collection.collection import Collection
from haystream.memory.arrays import Floats, Ints, among


class First:
    """The first items of a queue, as they were."""

    def __init__(self, collection: Collection, most: int, items: Sequence[tuple[int, int, float]]) -> None:
        self.most = most
        self.items = items
        """(item, its set, score)."""
        self.least = items[-1][2] if len(items) == most and items else None
        """The score of the last of them; None where there are fewer than `most`."""
        self.sets = frozenset(which for _, which, _ in items)
        """The items' sets."""
        self._numbers = np.fromiter(self.sets, np.int32)
        self._collection = collection
        self._fewer: First | None = None

    def at_most(self, most: int) -> "First":
        """The first of these."""
        if most == self.most:
            return self
        if self._fewer is None or self._fewer.most != most:
            self._fewer = First(self._collection, most, self.items[:most])
        return self._fewer

    @cached_property
    def places(self) -> frozenset[int]:
        """The items' places in the collection."""
        return frozenset(item for item, _, _ in self.items)

    @cached_property
    def participants(self) -> frozenset[int]:
        """Everybody on one of them."""
        graph, sets = self._collection.graph, self._collection.sets
        pairs = (graph.ends(edge) for which in self.sets for edge in sets.edges(which))
        return frozenset(end for pair in pairs for end in pair)

    def changes_with(self, sets: Ints, score: Floats) -> bool:
        """Whether these may be others, now that some sets have been scored again."""
        least = -math.inf if self.least is None else self.least
        return bool((score >= least).any()) or bool(among(self._numbers, sets).any())
