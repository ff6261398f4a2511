"""A collection: the set of items, and the graph of participants that the items span.

It only grows. Participants, edges and item sets are numbered in the order in which the items came, so all
queries of a collection share one numbering, and one copy.
"""

from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haystream.arrays import Growing
from haystream.errors import Code, Rejected
from haystream.events import Item, Pair
from haystream.graph import Graph, stable_hash
from haystream.item_sets import ItemSets


class Collection:
    """The items of one collection, their graph and their sets."""

    def __init__(self, name: str, *, seed: int = 0) -> None:
        self.name = name
        self.graph = Graph()
        self.item_ids: list[str] = []
        self.sets = ItemSets()
        self.shared: dict[type, dict[Any, Any]] = {}
        """What queries need of the graph and have in common: by what it is, then by its settings."""
        self._seed = seed
        self._index: dict[str, int] = {}
        self._item_set = Growing(np.int32)
        self._item_sender = Growing(np.int32)
        self._item_hash = Growing(np.uint64)

    def __len__(self) -> int:
        """The number of items: the cursor into the collection's log."""
        return len(self.item_ids)

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._index

    @property
    def participants(self) -> list[str]:
        """Index to id, in order of first appearance."""
        return self.graph.participants

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Edge to the indexes of its two participants, in order of first appearance."""
        return self.graph.pairs

    def index(self, item_id: str) -> int | None:
        """The item's place in the log, from 0, or None."""
        return self._index.get(item_id)

    def set_of(self, item: int) -> int:
        """The set that the item (by its place) belongs to."""
        return int(self._item_set.data[item])

    def sets_of(self, begin: int, end: int) -> NDArray[np.int32]:
        """The sets of the items at places begin … end − 1."""
        return self._item_set.data[begin:end]

    def hashes_of(self, begin: int, end: int) -> NDArray[np.uint64]:
        """`hash_of` those items."""
        return self._item_hash.data[begin:end]

    def hash_of(self, item: int) -> int:
        """What orders the item inside its set and breaks ties between sets."""
        return int(self._item_hash.data[item])

    def set_participants(self, which: int) -> tuple[str, ...]:
        """Everyone on the items of a set, sorted."""
        return tuple(sorted({name for edge in self.sets.edges(which) for name in self.graph.names(edge)}))

    def add(self, item: Item) -> bool:
        """Add an item; True if it is new, False if the same item is known.

        Raises:
            Rejected: ITEM_CONFLICT if the id is known with other participants; the first content stands.
        """
        pairs = item.pairs()
        known = self._index.get(item.item_id)
        if known is not None:
            self._check_same(item, pairs, known)
            return False
        edges = tuple(map(self.graph.intern, pairs))
        if len(edges) > 1:
            edges = tuple(sorted(edges))
        which = self.sets.intern(edges)
        place = self._index[item.item_id] = len(self.item_ids)
        self.item_ids.append(item.item_id)
        self._item_set.append(which)
        self._item_sender.append(self._sender(item))
        rank = stable_hash(item.item_id, self._seed)
        self._item_hash.append(rank)
        members = self.sets.items[which]
        members.insert(bisect_left(members, rank, key=self.hash_of), place)
        return True

    def _sender(self, item: Item) -> int:
        sender = None if item.sender is None else self.graph.participant(item.sender)
        return -1 if sender is None else sender

    def _check_same(self, item: Item, pairs: tuple[Pair, ...], known: int) -> None:
        stored = {self.graph.names(edge) for edge in self.sets.edges(self.set_of(known))}
        if stored != set(pairs) or self._sender(item) != self._item_sender.data[known]:
            raise Rejected(
                Code.ITEM_CONFLICT,
                f"item {item.item_id!r} is already in collection {self.name!r} with other participants",
            )
