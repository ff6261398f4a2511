"""Whether what a worker left behind is what an offline fold of the same events gives."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple

import numpy as np
import pytest

from haystream.collection.collection import Collection
from haystream.events import Event, ItemFact, Status, View
from haystream.facts.leases import Leases
from haystream.fold import State, step
from haystream.posterior.tables import read as tables_read
from haystream.posterior.tables import settled_inverse
from haystream.query.state import QueryState
from haystream.ranking.ranked import Share
from haystream.report import Report
from haystream_service.store.base import Store
from haystream_service.wire.records import NextItems, ShareRecord
from haystream_service.wire.times import to_text

EXACT = 1e-10
"""The engine's tolerance on both sides: how near its default comes to the truth is for the core's tests to say."""
WITHIN = 5e-5
"""What may then differ: errors of single solves add up, and their order is not the same on the two sides."""
SHARES_WITHIN = 5e-3
"""The same of shares, which are solved less closely, and read again when a score of their pairs has moved."""
REMAINING_WITHIN = 1e-2
"""The same, as a part of it, of what is expected to remain: a sum over all items."""


def assert_same(one: Report, other: Report, close: float = 1e-9) -> None:
    """Two offline folds stand at the same."""
    assert (one.screened, one.found) == (other.screened, other.found)
    assert list(one.participants) == list(other.participants)
    np.testing.assert_allclose(list(one.participants.values()), list(other.participants.values()), atol=close)
    assert [e.participants for e in one.edges] == [e.participants for e in other.edges]
    assert [(e.screened, e.relevant) for e in one.edges] == [(e.screened, e.relevant) for e in other.edges]
    np.testing.assert_allclose(
        [(e.mean, e.variance) for e in one.edges], [(e.mean, e.variance) for e in other.edges], atol=close
    )
    assert [i.item_id for i in one.items] == [i.item_id for i in other.items]
    np.testing.assert_allclose([i.score for i in one.items], [i.score for i in other.items], atol=close)
    assert one.discrepancy == pytest.approx(other.discrepancy, abs=1e-7)


def offline(events: Iterable[Event]) -> State:
    """The fold of the events."""
    state = State(tolerance=EXACT)
    for event in events:
        step(state, event)
    return state


async def assert_is_the_fold(store: Store, rankings: Iterable[NextItems], events: Iterable[Event]) -> None:
    """The facts are exactly those of an offline fold; the posterior and the latest rankings agree with it."""
    await assert_is_the_state(store, rankings, offline(events))


async def assert_is_the_state(store: Store, rankings: Iterable[NextItems], state: State) -> None:
    """Every public quantity of every query is the state's: facts, posterior, the newest ranking."""
    latest: dict[str, NextItems] = {}
    for ranking in rankings:
        if ranking.query_id not in latest or ranking.revision > latest[ranking.query_id].revision:
            latest[ranking.query_id] = ranking
    for query_id, expected in (await assert_is_stored(store, state)).items():
        _assert_ranking(latest[query_id], expected)


async def assert_is_stored(store: Store, state: State) -> dict[str, QueryState]:
    """Facts and posterior of every query are the state's; each query's state as the store has it."""
    found = {}
    assert await store.query_ids() == set(state.queries) | state.deleted
    for query_id, replayed in state.queries.items():
        collection = await stored_collection(store, replayed.settings.view)
        assert _told(collection) == _told(replayed.collection)
        is_open = replayed.settings.status == Status.OPEN
        expected = replayed if is_open else await _as_of_its_last_event(store, replayed)
        log = collection if is_open else expected.collection
        await assert_facts(store, query_id, expected, log)
        pending = set(expected.pending)
        for item_id in pending:  # the tables hold what the verdicts say, whatever anybody has been handed
            expected.release(item_id)
        expected.finish()
        await _assert_tables(store, query_id, expected, log)
        for item_id in pending:
            expected.hold(item_id)
        expected.finish()
        found[query_id] = expected
    return found


async def assert_has_the_facts(store: Store, state: State) -> None:
    """What everybody has said is stored, whatever was made of it."""
    assert await store.query_ids() == set(state.queries) | state.deleted
    for query_id, replayed in state.queries.items():
        collection = await stored_collection(store, replayed.settings.view)
        assert _told(collection) == _told(replayed.collection)
        if replayed.settings.status == Status.OPEN:
            await assert_facts(store, query_id, replayed, collection)


async def _as_of_its_last_event(store: Store, expected: QueryState) -> QueryState:
    """The same facts on the items that the query has seen: one that is not open takes in new ones with events."""
    stored = await store.load_query(expected.settings.query_id)
    assert stored is not None
    known = await stored_collection(store, expected.settings.view, most=stored.position.cursor)
    state = QueryState(expected.settings, known, tolerance=EXACT)
    for verdict in expected.verdicts.values():
        state.apply_verdict(verdict)
    state.leases = expected.leases
    for item_id in expected.pending:
        state.hold(item_id)
    return state


async def stored_collection(store: Store, view: View, *, most: int = 1_000_000) -> Collection:
    """What the first entries of the log make of the view."""
    entries: list[ItemFact] = []
    while len(entries) < most:
        some = await store.read_items(view.collection, len(entries), limit=most - len(entries))
        if not some:
            break
        entries += some  # it comes by parts
    collection = Collection(*view)
    for entry in entries:
        collection.add(entry)
    if collection.outgrown:
        collection = collection.afresh()
        for entry in entries:
            collection.add(entry)
    return collection


def _told(collection: Collection) -> dict[str, tuple[int | None, str | None, bool]]:
    """By item, when it was sent, where it is, and whether it is withdrawn."""
    details = collection.details
    return {
        item_id: (details.sent_at(place), details.uri(place), place in collection.withdrawals)
        for place, item_id in enumerate(collection.item_ids)
    }


async def assert_facts(store: Store, query_id: str, expected: QueryState, log: Collection) -> None:
    """What is stored of the query's settings, verdicts and leases is what was folded."""
    stored = await store.load_query(query_id)
    assert stored is not None
    assert stored.settings == expected.settings
    assert log.changed <= stored.position.cursor <= log.entries
    verdicts = {verdict.verdict_id: verdict for verdict in stored.verdicts}
    lost, made_up = expected.verdicts.keys() - verdicts.keys(), verdicts.keys() - expected.verdicts.keys()
    assert not lost, f"query {query_id} of revision {stored.revision} has lost {sorted(lost)}: {stored.position}"
    assert not made_up, f"query {query_id} has {sorted(made_up)}, which nobody said"
    assert len(stored.verdicts) == len(verdicts), f"query {query_id} has a verdict twice"
    assert verdicts == expected.verdicts
    leases = Leases()
    for verdict in stored.verdicts:
        leases.judge(verdict)
    for fact in stored.leases:
        leases.add(fact)
    assert len(leases) == len(expected.leases), f"query {query_id} has {stored.leases}: {stored.position}"
    assert dict(leases.until()) == dict(expected.leases.until())
    assert {lease.lease_id for lease in await store.claims.live(query_id)} >= {lease for lease, _ in leases.until()}


async def _assert_tables(store: Store, query_id: str, expected: QueryState, stored: Collection) -> None:
    """The stored rows follow the stored log's order; the fold may have seen the items in another."""
    graph, engine = expected.collection.graph, expected.engine
    tables = await store.read_tables(query_id)
    assert tables is not None
    assert tables.prior == expected.settings.prior
    edges, people = range(tables.size.edges), range(tables.size.participants)
    which = np.array([graph.edge_between(stored.graph.names(e)) for e in edges], dtype=np.int32)
    who = np.array([graph.participant(stored.graph.participants[p]) for p in people], dtype=np.int32)
    inverse = settled_inverse(stored.graph.as_of(tables.size.edges), tables.prior, EXACT)
    read = tables_read(tables, stored.graph, inverse)
    readings = engine.readings
    np.testing.assert_array_equal((read.screened, read.relevant), readings.counts(which)[:2])
    pairs = zip(astuple(read)[:4], (*readings.participants(who), *readings.edges(which)), strict=True)
    for got, wanted in pairs:
        np.testing.assert_allclose(got, wanted, atol=WITHIN)


def _assert_ranking(ranking: NextItems, expected: QueryState) -> None:
    wanted = expected.ranking()
    assert (ranking.screened, ranking.found) == (wanted.screened, wanted.found)
    assert ranking.policy == wanted.policy
    left = ranking.expected_remaining
    expected_left = wanted.expected_remaining
    np.testing.assert_allclose(
        (left.mean, left.sd), (expected_left.mean, expected_left.sd), atol=WITHIN, rtol=REMAINING_WITHIN
    )
    _assert_close([ranking.discrepancy], [wanted.discrepancy])
    # Items whose scores differ by less than the tolerance may change places; the scores themselves agree.
    known = {item.item_id: item for item in expected.queue.best(expected.engine, len(expected.collection))}
    _assert_close([item.score for item in ranking.items], [item.score for item in wanted.items])
    assert [item.rank for item in ranking.items] == [item.rank for item in wanted.items]
    for item in ranking.items:
        same = known[item.item_id]
        assert len(item.participants) + item.participants_cut == len(same.participants), item.item_id
        assert {*item.participants} <= {*same.participants}, item.item_id
        assert (item.sent_at, item.uri) == (None if same.sent_at is None else to_text(same.sent_at), same.uri)
        _assert_close((item.score, item.mean, item.sd), (same.score, same.mean, same.sd))
        _assert_same_shares(item.because, same.because)


def assert_says_the_same(earlier: NextItems, later: NextItems) -> None:
    """Two rankings of the same facts: the same items in the same order, and numbers as near as exact solves are."""
    assert earlier.revision < later.revision
    told = {"revision", "published_at", "expected_remaining", "discrepancy", "items"}
    assert earlier.model_dump(exclude=told) == later.model_dump(exclude=told)
    numbers = {"score", "mean", "sd", "because"}
    ours, theirs = ([item.model_dump(exclude=numbers) for item in of.items] for of in (earlier, later))
    assert ours == theirs
    np.testing.assert_allclose(_numbers_of(earlier), _numbers_of(later), rtol=0, atol=100 * EXACT)


def _numbers_of(ranking: NextItems) -> list[float]:
    """All of them, of an item's shares in the order of the pairs."""
    left, numbers = ranking.expected_remaining, [ranking.discrepancy]
    numbers += [left.mean, left.sd]
    for item in ranking.items:
        by_pair = sorted((share.participants, share.share) for share in item.because)
        numbers += [item.score, item.mean, item.sd, *(share for _, share in by_pair)]
    return numbers


def _assert_same_shares(got: Iterable[ShareRecord], wanted: Iterable[Share]) -> None:
    """The largest are as large, whichever pairs have them where some are equal, and of a pair they are the same."""
    ours, theirs = ({frozenset(of.participants): of.share for of in shares} for shares in (got, wanted))
    both = ours.keys() & theirs.keys()
    np.testing.assert_allclose([ours[k] for k in both], [theirs[k] for k in both], atol=SHARES_WITHIN)
    most = max(len(ours), len(theirs))  # some are next to nothing on one side and nothing on the other
    sizes = [sorted([0.0] * (most - len(of)) + [abs(share) for share in of.values()]) for of in (ours, theirs)]
    np.testing.assert_allclose(*sizes, atol=SHARES_WITHIN)


def _assert_close(got: Sequence[float], wanted: Sequence[float]) -> None:
    np.testing.assert_allclose(got, wanted, atol=WITHIN, rtol=WITHIN)
