"""A collection: the set of items, and the graph of participants that the items span.

It follows a log, whose entries say what is known of an item from then on (`facts.merging.ItemLog`), and it only
grows: an item that is withdrawn keeps its place, and its pairs stay in the graph. Participants, edges and item sets
are numbered in the order in which the items came, so all queries of a collection share one numbering, and one copy.
Queries with one scope share a collection of just the items in it, which follows the same log.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haystream.collection.graph import Graph, stable_hashes
from haystream.collection.item_details import ItemDetails
from haystream.collection.item_sets import ItemSets
from haystream.collection.members import Members
from haystream.events import Item, ItemFact, Withdrawal
from haystream.memory.arrays import Growing, Ints
from haystream.scope import Scope


class Collection:
    """The items of one collection, their graph and their sets."""

    def __init__(
        self, name: str, scope: Scope | None = None, *, left_out: frozenset[str] = frozenset(), seed: int = 0
    ) -> None:
        """`left_out`: items, by id, that are outside the scope by what the log says of them later."""
        self.name = name
        self.scope = scope
        self.left_out = left_out
        self.entries = 0
        """Entries of the log that are in it: the cursor."""
        self.changed = 0
        """The last of them that changed anything here: those after it are no concern of a query."""
        self.left_at = 0
        """The last of them that is about an item that is left out, or is to be: up to here, items are numbered
        otherwise by who has read less."""
        self.outgrown: set[str] = set()
        """Items, by id, that were let in and, as was found later, are outside the scope: with any it is stale. One
        that is made afresh leaves them out; an item that was in a scope and is not any more never is again."""
        self.graph = Graph()
        self.item_ids: list[str] = []
        self.sets = ItemSets()
        self.members = Members()
        """Of those sets."""
        self.details = ItemDetails()
        self.withdrawn = Growing(np.int32)
        """The places of items that were withdrawn, in the order in which that became known."""
        self.withdrawals: dict[int, int] = {}
        """By place, how many others were known to be withdrawn before."""
        self.shared: dict[type, dict[Any, Any]] = {}
        """What queries need of the graph and have in common: by what it is, then by its settings."""
        self._seed = seed
        self._index: dict[str, int] = {}

    def __len__(self) -> int:
        """The number of items, also those that were withdrawn."""
        return len(self.item_ids)

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._index

    @property
    def participants(self) -> list[str]:
        """Index to id, in order of first appearance."""
        return self.graph.participants

    @property
    def pairs(self) -> Ints:
        """The indexes of each edge's two participants, in order of first appearance, shape (edges, 2): a copy."""
        return self.graph.pairs

    def index(self, item_id: str) -> int | None:
        """The item's place among the items, from 0, or None."""
        return self._index.get(item_id)

    def set_of(self, item: int) -> int:
        """The set that the item (by its place) belongs to."""
        return self.members.chains.of.data.item(item)

    def sets_of(self, begin: int, end: int) -> NDArray[np.int32]:
        """The sets of the items at places begin … end − 1."""
        return self.members.chains.of.data[begin:end]

    def sets_at(self, places: Ints) -> Ints:
        """The sets of the items at those places."""
        return self.members.chains.of.data[places]

    def hashes_of(self, begin: int, end: int) -> NDArray[np.uint64]:
        """`hash_of` each of those items, shape (k,)."""
        return self.members.hash.data[begin:end]

    def hash_of(self, item: int) -> int:
        """What orders the item inside its set and breaks ties between sets."""
        return self.members.hash.data.item(item)

    def set_participants(self, which: int) -> tuple[str, ...]:
        """Everyone on the items of a set, sorted."""
        return tuple(sorted({name for edge in self.sets.edges(which) for name in self.graph.names(edge)}))

    def items_left(self, which: int) -> int:
        """How many items of a set were not withdrawn."""
        return self.members.left.data.item(which)

    def first_left(self, which: int) -> int | None:
        """The first item of a set, by its hash, that was not withdrawn; None where all were."""
        return next((item for item in self.members.ordered(which) if item not in self.withdrawals), None)

    def add(self, entry: ItemFact) -> bool:
        """Take the log's next entry; True if that changes anything here (`add_all`)."""
        return self.add_all((entry,))

    def add_all(self, entries: Iterable[ItemFact]) -> bool:
        """Take the log's next entries: what is known of items from now on; True if any changes anything here.

        Many at once cost less than one by one.
        """
        known, changed, withdrawn = len(self), self.changed, self.withdrawn.size
        new: list[Item] = []
        for entry in entries:
            self.entries += 1
            if self._take(entry, new):
                self.changed = self.entries
        if new:
            pairs = list(map(Item.pairs, new))
            edges = self.graph.intern(chain.from_iterable(pairs))
            of = self.sets.intern(edges, map(len, pairs))
            self.members.add(of, stable_hashes(self.item_ids[known:], self._seed))
        if self.withdrawn.size > withdrawn:
            self.members.withdraw(self.withdrawn.view()[withdrawn:])
        return self.changed > changed

    def afresh(self) -> "Collection":
        """An empty one that leaves out what this one has outgrown: it is to follow the log from the beginning.

        It is of no use to a query before it has come to the entry `left_at`.
        """
        fresh = Collection(self.name, self.scope, left_out=self.left_out | self.outgrown, seed=self._seed)
        fresh.left_at = self.left_at
        return fresh

    def _take(self, entry: ItemFact, new: list[Item]) -> bool:
        """Take the next entry, but for where its item lies if it is new: then it is put to `new`."""
        item_id = entry.item_id
        place = self._index.get(item_id)
        if item_id in self.left_out:
            self.left_at = max(self.left_at, self.entries)
            return True
        if isinstance(entry, Withdrawal):
            return place is not None and self._withdraw(place)  # an item that comes later comes withdrawn
        if self.scope is not None and not self.scope.admits(entry):
            if place is not None:
                self.outgrown.add(item_id)
                self.left_at = self.entries
            return place is not None
        if place is not None:
            told = self.details.tell(place, entry)
            return (entry.withdrawn and self._withdraw(place)) or told
        place = self._index[item_id] = len(self.item_ids)
        self.item_ids.append(item_id)
        new.append(entry)
        if entry.sent_at is not None or entry.uri is not None:
            self.details.tell(place, entry)
        if entry.withdrawn:
            self._withdraw(place)
        return True

    def _withdraw(self, place: int) -> bool:
        if place in self.withdrawals:
            return False
        self.withdrawals[place] = self.withdrawn.size
        self.withdrawn.append(place)
        return True
