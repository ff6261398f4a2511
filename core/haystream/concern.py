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
item would be among the first (`engines.local.ahead`). The rest of it is seen when the query catches up.
"""

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from haystream.arrays import Ints
from haystream.collection import Collection
from haystream.engines.local import LocalEngine
from haystream.engines.local.budget import PROMISE
from haystream.ranking.queue import Queue

MOST_PAIRS = 8
"""New pairs that a query may be behind by: to catch up then takes some three milliseconds, and a verdict waits for
it."""
MOST_ENTRIES = 100
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
        ids, graph = collection.item_ids, collection.graph
        self.ids = ids[since.items :]
        gone = collection.withdrawn.data[since.withdrawn : self.now.withdrawn]
        self.withdrawn = {item: ids[item] for item in gone.tolist()}
        self.ends = sorted({end for pair in graph.pairs[since.edges :] for end in pair})
        """Who has new pairs."""
        of_items = collection.sets_of(since.items, self.now.items)
        self.sets: Ints = np.unique(np.concatenate([of_items, collection.sets_at(gone)]))
        """The sets that have other items than before."""
        self.best: dict[Hashable, float] = {}
        """The best score of those of the sets that are not a query's own, in queries to which they are the same."""
        self._of = collection.sets

    @cached_property
    def on_their_edges(self) -> Ints:
        """The sets that share an edge with one of these."""
        found = set(self.sets.tolist())
        for edge in {edge for which in found for edge in self._of.edges(which)}:
            found.update(self._of.on_edge(edge))
        return np.array(sorted(found), np.int32)


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
    told_of: Callable[[str], bool],
) -> bool:
    """Whether the first `top` items of the query that has these may change by the news.

    `more`: items that it has not followed. `kind`: equal for queries that score alike what their data have not
    reached. `told_of`: whether a verdict or a lease names an item.
    """
    first = queue.known_first(top)
    if first is None or first.least is None:
        return True
    if any(map(told_of, news.ids)):
        return True
    if any(item in first.places or told_of(item_id) for item, item_id in news.withdrawn.items()):
        return True
    if not first.participants.isdisjoint(news.ends):
        return True
    ahead, enough = engine.ahead, first.least - MARGIN
    sets, most = news.on_their_edges if queue.scores_edges else news.sets, ahead.mean_at_most(news.ends)
    if first.has_any_of(sets):
        return True
    if not (news.withdrawn or queue.scores_edges):
        sets = sets[[not queue.stays_below(which, enough, most, ahead) for which in sets.tolist()]]
    as_prior = np.array([queue.as_prior(which, ahead) for which in sets.tolist()], np.bool_)
    if as_prior.any():
        key = kind, engine.readings.rounded_common(), most, sets[as_prior].tobytes(), more
        if key not in news.best:
            news.best[key] = float(queue.score_ahead(ahead, sets[as_prior], more).max())
        if news.best[key] >= enough:
            return True
    own = sets[~as_prior]
    return len(own) > 0 and bool(queue.score_ahead(ahead, own, more).max() >= enough)
