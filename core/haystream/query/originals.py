"""What queries begin as copies of. One that nobody has judged anything in is its prior: the engine of that is made
once, the original, and copied; a query's ranking is that of the prior where nothing differs."""

from collections.abc import Hashable
from dataclasses import fields, replace

from haystream.collection.collection import Collection
from haystream.engines.local import LocalEngine
from haystream.engines.local.inverse.precision import PrecisionAsItWas
from haystream.engines.local.inverse.prior_inverse import GraphPrecision, prior_tolerance, shared_precision
from haystream.events import Policy, Prior
from haystream.memory.arrays import Floats, Ints
from haystream.ranking.policies import POLICIES, Moves
from haystream.ranking.prior_rankings import PriorRankings

MOST_MOVED = 0.1
"""Where entries of Q⁻¹ have moved at a larger share of the participants, each time counted, a newer original is to
be made ahead."""

MOST_ITEMS = 4096
"""The same of new items, and of those that were withdrawn since, on a small graph."""

EDGES_PER_ITEM = 32
"""On a larger one, of one item for so many edges: to follow an item takes a few microseconds, and to make an
original about one microsecond an edge."""

MOST_FOLLOWED = 2.0
"""Who opens waits for a newer one where so many times as much has come, but for items on a larger graph: to follow
that takes up to a tenth of a second, for which verdicts of other queries may have to wait."""

LEADER_LAGS = 1 / 16
"""Where so much of that has come, it is taken in ahead for all who open. It is as little as that since verdicts of
other queries may have to wait meanwhile."""

MOST_PRIORS = 4
"""So many originals are kept of one collection. What their copies share with one that is let go stays as long as
these do."""


class BlankEngine:
    """An engine without data, and how much of its collection it has been offered."""

    def __init__(self, collection: Collection, engine: LocalEngine, items: int = 0, withdrawn: int = 0) -> None:
        self._collection = collection
        self.engine = engine
        self.items = items
        """It knows the collection's first items, so many."""
        self.withdrawn = withdrawn
        """And of these, so many that were withdrawn: the first ones that were."""

    def news(self) -> list[tuple[Ints, Floats]]:
        """What the collection got since: edges, and by how many items they have more on offer; it is known then."""
        collection, sets = self._collection, self._collection.sets
        gone = collection.withdrawn.data[self.withdrawn : collection.withdrawn.size]
        offered = sets.offered(collection.sets_of(self.items, len(collection)))
        edges, taken_back = sets.offered(collection.sets_at(gone))
        self.items, self.withdrawn = len(collection), collection.withdrawn.size
        return [news for news in (offered, (edges, -taken_back)) if len(news[0])]

    def follow(self) -> None:
        """Take in what the collection got; the engine's next `settle` says what that moved.

        Raises:
            QueryFailed: TOO_MUCH_WORK.
        """
        for edges, items in self.news():
            self.engine.offer(edges, items)
        self.engine.follow()

    def outdated(self, times: float) -> bool:
        """Whether the collection has got so many times as much as it gets until a newer original is made ahead."""
        collection, graph = self._collection, self._collection.graph
        news = len(collection) - self.items + collection.withdrawn.size - self.withdrawn
        most = max(times * MOST_ITEMS, min(times, 1.0) * graph.edges / EDGES_PER_ITEM)
        return news > most or self.engine.behind > times * MOST_MOVED * len(graph)


class Original:
    """A prior without a watch-list on a collection as it was at some moment, to be copied once it is made.

    Copies share its memory where they have not changed it. A newer original shares nothing with an older one's
    copies, so one is made only where following what came since would take longer. That is done once for all who
    open: the **leader** is a copy that does so, and whoever opens gets a twin of it.
    """

    def __init__(
        self,
        collection: Collection,
        precision: GraphPrecision,
        engine: LocalEngine,
        before: "Original | None" = None,
    ) -> None:
        """`engine` has that precision, knows the items that the one `before` knows, or none, and is used up."""
        self._made = BlankEngine(collection, engine, *((before.items, before.withdrawn) if before else ()))
        self._offered = self._made.news()
        self._leader: BlankEngine | None = None
        self.rankings: PriorRankings = PriorRankings(collection, self.items, before.rankings if before else None)
        """By the prior, of the items that are in it."""
        self._collection = collection
        self._precision = precision
        precision.grow()
        as_it_was = PrecisionAsItWas(precision, precision.changes.unread(engine))
        engine.move(collection.graph.as_now(), as_it_was)

    @property
    def items(self) -> int:
        """How many items of the collection are in it."""
        return self._made.items

    @property
    def withdrawn(self) -> int:
        """How many of these are withdrawn in it: the first ones that were."""
        return self._made.withdrawn

    def make(self, policy: Policy | None = None) -> None:
        """Compute it, and what a query with that policy begins with.

        This may be done in another thread while others work with the collection, and the collection grows.

        Raises:
            QueryFailed: TOO_MUCH_WORK.
        """
        engine = self._made.engine
        for edges, items in self._offered:
            engine.offer(edges, items)
        self._offered = []
        engine.settle()
        self._template = engine.template()
        self.rankings.use(engine.readings)
        if policy is not None and POLICIES[policy.name].moves is Moves.NEVER:
            self.rankings.at(policy, engine.readings.rounded_common())

    def finish(self) -> "Original":
        """This one, to be copied from now on."""
        made = self._made
        made.engine.move(self._collection.graph, self._precision)
        made.engine = made.engine.copy(self._template)
        self.rankings.use(made.engine.readings)
        return self

    def as_made(self) -> LocalEngine:
        """An engine that knows what is in it, and in which much will differ."""
        return self._made.engine.copy(self._template, laid_over=False)

    def engine(self) -> LocalEngine:
        """An engine that has been offered all items of the collection, but for those withdrawn; what came since the
        original was made is what its next `settle` says of.

        Raises:
            QueryFailed: TOO_MUCH_WORK.
        """
        leader = self.lead()
        twin = leader.engine.twin(self._template)
        if twin is not None:
            return twin
        self._leader = None
        return leader.engine

    def lead(self) -> BlankEngine:
        """The leader, which has taken in what the collection got. Raises as `engine`."""
        leader, self._leader = self._leader, None  # one that failed is not used again
        if leader is None:
            leader = BlankEngine(
                self._collection, self._made.engine.copy(self._template), self.items, self.withdrawn
            )
        leader.follow()
        self._leader = leader
        return leader

    @property
    def nbytes(self) -> int:
        """Bytes that its copies share."""
        return self._template.nbytes

    def outdated(self, times: float = 1.0) -> bool:
        """Whether the collection has got so many times as much as it gets before a newer one is made ahead."""
        return self._made.outdated(times)

    @property
    def lags(self) -> bool:
        """Whether `lead` had better take in what the collection got, before somebody opens and waits for it; not
        where so much came that who opens waits for a newer one."""
        return (self._leader or self._made).outdated(LEADER_LAGS) and not self.outdated(MOST_FOLLOWED)


class KeptOriginal:
    """The original that a collection keeps for queries with a prior, and for all whose priors differ from it in the
    watch-list alone; there may be none yet."""

    def __init__(self, collection: Collection, prior: Prior, tolerance: float) -> None:
        self._collection = collection
        self._prior = prior
        self._tolerance = tolerance
        self._key = without_watch_list(prior, tolerance)
        self._kept: dict[Hashable, Original] = collection.shared.setdefault(Original, {})

    @property
    def due(self) -> bool:
        """Whether a newer one is better made before the next query opens."""
        original = self._kept.get(self._key)
        return original is not None and original.outdated()

    @property
    def lags(self) -> bool:
        """Whether what the collection got is better taken in (`lead`) before the next query opens."""
        original = self._kept.get(self._key)
        return original is not None and original.lags

    def lead(self) -> None:
        """Have who opens next not wait for what the collection has got. Raises as `Original.make`."""
        original = self._kept.get(self._key)
        if original is not None:
            original.lead()

    def begun(self, *, ahead: bool = False) -> Original | None:
        """One that is still to be made, and then to be handed to `take`; None where there is one that will do, or
        the collection has no items.

        `ahead`: nobody waits for it.
        """
        collection, prior, original = self._collection, self._prior, self._kept.get(self._key)
        if not len(collection):
            return None
        if original is not None and not original.outdated(1.0 if ahead else MOST_FOLLOWED):
            return None
        precision = shared_precision(collection, prior.correlation, prior_tolerance(prior, self._tolerance))
        if original is not None:
            return Original(collection, precision, original.as_made(), original)
        of_all = replace(prior, participants={})
        engine = LocalEngine(collection.graph, of_all, precision, tolerance=self._tolerance)
        return Original(collection, precision, engine)

    def take(self, made: Original) -> Original:
        """Keep one that is made, unless somebody else's knows more by now; return the one that is kept."""
        known = self._kept.get(self._key)
        if known is None or known.items + known.withdrawn <= made.items + made.withdrawn:
            self._kept[self._key] = made.finish()
        return self._used()

    def get(self) -> Original:
        """One that will do, which is made now unless there is one. Raises as `Original.make`."""
        begun = self.begun()
        if begun is None:
            return self._used()
        begun.make()
        return self.take(begun)

    def _used(self) -> Original:
        original = self._kept[self._key] = self._kept.pop(self._key)  # the last to be let go
        for oldest in list(self._kept)[:-MOST_PRIORS]:
            del self._kept[oldest]
        return original


def without_watch_list(prior: Prior, tolerance: float) -> tuple[Hashable, ...]:
    """What queries on one collection have in common whose priors differ in the watch-list alone."""
    return tolerance, *(getattr(prior, each.name) for each in fields(prior) if each.name != "participants")
