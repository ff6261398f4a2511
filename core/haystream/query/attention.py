"""Whether a query has to look at what its collection gets: it is asked of all that comes, or, once it is up to
date, it rests and is asked only of what may concern it (`watchers`)."""

from collections.abc import Hashable, Iterable, Set
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from haystream.collection.collection import Collection
from haystream.engines.contract import Engine
from haystream.engines.local import LocalEngine
from haystream.events import Query
from haystream.memory.arrays import Ints, union
from haystream.models.registry import MODELS
from haystream.query.concern import MOST_ENTRIES, MOST_PAIRS, Mark, News, concerns, news_since
from haystream.query.originals import without_watch_list
from haystream.query.watchers import Standing, Watchers
from haystream.ranking.policies import POLICIES, Moves
from haystream.ranking.queue import Queue
from haystream.ranking.unreached import Unreached, at_most

MOST_NOTED = 64
"""Of so many settlings, at most, it is noted whom they moved, where that is one in so many at most; else everybody
is looked at instead."""


class Followed(NamedTuple):
    """What a query has taken in, and what it makes of that."""

    settings: Query
    engine: Engine
    queue: Queue
    entries: int
    """Of the collection's log."""
    items: int
    participants: int


class Attention:
    """What one query has seen of its collection, and what is known of it there while it rests."""

    def __init__(self, collection: Collection, query_id: str, tolerance: float) -> None:
        self._collection = collection
        self._tolerance = tolerance
        self._watcher = Watchers.of(collection).watch(query_id)
        self._seen = Mark()
        """Up to where nothing concerns the query that it has not followed, where it was asked about that."""
        self._noted: list[Ints] | None = []
        """Whom settlings have moved since the query last rested; None where that may be anybody."""
        self._kind_of: tuple[Query | None, _Kind | None] = None, None

    @property
    def seen(self) -> Mark:
        """Up to where nothing of the collection concerns the query that it has not followed."""
        return max(self._seen, self._watcher.seen)

    def catch_up(self) -> None:
        """Take that the query follows all that the collection has."""
        self._seen = Mark.of(self._collection)

    def begin(self) -> None:
        """Have the query be asked from now on."""
        self._watcher.begin()

    def wake(self) -> None:
        """Have the query be asked of anything that comes, until it rests again."""
        self._watcher.wake()

    def tell_of(self, item_id: str) -> None:
        """Take that a verdict, or a lease, names an item, which need not be known yet."""
        self._watcher.tell_of(item_id)

    def note(self, moved: Ints, participants: int) -> None:
        """Take that these of so many have moved since the query last rested."""
        self._watcher.wake()
        if self._noted is not None and len(moved):
            few = len(self._noted) < MOST_NOTED and MOST_NOTED * len(moved) <= participants
            self._noted = [*self._noted, moved] if few else None

    def concerned(self, query: Followed, named: Iterable[Set[str]]) -> bool:
        """Whether what the collection got may change what the query offers first; if not, the query has seen it.

        `named`: the items, by id, that verdicts and leases name.
        """
        news = self._no_concern(query, named)
        if news is None:
            self._watcher.wake()
            return True
        self._seen = news.now
        return False

    def _no_concern(self, query: Followed, named: Iterable[Set[str]]) -> News | None:
        """What the collection got, if that does not concern the query; None if it does."""
        collection, engine, kind = self._collection, query.engine, self._kind(query.settings)
        if kind is None or collection.outgrown or not isinstance(engine, LocalEngine) or engine.unfinished:
            return None
        if collection.entries - query.entries > MOST_ENTRIES or engine.pairs_behind > MOST_PAIRS:
            return None
        news, more = news_since(collection, self.seen), len(collection) - query.items
        concerned = concerns(news, query.queue, engine, top=query.settings.top, more=more, kind=kind, named=named)
        return None if concerned else news

    def rest(self, query: Followed) -> None:
        """Have the query be asked only of what may concern it, if it can be said of it what that is.

        It is settled, and has nothing left to do; it is up to date, or what it is behind by is no concern of it.
        """
        engine, queue, settings, watcher = query.engine, query.queue, query.settings, self._watcher
        prior, kind = settings.prior, self._kind(settings)
        if watcher.rests or kind is None or not isinstance(engine, LocalEngine):
            return
        if not MODELS[prior.model](prior).common_weight:
            return
        first, readings = queue.known_first(settings.top), engine.readings
        if first is None or first.least is None:
            return
        if readings.pending and readings.known_common().base_rate != readings.common().base_rate:
            return  # it scores by both
        common, listed = readings.rounded_common(), prior.participants
        variance = at_most(max(common.variance, readings.known_common().variance))
        unreached = Unreached(prior, settings.policy, common.base_rate, variance, self._tolerance)
        alike: Hashable = (kind, common.base_rate, variance)
        if self._noted is None or alike != watcher.alike or listed is not watcher.listed:
            people = np.arange(query.participants, dtype=np.int32)
        else:
            people = union(*self._noted)
        self._noted = []
        mean, reach, *_ = engine.told(people, np.zeros(0, np.int32))
        edges = self._collection.graph.edges - engine.pairs_behind
        standing = Standing(first, alike, unreached, queue.scores_edges, query.entries, edges)
        watcher.rest(standing, people, unreached.heights(mean, reach), listed)

    def _kind(self, settings: Query) -> "_Kind | None":
        """What queries of the collection share which score alike what their data have not reached; None of one of
        which it cannot be said whether news concern it."""
        if self._kind_of[0] is not settings:
            self._kind_of = settings, self._shared_kind(settings)
        return self._kind_of[1]

    def _shared_kind(self, settings: Query) -> "_Kind | None":
        prior, policy = settings.prior, settings.policy
        if prior.covariance is not None or POLICIES[policy.name].moves is not Moves.NEVER:
            return None
        shared = self._collection.shared.setdefault(_Kind, {})
        kinds: WeakValueDictionary[Hashable, _Kind] = shared.setdefault(None, WeakValueDictionary())
        # Kept by whoever is of it alone: settings may change any number of times.
        return kinds.setdefault((without_watch_list(prior, self._tolerance), replace(policy, seed=0)), _Kind())


class _Kind:
    """Those that score alike what their data have not reached: compared by who it is."""

    __slots__ = ("__weakref__",)
