"""Which queries of a collection what it got may concern: those are asked (`concern.concerns`), and no others.

A query that nothing has been done to since it was last up to date *rests*. What could concern it is known then:
news of somebody whom its data have reached, or who is on one of its first items, or on one that it has been told
of; and, of all others, a set that may score as much as the last of its first items although it is as without data,
which is the same in all queries that score alike (`ranking.unreached`). So all who rest are compared with news at
once. Whoever is not concerned has seen them: one mark says up to where, for all of them.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple
from weakref import ref

import numpy as np

from haystream.arrays import Flags, Floats, Growing, Ints, Longs, Switches
from haystream.collection import Collection
from haystream.concern import MARGIN, MOST_ENTRIES, MOST_PAIRS, Mark, News, news_since
from haystream.ranking.first import First
from haystream.ranking.unreached import Unreached

AWAKE = -np.inf
"""What it takes to concern a query that does not rest: anything."""
SPARE = 8
"""Rows of people, who become more, get an eighth more than is needed."""


class Standing(NamedTuple):
    """What decides, of a query that rests, whether news may concern it."""

    first: First
    """Its first items, as many as it offers."""
    alike: Hashable
    """Equal for queries that score alike what their data have not reached."""
    unreached: Unreached
    """What they score such sets by."""
    scores_edges: bool
    """Whether an item moves the scores of other sets on its edges, too."""
    entries: int
    """Of the log that are folded in."""
    edges: int
    """That its engine knows."""
    reached: Ints
    """Whom its data have reached since it last rested."""
    listed: Mapping[str, float]
    """Its watch-list."""


class Watcher:
    """A query, as it is known to its collection's `Watchers`, for as long as there is a reference to this."""

    def __init__(self, watchers: "Watchers", query_id: str) -> None:
        self.query_id = query_id
        self.rests = False
        """Whether it is not asked where news plainly do not concern it."""
        self._watchers = watchers
        self._column: int | None = None
        self._seen = Mark()
        self._told_of: set[str] = set()
        """Items, by id, that it has been told of since it last rested."""
        self._first: First | None = None
        self._listed: Mapping[str, float] = {}
        """Who is among the reached already."""

    @property
    def seen(self) -> Mark:
        """Up to where nothing concerned it while it rested."""
        return self._watchers.mark if self.rests else self._seen

    def begin(self) -> None:
        """Be asked from now on."""
        if self._column is None:
            self._column = self._watchers.let_in(self)

    def tell_of(self, item_id: str) -> None:
        """Take that a verdict, or a lease, names an item, which need not be known yet."""
        self._told_of.add(item_id)

    def wake(self) -> None:
        """Be asked of anything that comes, until it rests again."""
        if self.rests:
            assert self._column is not None
            self._seen, self.rests = self._watchers.mark, False
            self._watchers.bar.data[self._column] = AWAKE

    def rest(self, standing: Standing) -> None:
        """Be asked only of what may concern it; it is up to date, or what it is behind by is no concern of it."""
        self.begin()
        assert self._column is not None
        watchers, column = self._watchers, self._column
        watchers.reach(column, standing.reached)
        if standing.first is not self._first:
            watchers.reach(column, sorted(standing.first.participants))
            self._first = standing.first
        if standing.listed is not self._listed:
            watchers.reach_listed(column, standing.listed)
            self._listed = standing.listed
        watchers.reach_items(column, self._told_of)
        self._told_of.clear()
        watchers.put(column, standing)
        self.rests = True


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
        self._reached: Flags = np.zeros((0, 0), np.uint8)
        """Shape (participants or more, columns / 8 or more): a bit for each query whom it has reached."""
        self._number: dict[Hashable, int] = {}
        """By what makes queries score alike."""
        self._unreached: list[Unreached] = []
        """By that number."""
        self._items: dict[str, set[int]] = {}
        """Columns by the items, by id, that they have been told of and that are still to come."""
        self._people: dict[str, set[int]] = {}
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
            self._reach_who_came(now)
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
        if not resting.any():
            return resting
        if self._collection.outgrown or now.entries - self.mark.entries > MOST_ENTRIES:
            return resting
        news = news_since(self._collection, self.mark)
        found = (now.entries - self._entries.view() > MOST_ENTRIES) | (now.edges - self._edges.view() > MOST_PAIRS)
        found |= self._who_reached(news.participants())
        if (by_edge := (self._scores_edges.view() > 0) & resting).any():
            found |= by_edge & self._who_reached(news.participants(on_their_edges=True))
        found |= self._hopes(news, resting)[self._alike.view()] >= self.bar.view()
        return found & resting

    def _hopes(self, news: News, resting: Switches) -> Floats:
        """What the best of the sets that got items scores at most, by number of those who score alike, where
        nobody on it is reached."""
        best = np.full(len(self._unreached), -np.inf)
        counts = {self._collection.items_left(which) for which in news.sets}
        if counts:
            for number in np.flatnonzero(np.bincount(self._alike.view()[resting])).tolist():
                best[number] = max(map(self._unreached[number].most, counts))
        return best

    def _who_reached(self, participants: Sequence[int]) -> Switches:
        """Who has reached any of them, shape (columns,)."""
        bits = np.bitwise_or.reduce(self._reached[participants], axis=0)
        return np.unpackbits(bits, count=self.bar.size, bitorder="little").view(np.bool_)

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
        number = self._number.setdefault(standing.alike, len(self._unreached))
        if number == len(self._unreached):
            self._unreached.append(standing.unreached)
        assert standing.first.least is not None
        self.bar.data[column] = standing.first.least - MARGIN
        self._alike.data[column] = number
        self._entries.data[column], self._edges.data[column] = standing.entries, standing.edges
        self._scores_edges.data[column] = standing.scores_edges

    def reach(self, column: int, participants: Sequence[int] | Ints) -> None:
        """Take that the query has reached these."""
        if len(participants):
            self._make_room()
            self._reached[participants, column >> 3] |= np.uint8(1 << (column & 7))

    def reach_items(self, column: int, item_ids: Iterable[str]) -> None:
        """Take that it has reached everybody on these items, or will when they come."""
        collection, reached = self._collection, set()
        for item_id in item_ids:
            if (place := collection.index(item_id)) is None:
                self._items.setdefault(item_id, set()).add(column)
            else:
                reached.add(collection.set_of(place))
        edges = {edge for which in reached for edge in collection.sets.edges(which)}
        self.reach(column, sorted({end for edge in edges for end in collection.graph.ends(edge)}))

    def reach_listed(self, column: int, names: Iterable[str]) -> None:
        """The same of participants."""
        for name in names:
            if (participant := self._collection.graph.participant(name)) is None:
                self._people.setdefault(name, set()).add(column)
            else:
                self.reach(column, [participant])

    def _reach_who_came(self, now: Mark) -> None:
        """Have those who wait for an item, or for somebody, that came since the mark reach them now."""
        if self._items:
            for item_id in self._items.keys() & self._collection.item_ids[self.mark.items : now.items]:
                for column in self._items.pop(item_id):
                    self.reach_items(column, [item_id])
        graph = self._collection.graph
        if self._people:
            for name in self._people.keys() & graph.participants[self._met :]:
                for column in self._people.pop(name):
                    self.reach_listed(column, [name])
        self._met = len(graph)

    def _make_room(self) -> None:
        people, columns = self._reached.shape
        needed, width = len(self._collection.graph), (len(self._watchers) + 7) >> 3
        if needed <= people and width <= columns:
            return
        room = people if needed <= people else needed + needed // SPARE, columns if width <= columns else 2 * width
        larger: Flags = np.zeros(room, np.uint8)
        larger[:people, :columns] = self._reached
        self._reached = larger

    def _empty_columns(self) -> None:
        while self._gone:
            column = self._gone.pop()
            self._watchers[column], self.bar.data[column] = None, AWAKE
            self._reached[:, column >> 3 : (column >> 3) + 1] &= np.uint8(~(1 << (column & 7)) & 255)
            for waiting in (self._items, self._people):
                for key in [key for key, columns in waiting.items() if column in columns]:
                    waiting[key].discard(column)
                    if not waiting[key]:
                        del waiting[key]
            self._free.append(column)
