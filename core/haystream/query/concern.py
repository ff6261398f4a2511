"""Whether what a collection got concerns a query, or can be folded in later, when there is more of it.

To follow each item at once is work in every query, and most change none of what it offers. So a query may stay
behind its collection as long as what came leaves its first items, and their order, as they are. It is concerned by

- items that would stand among the first ones: those whose set scores as much as the last of them, with a margin for
  what readers are not told of, whether or not the set is the query's own, or is the set of one of them (whose score
  may fall with it);
- items that it has been told of before they came, by a verdict or a lease;
- a withdrawal of what it shows, has handed out, or was told something of;
- a new pair of somebody who is on one of the first items: what is believed of these moves;
- anything, where it has fewer items than it may offer, or is behind by so much that a verdict would be late.

What a new pair does to what is believed near it is small, unless one of the two stands out: then the pair's own
item would be among the first (`engines.local.readings.ahead`). The rest of it is seen when the query catches up.
"""

from collections.abc import Hashable, Iterable, Set
from functools import cached_property
from typing import NamedTuple

import numpy as np

from haystream.collection.collection import Collection
from haystream.engines.local import LocalEngine
from haystream.engines.local.solves.budget import PROMISE
from haystream.ranking.queue import Queue

MOST_PAIRS = 16
"""New pairs that a query may be behind by: to catch up then takes some three milliseconds, and a verdict waits for
it."""
MOST_ENTRIES = 200
"""Entries of the log that it may be behind by: on known pairs these take as long."""
MARGIN = PROMISE
"""So much less than the last of the first items an item may score, and still concern the query: scores are made of
what readers were told, and of what the prior says."""


class Mark(NamedTuple):
    """How far a collection has come."""

    entries: int = 0
    items: int = 0
    withdrawn: int = 0
    edges: int = 0

    @classmethod
    def of(cls, collection: Collection) -> "Mark":
        """Where it is now."""
        return cls(collection.entries, len(collection), collection.withdrawn.size, collection.graph.edges)


class News:
    """What a collection got since some mark; queries that are asked about the same share one (`news_since`)."""

    def __init__(self, collection: Collection, since: Mark) -> None:
        self.now = Mark.of(collection)
        ids, graph, sets = collection.item_ids, collection.graph, collection.sets
        self.withdrawn = frozenset(collection.withdrawn.data[since.withdrawn : self.now.withdrawn].tolist())
        """Places of items."""
        self.ids = frozenset(ids[since.items :]).union(ids[item] for item in self.withdrawn)
        """Of all items that came, or were withdrawn."""
        self.ends = sorted({end for edge in range(since.edges, self.now.edges) for end in graph.ends(edge)})
        """Who has new pairs."""
        came = collection.sets_of(since.items, self.now.items).tolist()
        self.sets = tuple(sorted({*came, *map(collection.set_of, self.withdrawn)}))
        """The sets that have other items than before."""
        self.best: dict[Hashable, float] = {}
        """What the best of those sets scores that are not a query's own, by all that makes a difference to it."""
        self._at_most: dict[Hashable, float] = {}
        self._of = sets

    def at_most(self, queue: Queue, kind: Hashable, mean: float, sets: tuple[int, ...]) -> float:
        """What these sets score at most (`Prospects.most_by_prior`), in the queues of all queries of the kind."""
        known = self._at_most.get((kind, mean, sets))
        if known is None:
            known = max(queue.prospects.most_by_prior(which, mean) for which in sets)
            self._at_most[kind, mean, sets] = known
        return known

    @cached_property
    def on_their_edges(self) -> tuple[int, ...]:
        """The sets that share an edge with one of these."""
        found = set(self.sets)
        for edge in {edge for which in self.sets for edge in self._of.edges(which)}:
            found.update(self._of.on_edge(edge))
        return tuple(sorted(found))


def news_since(collection: Collection, since: Mark) -> News:
    """What the collection got since then."""
    shared = collection.shared.setdefault(News, {})
    news: News | None = shared.get(since)
    if news is None or news.now.entries != collection.entries:
        for old in [mark for mark, known in shared.items() if known.now.entries != collection.entries]:
            del shared[old]
        news = shared[since] = News(collection, since)
    return news


def concerns(
    news: News,
    queue: Queue,
    engine: LocalEngine,
    *,
    top: int,
    more: int,
    kind: Hashable,
    named: Iterable[Set[str]],
) -> bool:
    """Whether the first `top` items of the query that has these may change by the news.

    `more`: items that it has not followed. `kind`: equal for queries that score alike what their data have not
    reached. `named`: the items, by id, that verdicts and leases name.

    Each of many queries is asked this at every item, and it is no concern of most. So what is asked first are a few
    members of a few sets, and what is computed is computed for one query of each kind.
    """
    first = queue.known_first(top)
    if first is None or first.least is None or not first.participants.isdisjoint(news.ends):
        return True
    for ids in named:
        if not ids.isdisjoint(news.ids):
            return True
    by_set = not queue.scores_edges
    sets = news.sets if by_set else news.on_their_edges
    if not first.sets.isdisjoint(sets) or (news.withdrawn and not first.places.isdisjoint(news.withdrawn)):
        return True
    ahead, enough = engine.ahead, first.least - MARGIN
    most, others, own = ahead.mean_at_most(news.ends), *queue.prospects.not_own(sets, ahead.known_edges)
    if by_set and not news.withdrawn:
        if others and news.at_most(queue, kind, most, others) < enough:
            others = ()
        if own:
            own = [which for which in own if not queue.prospects.stays_below(which, enough)]
    if not (others or own):
        return False
    if others:
        of_kind = kind, most, others, engine.readings.rounded_common(), more
        if of_kind not in news.best:
            news.best[of_kind] = float(queue.prospects.score_ahead(ahead, np.array(others, np.int32), more).max())
        if news.best[of_kind] >= enough:
            return True
    return len(own) > 0 and bool(queue.prospects.score_ahead(ahead, np.array(own, np.int32), more).max() >= enough)
