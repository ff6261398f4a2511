"""The state of one query: a fold over its settings, the items of its collection, its verdicts and its leases.

Facts first: `verdicts` (by id), `leases` and the collection say everything; the counts, the posterior and the
ranking are functions of them, kept up to date incrementally. The order in which facts come does not matter.
"""

from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np

from haystream.collection.collection import Collection
from haystream.collection.item_sets import share_of
from haystream.engines.contract import NEVER, NOTHING_MOVED, Engine
from haystream.engines.local import LocalEngine
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE, ENTRY_IN_PROBABILITY, TOLD_FACTOR
from haystream.errors import Code, Rejected
from haystream.events import LeaseFact, Outcome, Query, Status, Verdict
from haystream.facts.leases import Leases
from haystream.facts.verdicts import Verdicts
from haystream.memory.arrays import Ints, union
from haystream.posterior.rows import Changes, Size
from haystream.posterior.unsaved_rows import MovedRows, UnsavedRows
from haystream.query.attention import Attention, Followed
from haystream.query.engine_choice import check_size, check_supported, make_engine
from haystream.query.originals import KeptOriginal
from haystream.ranking.queue import Queue
from haystream.ranking.ranked import Ranking

EDGES_PER_VERDICT = 700
"""A verdict takes about as long as computing so many edges afresh, with everybody near: a query that starts with
many computes all of them at once."""

SCREENED = (Outcome.RELEVANT, Outcome.IRRELEVANT)
"""What counts as screened; any other verdict leaves its item without data."""

MOST_UNTOLD = 128
"""At so many participants, about, `tend` undoes drift before readers are told of it."""


class QueryState:
    """A query and its posterior. Not safe for concurrent use, and not to be used after a `QueryFailed`.

    Raises:
        Rejected: UNSUPPORTED or OUT_OF_RANGE if no engine of this version can serve the settings.
    """

    def __init__(self, settings: Query, collection: Collection, *, tolerance: float = DEFAULT_TOLERANCE) -> None:
        check_supported(settings)
        self.settings = settings
        self.collection = collection
        self.verdicts = Verdicts()
        self.leases = Leases()
        self.pending: set[str] = set()
        """Items, by id, that somebody has been handed (`hold`). One that has a verdict counts by that."""
        self.cursor = 0
        """Entries of the collection's log that are folded in; these are so many items, and so many withdrawn."""
        self._items = 0
        self._withdrawn = 0
        self.screened = 0
        self.found = 0
        self.touched = 0
        self._tolerance = tolerance
        self._engine: Engine
        self._attention: Attention
        self._unsettled: bool
        """Whether facts wait for `settle`, or what it took in of growth may be by estimates."""
        self._unsaved: UnsavedRows
        self._made_up = False
        """Whether scores that were late have been made since the last `ranking`."""
        self._start_engine()

    # ---- facts in ----

    def apply_settings(self, settings: Query) -> bool:
        """Take new settings; True if they differ.

        Raises:
            Rejected: COLLECTION_CHANGED, SCOPE_CHANGED, UNSUPPORTED or OUT_OF_RANGE; the old settings stand.
        """
        old = self.settings
        if settings == old:
            return False
        if settings.collection != old.collection:
            raise Rejected(
                Code.COLLECTION_CHANGED,
                f"query {old.query_id!r} is on collection {old.collection!r}, and cannot move to another",
            )
        if settings.scope != old.scope:
            raise Rejected(
                Code.SCOPE_CHANGED, f"query {old.query_id!r} was opened with another scope, which stands"
            )
        check_supported(settings)
        self.settings = settings
        self._stir()
        same_list = replace(settings.prior, participants=old.prior.participants)
        if (same_list, settings.engine) != (old.prior, old.engine):
            self.begin_anew(self.collection)
            return True
        if settings.prior != old.prior:
            self._engine.watch(settings.prior)
        if settings.policy != old.policy:
            self._queue.use(settings.policy)
        return True

    def begin_anew(self, collection: Collection) -> None:
        """Compute everything from the facts once more, on that collection of the same items or others."""
        self.collection = collection
        self._start_engine()
        self.cursor = self._items = self._withdrawn = self.screened = self.found = 0
        self.catch_up()

    def apply_verdict(self, verdict: Verdict) -> bool:
        """Take a verdict; True if it is a new fact, False if the same verdict is known.

        Raises:
            Rejected: VERDICT_CONFLICT if its id is known with other content.
        """
        before = self.verdicts.outcome(verdict.item_id)
        if not self.verdicts.add(verdict):
            return False
        self._stir(verdict.item_id)
        item = self.collection.index(verdict.item_id)
        if item is not None and self._counts(item):
            self._judge(item, before, self._outcome(item))
        if self.leases.judge(verdict):
            self._hold_as_leased(verdict.item_id)
        return True

    def apply_lease(self, fact: LeaseFact) -> bool:
        """Take something that happened to a lease; True if it is a new fact, False if it says nothing new.

        Raises:
            Rejected: LEASE_CONFLICT if the lease is known with another item or analyst.
        """
        new = self.leases.add(fact)
        self._hold_as_leased(fact.item_id)
        return new

    def _stir(self, item_id: str | None = None) -> None:
        """Take that something is said of the query, or of an item of it."""
        self._unsettled = True
        self._attention.wake()
        if item_id is not None:
            self._attention.tell_of(item_id)

    def _hold_as_leased(self, item_id: str) -> None:
        if self.leases.held(item_id) != (item_id in self.pending):
            self.hold(item_id) if self.leases.held(item_id) else self.release(item_id)

    def hold(self, item_id: str) -> bool:
        """Take that somebody has been handed an item; True if it is a new fact.

        While it has no verdict it is pending: nobody else is offered it, and variances count it as screened
        (`Engine`). It is still among what remains. The item need not be known yet.
        """
        if item_id in self.pending:
            return False
        self.pending.add(item_id)
        self._stir(item_id)
        self._wait_if_unscreened(item_id, begins=True)
        return True

    def release(self, item_id: str) -> bool:
        """Take that nobody has it any more, whether it has a verdict or not; True if somebody had."""
        if item_id not in self.pending:
            return False
        self.pending.remove(item_id)
        self._stir()
        self._wait_if_unscreened(item_id, begins=False)
        return True

    def _wait_if_unscreened(self, item_id: str, *, begins: bool) -> None:
        item = self.collection.index(item_id)
        if item is not None and self._counts(item) and self._outcome(item) == Outcome.RETRACTED:
            self._wait(item, begins=begins)

    def _counts(self, item: int) -> bool:
        """Whether the item is folded in, and not that it is withdrawn."""
        return item < self._items and self.collection.withdrawals.get(item, self._withdrawn) >= self._withdrawn

    def _outcome(self, item: int) -> Outcome:
        """What holds of the item; RETRACTED where nobody has said anything."""
        return self.verdicts.outcome(self.collection.item_ids[item])

    def catch_up(self) -> bool:
        """Fold in what the collection's log got since; True if there was anything."""
        collection = self.collection
        if self.cursor == collection.entries:
            return False
        self._stir()
        begin, since = self._items, self._withdrawn
        self.cursor, self._items, self._withdrawn = collection.entries, len(collection), collection.withdrawn.size
        self._attention.catch_up()
        end = self._items
        if begin or not self._start_from_prior():
            if begin < end:
                self._engine.offer(*collection.sets.offered(collection.sets_of(begin, end)))
                self._queue.add(begin, end)
            if since < self._withdrawn:
                self._withdraw(collection.withdrawn.data[since : self._withdrawn], begin)
        for item in self._among(self.pending, begin, end):
            if self._counts(item):
                self._wait(item, begins=True)
        for item in self._among(self.verdicts.items_judged, begin, end):
            if self._counts(item):
                self._judge(item, Outcome.RETRACTED, self._outcome(item))
        return True

    def _withdraw(self, items: Ints, begin: int) -> None:
        """Take items back for good. Those at places before `begin` may have been judged, or handed out."""
        ids, judged = self.collection.item_ids, self.verdicts.items_judged
        told = [item for item in items[items < begin].tolist() if ids[item] in judged or ids[item] in self.pending]
        for item in told:
            self._judge(item, self._outcome(item), Outcome.SKIPPED)
        others = np.setdiff1d(items, told)
        if len(others):
            edges, offered = self.collection.sets.offered(self.collection.sets_at(others))
            self._engine.offer(edges, -offered)
        self._queue.withdraw(items)

    @property
    def behind(self) -> int:
        """Entries of the log to be folded in; 0 where the query would be as it is after them."""
        return 0 if self.cursor >= self.collection.changed else self.collection.entries - self.cursor

    @property
    def lag(self) -> int:
        """Entries of the log that are to be folded in now: of those that it is `behind` by, some may wait."""
        seen = self._attention.seen.entries
        return 0 if seen >= self.collection.changed else self.collection.entries - seen

    def concerned(self) -> bool:
        """Whether what the collection got may change what the query offers first; if not, to fold it in can wait.

        Then it is not looked at again. This says whether to `settle` now, and does not bear on what comes of it: a
        query that has settled late is as one that has at once. Only who is among `Watchers.to_ask` need be asked.
        """
        if self._attention.seen.entries >= self.collection.changed:
            return False
        if self._attention.concerned(self._followed, (self.verdicts.items_judged, self.pending)):
            return True
        self._rest()
        return False

    def _rest(self) -> None:
        """Be asked only of what may concern the query, unless anything is left to do: it is up to date, or what it
        is behind by is no concern of it."""
        if not (self._unsettled or self._waits):
            self._attention.rest(self._followed)

    @property
    def _followed(self) -> Followed:
        return Followed(self.settings, self._engine, self._queue, self.cursor, self._items, self._size.participants)

    def _start_from_prior(self) -> bool:
        """Take an engine and a queue that know all that is to be folded in, without any data; False where it is
        better to compute everything."""
        prior, collection = self.settings.prior, self.collection
        kept = self.kept_original(len(self.verdicts.items_judged))
        if kept is None or not self._items:
            return False
        original = kept.get()
        self._engine = original.engine()
        self._queue = Queue(collection, self.settings.policy, original.rankings)
        self._queue.add(original.items, self._items)
        self._queue.withdraw(collection.withdrawn.data[original.withdrawn : self._withdrawn])
        if prior.participants:
            self._engine.watch(prior)
        return True

    def kept_original(self, verdicts: int = 0) -> KeptOriginal | None:
        """What the query begins as a copy of, with so many verdicts at its start, where it begins so.

        Where that is still to be made (`KeptOriginal.begun`), the first `settle` does so, which may take long, and
        nobody else can work with the collection meanwhile.
        """
        if self.better_at_once(verdicts):
            return None
        return KeptOriginal(self.collection, self.settings.prior, self._tolerance)

    def better_at_once(self, verdicts: int) -> bool:
        """Whether a query that has so many verdicts at its start is computed sooner as a whole than one by one."""
        of_prior = self.settings.engine == "local" and self.settings.prior.covariance is None
        return not of_prior or EDGES_PER_VERDICT * verdicts > self.collection.graph.edges

    def _among(self, item_ids: AbstractSet[str], begin: int, end: int) -> list[int]:
        """The places of these items, as far as they are begin … end − 1 of the collection, ascending."""
        if end - begin < len(item_ids):
            ids = self.collection.item_ids
            return [item for item in range(begin, end) if ids[item] in item_ids]
        places = map(self.collection.index, item_ids)
        return sorted(item for item in places if item is not None and begin <= item < end)

    def _judge(self, item: int, before: Outcome, after: Outcome) -> None:
        """Move an item from one outcome to another; unscreened items' is RETRACTED, withdrawn ones' SKIPPED."""
        if before == after:
            return
        edges = self._edges_of(item)
        share = share_of(len(edges))
        screened = (after in SCREENED) - (before in SCREENED)
        found = (after == Outcome.RELEVANT) - (before == Outcome.RELEVANT)
        offered = (after == Outcome.RETRACTED) - (before == Outcome.RETRACTED)
        pending = offered != 0 and self.collection.item_ids[item] in self.pending
        if pending and offered < 0:
            self._wait(item, begins=False)
        self.screened += screened
        self.found += found
        self._engine.record(edges, screened=screened * share, relevant=found * share, offered=offered * share)
        self._queue.judge(item, screened=screened, relevant=found)
        if offered:
            self._queue.offer(item, available=after == Outcome.RETRACTED)
        if pending and offered > 0:
            self._wait(item, begins=True)

    def _wait(self, item: int, *, begins: bool) -> None:
        """Begin, or cease, to wait for the verdict on an unscreened item that somebody has been handed."""
        edges = self._edges_of(item)
        share = share_of(len(edges)) if begins else -share_of(len(edges))
        self._engine.record(edges, pending=share)
        self._queue.hold(item, held=begins)

    def solves(self, item_id: str) -> int:
        """How many local solves a verdict on an item takes, or a lease: as many as it has pairs, or people, if they
        are fewer. It takes one where the item is not there yet."""
        item, graph = self.collection.index(item_id), self.collection.graph
        if item is None:
            return 1
        edges = self._edges_of(item)
        return min(len(edges), len(union(graph.tail[edges], graph.head[edges])))

    def _edges_of(self, item: int) -> Ints:
        return np.array(self.collection.sets.edges(self.collection.set_of(item)), dtype=np.int32)

    def _start_engine(self) -> None:
        self._engine = make_engine(self.settings, self.collection, self._tolerance)
        self._unsaved, self._size = UnsavedRows(), Size(0, 0)
        self._queue = Queue(self.collection, self.settings.policy)
        self._attention = Attention(self.collection, self.settings.query_id, self._tolerance)
        for item_id in (*self.verdicts.items_judged, *self.pending):
            self._attention.tell_of(item_id)
        self._unsettled = True

    # ---- the posterior out ----

    @property
    def engine(self) -> Engine:
        """The posterior, for reading after `settle`."""
        return self._engine

    @property
    def queue(self) -> Queue:
        """The unscreened items, for reading after `settle`."""
        return self._queue

    @property
    def drift(self) -> float:
        """By how much, in a probability, what was last solved afresh had been off, about."""
        return ENTRY_IN_PROBABILITY * self._engine.drift

    def settle(self) -> None:
        """Bring the posterior and the scores up to date with the facts; cheap where nothing changed."""
        self._settle(self._unsaved.settled)

    def _settle(self, rows: MovedRows) -> None:
        self.catch_up()
        check_size(self.settings, self.collection)
        self._attention.begin()
        moved = self._engine.settle()
        self._size = Size(len(self.collection.graph), self.collection.graph.edges)
        self.touched = len(moved.participants)
        rows.add(moved.participants, moved.edges)
        if moved is not NOTHING_MOVED:
            self._attention.note(moved.participants, self._size.participants)
        # Where all is computed at once, it is the next settling that says whether that was of estimates.
        self._unsettled = self._engine.unfinished or self.touched == self._size.participants
        self._queue.rescore(self._engine, moved.scores, step=self.screened + 1)

    def tend(self, most: int = 1, stop: Ints = NEVER) -> bool:
        """Spend up to `most` local solves on undoing drift, when there is time; True if more wait, or `tell` does.

        In a thread, `stop`, shape (1,), may be set by another: no solve is begun any more then.

        Nothing is done on a collection that has grown since the last `settle`: the engine has no rows for it yet.
        """
        if self.behind:
            return False
        if self._queue.late:
            self._attention.wake()
            self._queue.make_up()
            self._made_up = True
        elif self._tells:
            self.tell()
        elif self._engine.waiting:
            self._attention.wake()
            self._engine.tend(most, stop)
        return self._waits

    def tell(self) -> None:
        """Have readers told of what `tend` has moved, if it has: the next verdict has that to do else."""
        if self.behind or not self._engine.untold:
            return
        self._attention.wake()
        self._settle(self._unsaved.tended)
        if not self._engine.waiting:
            self._unsaved.drop_needless(self._engine)

    @property
    def _waits(self) -> bool:
        """Whether anything waits for `tend`."""
        return self._queue.late or self._engine.waiting or self._engine.untold > 0

    @property
    def _tells(self) -> bool:
        """Whether the next `tend` has readers told of what those before it moved, if nothing is late: what has to
        be done whether they moved one or a hundred takes longer than many solves."""
        untold = self._engine.untold
        return untold >= MOST_UNTOLD or (untold > 0 and not self._engine.waiting)

    @property
    def drifts(self) -> bool:
        """Whether the next `tend` solves: drift waits to be undone, and nothing else comes first."""
        return not self.behind and not self._queue.late and self._engine.waiting and not self._tells

    def foresee(self, *, fully: bool = True) -> bool:
        """Do a part of what the next verdict will ask for, a millisecond or two; True if there is more to do.

        Nothing that is read moves by more than the tolerance. The query rests meanwhile (`watchers`). If not
        `fully`, what takes about as long as it saves is left, which is for whoever has the time.
        """
        if self.settings.status != Status.OPEN or self.behind:
            return False
        if self._waits:
            self.tend()
            return True
        if self._queue.prepare(self._engine, self.settings.top):
            return True
        self._rest()
        return fully and self._queue.foresee(self._engine, self.settings.top)

    @property
    def tended(self) -> bool:
        """Whether `tend` has moved the ranking, or rows that a store has, or has to have, or what these are read
        with, and that was in no `ranking` or `drain` since.
        """
        return self._made_up or self._unsaved.outdated(self._engine, TOLD_FACTOR * self._tolerance)

    def slim(self) -> None:
        """Give up memory for what is computed again, in some milliseconds, when anything is said of the query. That
        changes nothing that is read. Where there is something left to do, nothing is done."""
        if isinstance(self._engine, LocalEngine) and not self._waits:
            self._engine.slim()
            self._queue.forget_foreseen()

    @property
    def is_slim(self) -> bool:
        """Whether that was done, and is so still."""
        return isinstance(self._engine, LocalEngine) and self._engine.is_slim

    @property
    def participants_left(self) -> int:
        """How many participants wait for `tend`, about."""
        return self._engine.participants_left

    @property
    def unfinished(self) -> bool:
        """Whether growth left more than drift for `tend`: readings may be off by more than promised."""
        return self._engine.unfinished

    def finish(self) -> None:
        """Settle, and undo all drift now: for whoever wants the posterior as exact as the tolerance says."""
        self.settle()
        while self.tend(1000):
            pass

    def ranking(self) -> Ranking:
        """What to read next, at most `settings.top` items; none unless the query is open."""
        self.settle()
        return self.ranked()

    def ranked(self) -> Ranking:
        """The same, by the last `settle`."""
        if self._unsettled:
            self.settle()
        self._made_up = False
        top = self.settings.top if self.settings.status == Status.OPEN else 0
        return Ranking(
            policy=self.settings.policy.name,
            screened=self.screened,
            found=self.found,
            expected_remaining=self._queue.remaining(self._engine),
            discrepancy=self._engine.readings.discrepancy(),
            items=tuple(self._queue.best(self._engine, top)),
        )

    def drain(self, *, tended: bool = True) -> Changes:
        """The rows of the tables that moved since the last drain (`posterior.tables`). Settle first.

        Without those `tended`, what only `tend` moved is left for another drain, unless this is the first; and so
        is the question whether a row is as the prior says, so that a store may do without it. Where the graph has
        grown it is asked of many rows all the same: most of those are so.
        """
        return self._unsaved.drain(self._engine, self._size, tended=tended)
