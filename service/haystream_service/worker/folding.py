"""What a batch does to a query's state: events in, the change to be saved out. No I/O: it may run in a thread."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from haystream.errors import Rejected
from haystream.events import LeaseFact, Query, Verdict
from haystream.query.state import QueryState
from haystream_service.store.base import Change
from haystream_service.store.claims import Offer, Offers
from haystream_service.wire import encode_ranking
from haystream_service.worker.batch import Batch, Delivery
from haystream_service.worker.clock import Clock
from haystream_service.worker.holding import Loaded, is_open

JUDGED_AT_ONCE = 8
"""Verdicts of a query that is loaded are taken in so many at a time, or fewer that take as many local solves: some
20 ms, which a verdict of another query of the collection may have to wait."""

SPARE_OFFERS = 100
"""Items that may be claimed beyond twice as many as are leased, at least."""


@dataclass(frozen=True, slots=True)
class Folded:
    """The change to save, and what computing it took."""

    change: Change | None
    """None where it can wait: new items have changed totals and nothing else."""
    settle_seconds: float
    touched: int
    """Participants whose mean moved."""


def restore(state: QueryState, verdicts: Sequence[Verdict], leases: Sequence[LeaseFact]) -> Iterator[bool]:
    """Take in the facts, a part of the work at a time; whether there is more. After the last the state is settled.

    Between two parts others may work with the collection, and it may grow.
    """
    by_parts, solves = not state.better_at_once(len(verdicts)), 0
    if by_parts:
        state.settle()  # then each verdict costs its neighbourhood
    for verdict in verdicts:
        solves += state.solves(verdict.item_id)
        state.apply_verdict(verdict)
        if solves >= JUDGED_AT_ONCE:
            if by_parts:
                state.settle()
            solves = 0
            yield True
    for fact in leases:
        state.apply_lease(fact)
    state.leases.ended.clear()  # those were ended with the save that counted the verdict
    state.settle()
    yield False


class Pace(NamedTuple):
    """How soon new items are saved and published at the earliest, in seconds after the last save."""

    items: float
    """Where they change the ranking's `items`."""
    totals: float
    """Where they do not."""


PACE_AT_ONCE = Pace(0.0, 0.0)


def fold(loaded: Loaded, batch: Batch, *, partition: int, clock: Clock, pace: Pace) -> Folded | None:
    """Apply what is in the batch, and what the collection got since; None if that changes nothing.

    `batch` learns what was applied and what was rejected.
    """
    began = clock.monotonic()
    state, follows = loaded.state, bool(loaded.state.behind)
    batch.applied.clear()  # of a try that was fenced
    batch.stale.clear()
    batch.quiet.clear()
    for delivery in batch.deliveries:
        if delivery in batch.rejected:
            continue
        try:
            if _apply(loaded, batch, delivery):
                batch.applied.add(delivery)
        except Rejected as error:
            batch.rejected[delivery] = error
    folded = None
    facts = batch.applied > batch.quiet or loaded.unsaved_settings or loaded.revision == 0
    if facts or loaded.finished or (loaded.follows and loaded.unsaved_items):
        state.settle()
        seconds, touched = clock.monotonic() - began, state.touched
        loaded.put_off = None if facts else _due(loaded, began, pace)
        change = _change(loaded, batch, partition, clock, pace) if loaded.put_off is None else None
        folded = Folded(change, seconds, touched)
    loaded.took, loaded.pairs = clock.monotonic() - began, state.collection.graph.edges
    loaded.followed = 0.0 if batch.deliveries else loaded.followed + follows * loaded.took
    return folded


def _due(loaded: Loaded, now: float, pace: Pace) -> float | None:
    """When new items are to be saved and published; None where that is now. The state is settled."""
    if now < (due := loaded.saved_at + pace.items):
        return due
    if now < (due := loaded.saved_at + pace.totals) and _top(loaded.state) == loaded.top:
        return due
    return None


def _top(state: QueryState) -> tuple[str, ...]:
    """The ids of the items that a ranking would offer, in order. The state is settled."""
    return _ids(state, state.queue.first(state.settings.top)) if is_open(state) else ()


def offers_others(loaded: Loaded) -> bool:
    """Whether a ranking would offer other items than the last one, or these in another order, as far as that is
    known without being looked for."""
    state = loaded.state
    first = state.queue.known_first(state.settings.top) if is_open(state) else None
    return first is not None and _ids(state, first.items) != loaded.top


def _ids(state: QueryState, items: Iterable[tuple[int, int, float]]) -> tuple[str, ...]:
    return tuple(state.collection.item_ids[item] for item, _, _ in items)


def _apply(loaded: Loaded, batch: Batch, delivery: Delivery) -> bool:
    event, record = delivery.event, delivery.record
    if isinstance(event, Verdict):
        # Whatever its offset: facts are sets.
        return loaded.state.apply_verdict(event)
    if isinstance(event, LeaseFact):
        before = event.item_id in loaded.state.pending
        new = loaded.state.apply_lease(event)
        if new and before == (event.item_id in loaded.state.pending) and not loaded.state.leases.ended:
            batch.quiet.add(delivery)
        return new
    assert isinstance(event, Query)
    # Old settings that come again must not undo newer ones, nor may those that were restated too late.
    if record.offset <= loaded.saved.queries_offset:
        return False
    if record.restates is not None and record.restates < loaded.settings_offset:
        if event != loaded.state.settings:
            batch.stale.add(delivery)
        return False
    changed = loaded.state.apply_settings(event) or loaded.revision == 0
    loaded.settings_offset = record.offset
    return changed


def _change(loaded: Loaded, batch: Batch, partition: int, clock: Clock, pace: Pace) -> Change:
    state = loaded.state
    now, monotonic = clock.now(), clock.monotonic()
    revision = max(loaded.revision + 1, int(now * 1000))
    query_id = state.settings.query_id
    ranking = state.ranked()
    # While growth is healed that moves many rows. They are saved with new items, or when it is done, as nobody
    # waits for those; and the hundreds that are tended after each verdict, with one verdict now and then.
    loaded.owed = bool(batch.deliveries) and state.unfinished
    may_wait = bool(batch.deliveries) and monotonic < loaded.tended_at + pace.totals
    if not (loaded.owed or may_wait):
        loaded.tended_at = monotonic
    applied = [delivery.event for delivery in batch.deliveries if delivery in batch.applied]
    new_settings = (
        loaded.revision == 0 or loaded.unsaved_settings or any(isinstance(event, Query) for event in applied)
    )
    if batch.deliveries:
        loaded.touched = int(now * 1000)
    loaded.finished, loaded.saved_at = False, monotonic
    loaded.top = tuple(item.item_id for item in ranking.items)
    tables = state.drain(tended=not (loaded.owed or may_wait))
    # Rows that growth had left by estimate and tending has made exact may be left for a later save.
    loaded.unfinished = state.unfinished or (loaded.unfinished and may_wait)
    return Change(
        query_id=query_id,
        partition=partition,
        expected=loaded.revision,
        revision=revision,
        position=batch.position_after(loaded.saved, cursor=state.cursor),
        touched=loaded.touched,
        settings=state.settings if new_settings else None,
        verdicts=[event for event in applied if isinstance(event, Verdict)],
        leases=[event for event in applied if isinstance(event, LeaseFact)],
        ended=_ended(state),
        offers=_offers(state) if len(state.leases) else None,
        ranking=encode_ranking(query_id, ranking, revision=revision, published_at=int(now * 1e6)),
        tables=tables,
        unfinished=loaded.unfinished,
    )


def _ended(state: QueryState) -> list[str]:
    """The leases that a verdict has ended since the last change was made."""
    ended = state.leases.ended.copy()
    state.leases.ended.clear()
    return ended


def _offers(state: QueryState) -> Offers:
    """What may be claimed: more than there are leases, so that nobody is sent away until this is written anew."""
    if not is_open(state):
        return Offers([], complete=True)
    most = max(state.settings.top, 2 * state.leases.live + SPARE_OFFERS)
    found = state.queue.first(most + 1)
    sets = list(dict.fromkeys(which for _, which, _ in found[:most]))
    mean = dict(zip(sets, state.queue.moments(state.engine, sets)[0].tolist(), strict=True))
    ids = state.collection.item_ids
    offers = [Offer(ids[item], score, mean[which]) for item, which, score in found[:most]]
    return Offers(offers, complete=len(found) <= most)
