"""Queries that nobody has judged anything in are their prior: their engine is made once, and copied; a
query's ranking is that of the prior where nothing differs."""

from collections.abc import Hashable
from dataclasses import fields, replace

from haystream.arrays import Ints
from haystream.collection import Collection
from haystream.engines.contract import Engine
from haystream.engines.local import LocalEngine
from haystream.engines.local.prior_inverse import shared_precision
from haystream.events import Prior
from haystream.ranking.prior_rankings import PriorRankings

MOST_MOVED = 0.1
"""Where entries of Q⁻¹ have moved at a larger share of the participants, each time counted, a copy is made of a
newer original: following that takes as long as making one."""

MOST_ITEMS = 4096
"""The same of new items, and of those that were withdrawn since."""

MOST_PRIORS = 4
"""So many originals are kept of one collection. What their copies share with one that is let go stays as long as
these do."""


class Blank:
    """A prior without a watch-list on a collection as it was at some moment, to be copied.

    Copies share its memory where they have not changed it. A newer original shares nothing with an older one's
    copies, so one is made only where following what came since would take longer.
    """

    def __init__(self, collection: Collection, engine: LocalEngine, before: "Blank | None" = None) -> None:
        """`engine` knows the items that the one `before` knows, or none, and is not to be used any more."""
        items, withdrawn, rankings = (before.items, before.withdrawn, before.rankings) if before else (0, 0, None)
        self.items: int = len(collection)
        """How many items of the collection are in it."""
        self.withdrawn: int = collection.withdrawn.size
        """How many of these are withdrawn in it: the first ones that were."""
        if items < self.items:
            engine.offer(*collection.sets.offered(collection.sets_of(items, self.items)))
        take_back(engine, collection, collection.withdrawn.data[withdrawn : self.withdrawn])
        engine.settle()
        self._collection = collection
        self._template = engine.template()
        self._original = engine.copy(self._template)
        self.rankings: PriorRankings = PriorRankings(collection, self._original.readings, self.items, rankings)
        """By the prior, of these items."""

    def engine(self) -> LocalEngine:
        """An engine that has been offered the first `items` of the collection, but for those withdrawn."""
        return self._original.copy(self._template)

    def renewed(self) -> "Blank":
        """This one, or a newer one where that is nearer to the collection as it is now by much."""
        collection, original = self._collection, self._original
        news = len(collection) - self.items + collection.withdrawn.size - self.withdrawn
        if news <= MOST_ITEMS and original.behind <= MOST_MOVED * len(collection.graph):
            return self
        return Blank(collection, self.engine(), self)


def take_back(engine: Engine, collection: Collection, items: Ints) -> None:
    """Have the engine offer some items no more that it was offered, given their places."""
    if len(items):
        edges, offered = collection.sets.offered(collection.sets_at(items))
        engine.offer(edges, -offered)


def shared_blank(collection: Collection, prior: Prior, tolerance: float) -> Blank:
    """The one that all queries share whose priors differ in their watch-lists alone.

    Raises:
        QueryFailed: TOO_MUCH_WORK.
    """
    known: dict[Hashable, Blank] = collection.shared.setdefault(Blank, {})
    of_all = replace(prior, participants={})
    key = tolerance, *(getattr(prior, each.name) for each in fields(prior) if each.name != "participants")
    blank = known.pop(key, None)
    if blank is None:
        precision = shared_precision(collection, prior.correlation, tolerance)
        engine = LocalEngine(collection.graph, of_all, precision, tolerance=tolerance)
        blank = Blank(collection, engine)
    known[key] = blank = blank.renewed()  # the last to be let go
    for oldest in list(known)[:-MOST_PRIORS]:
        del known[oldest]
    return blank
