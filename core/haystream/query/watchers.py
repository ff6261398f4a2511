"""Which queries of a collection what it got may concern: those are asked (`concern.concerns`), and no others.

A query that nothing has been done to since it was last up to date *rests*. What could concern it is known then:
something on the sets of its first items, or on people of these; something on an item that it has been told of; and
a set that may score as much as the last of its first items. Of a set on which nobody has judged anything there is a
bound of that, by how far the people on it stand above the others in the query, and else the same in all queries
that score alike (`ranking.unreached`). So all who rest are compared with news at once, by a row of numbers of each
participant. Whoever is not concerned has seen them: one mark says up to where, for all of them.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple
from weakref import ref

import numpy as np

from haystream.collection.collection import Collection
from haystream.memory.arrays import SPARE, Flags, Floats, Growing, Ints, Longs, Switches
from haystream.query.concern import MARGIN, MOST_ENTRIES, MOST_PAIRS, Mark, news_since
from haystream.ranking.first import First
from haystream.ranking.unreached import HIGH, Unreached

AWAKE = -np.inf
"""What it takes to concern a query that does not rest: anything."""
LEADS, TOLD_OF = np.uint8(64), np.uint8(128)
"""Flags of somebody in a query, beside his height (`Unreached.heights`): he is on one of its first items; on one
that a verdict or a lease names."""
HEIGHT, FLAGS = np.uint8(HIGH), LEADS | TOLD_OF
MOST_ROWS = 1 << 14
"""It is kept what sets score at most in so many rows of two kilobytes: one for a number of items and for queries
that score alike."""
LEAST_ALIKE = 64
"""So much that makes queries score alike is kept at least, also where no query has it any more; else up to twice as
much as queries have."""


class Standing(NamedTuple):
    """What decides, of a query that rests, whether news may concern it."""

    first: First
    """Its first items, as many as it offers."""
    alike: Hashable
    """Equal for queries that score alike what they have no data of."""
    unreached: Unreached
    """What they score such sets by."""
    scores_edges: bool
    """Whether an item moves the scores of other sets on its edges, too."""
    entries: int
    """Of the log that are folded in."""
    edges: int
    """That its engine knows."""


class Watcher:
    """A query, as it is known to its collection's `Watchers`, for as long as there is a reference to this."""

    def __init__(self, watchers: "Watchers", query_id: str) -> None:
        self.query_id = query_id
        self.rests = False
        """Whether it is not asked where news plainly do not concern it."""
        self.alike: Hashable = None
        """As in `Standing`, when it last rested."""
        self.listed: Mapping[str, float] | None = None
        """Its watch-list then."""
        self._watchers = watchers
        self._column: int | None = None
        self._seen = Mark()
        self._told_of: set[str] = set()
        """Items, by id, that it has been told of since."""
        self._first: First | None = None

    @property
    def seen(self) -> Mark:
        """Up to where nothing concerned it while it rested."""
        return self._watchers.mark if self.rests else self._seen

    def begin(self) -> int:
        """Be asked from now on; the query's column."""
        if self._column is None:
            self._column = self._watchers.let_in(self)
        return self._column

    def tell_of(self, item_id: str) -> None:
        """Take that a verdict, or a lease, names an item, which need not be known yet."""
        self._told_of.add(item_id)

    def wake(self) -> None:
        """Be asked of anything that comes, until it rests again."""
        if self.rests:
            self._seen, self.rests = self._watchers.mark, False
            self._watchers.bar.data[self.begin()] = AWAKE

    def rest(self, standing: Standing, people: Ints, heights: Flags, listed: Mapping[str, float]) -> None:
        """Be asked only of what may concern it; it is up to date, or what it is behind by is no concern of it.

        `heights`, of `people`, shape (k,): of all that its engine knows if it scores by something else than when it
        last rested, or has another watch-list; else of those of whom readers were told since.
        """
        watchers, column = self._watchers, self.begin()
        watchers.lift(column, people, heights)
        if listed is not self.listed:
            watchers.expect_no_more(column, (self.listed or {}).keys() - listed.keys())
            watchers.await_people(column, listed, known=len(people))
        if standing.first is not self._first:
            watchers.lead(column, self._first, standing.first)
        watchers.tell_of(column, self._told_of)
        self._told_of.clear()
        watchers.put(column, standing)
        self._first, self.listed, self.alike, self.rests = standing.first, listed, standing.alike, True


class Watchers:
    """The queries of a collection, a column each."""

    def __init__(self, collection: Collection) -> None:
        self.mark = Mark.of(collection)
        """Up to where all who rest have been compared with what came."""
        self.bar = Growing(np.float64, fill=AWAKE)
        """By column, as those that follow: the score of a set that concerns the query, at least."""
        self._collection = collection
        self._met = len(collection.graph)
        """Participants that there were at the mark."""
        self._alike = Growing(np.int32)
        self._entries = Growing(np.int64)
        self._edges = Growing(np.int64)
        self._scores_edges = Growing(np.uint8)
        self._watchers: list[ref[Watcher] | None] = []
        self._free: list[int] = []
        self._gone: list[int] = []
        """Columns of queries that are no more, still to be emptied: that became known at any moment, in any
        thread."""
        self._people: Flags = np.zeros((0, 0), np.uint8)
        """Shape (participants or more, columns or more): his height, and flags."""
        self._number: dict[Hashable, int] = {}
        """By what makes queries score alike."""
        self._unreached: list[Unreached] = []
        """By that number."""
        self._most_alike = LEAST_ALIKE
        """When there are so many it is looked which of them are in use."""
        self._most: dict[int, Floats] = {}
        """By a number of items: what such sets score at most, shape (numbers, heights), as `Unreached.most`."""
        self._items: dict[str, set[int]] = {}
        """Columns by the items, by id, that they have been told of and that are still to come."""
        self._names: dict[str, set[int]] = {}
        """The same of participants on watch-lists."""

    @classmethod
    def of(cls, collection: Collection) -> "Watchers":
        """The collection's own."""
        shared = collection.shared.setdefault(cls, {})
        if None not in shared:
            shared[None] = cls(collection)
        watchers: Watchers = shared[None]
        return watchers

    def watch(self, query_id: str) -> Watcher:
        """A query that is to be asked once it has begun."""
        return Watcher(self, query_id)

    def to_ask(self) -> list[str]:
        """The ids of the queries to be asked whether what the collection got concerns them, in no certain order.

        All others have seen it, and are not concerned.
        """
        self._empty_columns()
        now = Mark.of(self._collection)
        if now.entries > self.mark.entries:
            self._make_room()
            self._meet_who_came(now)
            if self._collection.changed > self.mark.entries:
                for watcher in self._at(np.flatnonzero(self._may_concern(now))):
                    watcher.wake()
            self.mark = now
        return [watcher.query_id for watcher in self._at(np.flatnonzero(self.bar.view() == AWAKE))]

    def _at(self, columns: Longs) -> list[Watcher]:
        """Those at some columns that are still there."""
        known = map(self._watchers.__getitem__, columns.tolist())
        return [watcher for of in known if of is not None and (watcher := of()) is not None]

    def _may_concern(self, now: Mark) -> Switches:
        """Whom of those who rest what came since the mark may concern, shape (columns,)."""
        resting = self.bar.view() > AWAKE
        if self._collection.outgrown or now.entries - self.mark.entries > MOST_ENTRIES:
            return resting
        most_pairs = now.edges - MOST_PAIRS
        found = (now.entries - self._entries.view() > MOST_ENTRIES) | (self._edges.view() < most_pairs)
        found |= ~resting
        if not found.all():
            news, by_edge = news_since(self._collection, self.mark), self._scores_edges.view() > 0
            for which in news.sets:
                found |= self._set_may_concern(which)
            if (by_edge & ~found).any():
                for which in news.on_their_edges:
                    found |= by_edge & self._set_may_concern(which)
        return found & resting

    def _set_may_concern(self, which: int) -> Switches:
        """Whom a set that has got items, or lost some, may concern, shape (columns,)."""
        edges = np.array(self._collection.sets.edges(which))
        ends = np.array([self._collection.graph.ends(edge) for edge in edges.tolist()])
        tail, head = (self._people[ends[:, end], : self.bar.size] for end in (0, 1))
        led = np.bitwise_or.reduce((tail | head)[edges >= self.mark.edges]) & LEADS
        found: Switches = (led | np.bitwise_or.reduce(tail & head) & FLAGS) != 0
        tail, head = tail & HEIGHT, head & HEIGHT
        found |= np.maximum(tail, head).max(axis=0) == HIGH
        height = tail + head  # of a mean, in half steps; of an edge that is not known, twice as many
        height[edges[:, None] >= self._edges.view()] *= 2
        most = self._most_with(self._collection.items_left(which))
        found |= most[self._alike.view(), height.max(axis=0)] >= self.bar.view()
        return found

    def _most_with(self, items: int) -> Floats:
        """What sets with so many items score at most, shape (numbers, heights)."""
        known = self._most.pop(items, None)
        if (1 + len(self._most)) * len(self._unreached) > MOST_ROWS:
            self._most.clear()
        if known is None or len(known) < len(self._unreached):
            rows = [] if known is None else list(known)
            known = np.array([*rows, *(each.most(items) for each in self._unreached[len(rows) :])])
        self._most[items] = known
        return known

    # ---- what is known of a query ----

    def let_in(self, watcher: Watcher) -> int:
        """A column for the query, which is awake."""
        self._empty_columns()
        column = self._free.pop() if self._free else len(self._watchers)
        if column == len(self._watchers):
            self._watchers.append(None)
            for of in (self.bar, self._alike, self._entries, self._edges, self._scores_edges):
                of.resize(column + 1)
        self._watchers[column] = ref(watcher, lambda _: self._gone.append(column))
        return column

    def put(self, column: int, standing: Standing) -> None:
        """Have the query rest as it stands."""
        if standing.alike not in self._number and len(self._unreached) >= self._most_alike:
            self._forget_unused()
        number = self._number.setdefault(standing.alike, len(self._unreached))
        if number == len(self._unreached):
            self._unreached.append(standing.unreached)
        assert standing.first.least is not None
        self.bar.data[column] = standing.first.least - MARGIN
        self._alike.data[column] = number
        self._entries.data[column], self._edges.data[column] = standing.entries, standing.edges
        self._scores_edges.data[column] = standing.scores_edges

    def _forget_unused(self) -> None:
        """Keep what makes queries that rest score alike, and nothing else."""
        rests, alike, count = self.bar.view() > AWAKE, self._alike.view(), len(self._unreached)
        kept, number = np.unique(alike[rests], return_inverse=True)
        alike[:] = 0
        alike[rests] = number
        place = dict(zip(kept.tolist(), range(len(kept)), strict=True))
        self._number = {each: place[before] for each, before in self._number.items() if before in place}
        self._unreached = [self._unreached[before] for before in place]
        self._most = {items: rows[kept] for items, rows in self._most.items() if len(rows) == count}
        self._most_alike = max(LEAST_ALIKE, 2 * len(kept))

    def lift(self, column: int, people: Ints, heights: Flags) -> None:
        """Take how high these people stand in the query."""
        self._make_room()
        self._people[people, column] = self._people[people, column] & FLAGS | heights

    def lead(self, column: int, before: First | None, first: First) -> None:
        """Take its first items, in place of those before."""
        if before is not None:
            self._people[list(before.participants), column] &= ~LEADS
        self._people[list(first.participants), column] |= LEADS

    def tell_of(self, column: int, item_ids: Iterable[str]) -> None:
        """Take that it has been told of these items."""
        collection, sets = self._collection, set()
        for item_id in item_ids:
            if (place := collection.index(item_id)) is None:
                self._items.setdefault(item_id, set()).add(column)
            else:
                sets.add(collection.set_of(place))
        edges = {edge for which in sets for edge in collection.sets.edges(which)}
        self._people[[end for edge in edges for end in collection.graph.ends(edge)], column] |= TOLD_OF

    def await_people(self, column: int, names: Iterable[str], known: int) -> None:
        """Take whom it has on its watch-list; it knows the first so many participants."""
        for name in names:
            if (participant := self._collection.graph.participant(name)) is None:
                self._names.setdefault(name, set()).add(column)
            elif participant >= known:
                self._people[participant, column] |= HEIGHT

    def expect_no_more(self, column: int, names: Iterable[str]) -> None:
        """Take that these are on its watch-list no more: nobody need wait for those who have not come."""
        for name in names:
            self._forget_waiting(self._names, name, column)

    def _meet_who_came(self, now: Mark) -> None:
        """Have those who wait for an item, or for somebody, that came since the mark know now who that is."""
        if self._items:
            for item_id in self._items.keys() & self._collection.item_ids[self.mark.items : now.items]:
                for column in self._items.pop(item_id):
                    self.tell_of(column, [item_id])
        graph = self._collection.graph
        if self._names:
            for name in self._names.keys() & graph.participants[self._met :]:
                for column in self._names.pop(name):
                    self.await_people(column, [name], known=0)
        self._met = len(graph)

    def _make_room(self) -> None:
        people, columns = self._people.shape
        needed, width = len(self._collection.graph), len(self._watchers)
        if needed <= people and width <= columns:
            return
        rows = people if needed <= people else needed + needed // SPARE
        larger: Flags = np.zeros((rows, columns if width <= columns else 8 + width + width // SPARE), np.uint8)
        larger[:people, :columns] = self._people
        self._people = larger

    def _empty_columns(self) -> None:
        while self._gone:
            column = self._gone.pop()
            self._watchers[column], self.bar.data[column] = None, AWAKE
            self._people[:, column : column + 1] = 0
            for waiting in (self._items, self._names):
                for key in [key for key, columns in waiting.items() if column in columns]:
                    self._forget_waiting(waiting, key, column)
            self._free.append(column)

    @staticmethod
    def _forget_waiting(waiting: dict[str, set[int]], key: str, column: int) -> None:
        if (columns := waiting.get(key)) is not None:
            columns.discard(column)
            if not columns:
                del waiting[key]
