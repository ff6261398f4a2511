"""Leases, as those see them who hand items out: one suite for every store that has them."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
import pytest_asyncio
from support.changes import change

from haystream.events import Action
from haystream_service.logs import CORRELATION
from haystream_service.store.base import Position
from haystream_service.store.claims import ClaimCode, ClaimRefused, Claims, Outgoing, publish_outbox
from haystream_service.store.memory import MemoryStore
from haystream_service.wire import decode_lease

pytestmark = pytest.mark.asyncio

SECOND = 1_000_000


def ranking(revision: int, *item_ids: str) -> bytes:
    """As it is published."""
    items = [
        {"item_id": item_id, "rank": rank, "score": 1 / rank, "mean": 0.5 / rank}
        for rank, item_id in enumerate(item_ids, 1)
    ]
    return orjson.dumps({"revision": revision, "items": items})


class Clock:
    now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


@pytest_asyncio.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    store.claims.clock = Clock()
    await store.begin("mark")
    await store.save_query(change(ranking=ranking(10, "a", "b", "c", "d")))
    return store


@pytest.fixture
def claims(store: MemoryStore) -> Claims:
    return store.claims


def refusal(code: ClaimCode) -> Any:
    return pytest.raises(ClaimRefused, match=f"^{code.value}:")


async def test_items_are_claimed_in_rank_order_and_once(claims: Claims) -> None:
    first = await claims.claim("q", "ann", 2, 60)
    second = await claims.claim("q", "bo", 9, 60)
    assert [(each.item_id, each.rank, each.score, each.mean) for each in first] == [
        ("a", 1, 1.0, 0.5),
        ("b", 2, 1 / 2, 0.5 / 2),
    ]
    assert [(each.item_id, each.analyst) for each in second] == [("c", "bo"), ("d", "bo")]
    assert all(each.until - each.at == 60 * SECOND for each in [*first, *second])
    assert len({each.lease_id for each in [*first, *second]}) == 4


async def test_what_is_left_beyond_what_is_ranked_has_to_be_waited_for(claims: Claims) -> None:
    await claims.claim("q", "ann", 4, 60)
    with refusal(ClaimCode.NOT_RANKED_YET):
        await claims.claim("q", "bo", 1, 60)


async def test_a_released_item_is_offered_again(claims: Claims) -> None:
    (lease,) = await claims.claim("q", "ann", 1, 60)
    assert await claims.release("q", lease.lease_id, "ann") == lease
    assert [each.item_id for each in await claims.claim("q", "bo", 1, 60)] == ["a"]


async def test_extending_never_shortens(claims: Claims) -> None:
    (lease,) = await claims.claim("q", "ann", 1, 60)
    assert (await claims.extend("q", lease.lease_id, "ann", 10)).until == lease.until
    longer = await claims.extend("q", lease.lease_id, "ann", 90)
    assert longer.until > lease.until
    assert await claims.live("q") == [longer]


async def test_only_its_analyst_may_do_anything_with_a_lease_and_only_while_it_lasts(claims: Claims) -> None:
    (lease,) = await claims.claim("q", "ann", 1, 60)
    with refusal(ClaimCode.UNKNOWN_LEASE):
        await claims.extend("q", "other", "ann", 60)
    with refusal(ClaimCode.NOT_YOURS):
        await claims.release("q", lease.lease_id, "bo")
    await claims.release("q", lease.lease_id, "ann")
    for attempt in (claims.release("q", lease.lease_id, "ann"), claims.extend("q", lease.lease_id, "ann", 60)):
        with refusal(ClaimCode.LEASE_OVER):
            await attempt


async def test_every_fact_is_in_the_outbox_until_it_is_confirmed(claims: Claims) -> None:
    a, _ = await claims.claim("q", "ann", 2, 60)
    await claims.extend("q", a.lease_id, "ann", 90)
    await claims.release("q", a.lease_id, "ann")
    out = await claims.outbox("q", 10)
    facts = [decode_lease(each.value, each.key) for each in out]
    assert [(fact.action, fact.item_id) for fact in facts] == [
        (Action.CLAIMED, "a"),
        (Action.CLAIMED, "b"),
        (Action.EXTENDED, "a"),
        (Action.RELEASED, "a"),
    ]
    assert (facts[0].at, facts[0].until, facts[0].rank, facts[0].score) == (a.at, a.until, 1, 1.0)
    assert [(each.partition, each.key) for each in out] == [(3, b"q")] * 4
    assert {each.correlation for each in out} == {""}
    assert await claims.outbox("q", 1) == out[:1]
    await claims.published("q", [each.entry for each in out[:3]])
    assert await claims.outbox("q", 10) == out[3:]


async def test_a_fact_knows_which_request_led_to_it(claims: Claims) -> None:
    named = CORRELATION.set("one")
    (lease,) = await claims.claim("q", "ann", 1, 60)
    CORRELATION.set("two")
    await claims.release("q", lease.lease_id, "ann")
    CORRELATION.reset(named)
    assert [each.correlation for each in await claims.outbox("q", 10)] == ["one", "two"]


async def test_publishing_asks_once_more_only_where_more_may_be_there(
    claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haystream_service.store.claims.PUBLISHED_AT_ONCE", 3)
    await claims.claim("q", "ann", 4, 60)
    sizes: list[int] = []

    async def publish(records: Sequence[Outgoing]) -> None:
        sizes.append(len(records))

    await publish_outbox(claims, publish, "q")
    assert sizes == [3, 1]
    assert await claims.outbox("q", 10) == []


async def test_what_was_claimed_of_a_query_that_is_deleted_can_still_be_published(
    claims: Claims, store: MemoryStore
) -> None:
    await claims.claim("q", "ann", 1, 60)
    out = await claims.outbox("q", 10)
    await store.delete_query("q", 3, revision=20, read=Position(9))
    assert await claims.outbox("q", 10) == out
    await claims.published("q", [out[0].entry])
    assert await claims.outbox("q", 10) == []


async def test_queries_are_listed_while_they_have_leases_or_facts_that_are_not_confirmed(claims: Claims) -> None:
    assert await claims.leased(3) == set()
    (lease,) = await claims.claim("q", "ann", 1, 60)
    assert await claims.leased(3) == {"q"}
    assert await claims.leased(2) == set()
    await claims.published("q", [each.entry for each in await claims.outbox("q", 10)])
    assert await claims.leased(3) == {"q"}
    await claims.release("q", lease.lease_id, "ann")
    assert await claims.leased(3) == {"q"}
    await claims.published("q", [each.entry for each in await claims.outbox("q", 10)])
    assert await claims.leased(3) == set()
    await claims.claim("q", "ann", 1, 60)
    assert await claims.leased(3) == {"q"}


async def test_a_query_that_is_not_there_is_refused(claims: Claims, store: MemoryStore) -> None:
    with refusal(ClaimCode.UNKNOWN_QUERY):
        await claims.claim("r", "ann", 1, 60)
    await store.delete_query("q", 3, revision=20, read=Position(9))
    with refusal(ClaimCode.QUERY_DELETED):
        await claims.claim("q", "ann", 1, 60)
    await store.wipe()
    with refusal(ClaimCode.REBUILDING):
        await claims.claim("q", "ann", 1, 60)
