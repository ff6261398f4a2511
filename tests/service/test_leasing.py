"""Leases from a claim to the ranking, with a worker: who has what, what is offered, what nobody published."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from support.world import Process, World, item, lease, verdict

from haystream.events import Action, LeaseFact, Query, Status
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.metrics import Metrics
from haystream_service.store.base import StoreDamaged, StoreUnavailable
from haystream_service.store.claims import ClaimCode, ClaimRefused, Looked, Outgoing, publish_outbox
from haystream_service.wire import decode_lease, decode_ranking
from haystream_service.worker import gathering, leasing
from haystream_service.worker.leasing import ABANDONED_SECONDS, Leasing
from haystream_service.worker.memory_broker import MemoryPublisher, Message
from haystream_service.worker.retry import Retry

pytestmark = pytest.mark.asyncio

SECOND = 1_000_000


class Desk:
    """A world with a worker, where somebody claims and publishes, as the API does."""

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process
        self.now = 1_800_000_000 * SECOND
        self.claims = world.store.claims
        self.claims.clock = lambda: self.now
        self.publisher = MemoryPublisher(world.broker)
        self.metrics = Metrics(CollectorRegistry(), labelled_queries=0)
        self.retry = Retry(self.metrics)
        self.leasing = Leasing(
            world.store,
            self.publisher,
            lambda: process.worker.partitions,
            metrics=self.metrics,
            retry=self.retry,
            behind=lambda _: 0.0,
            load_again=process.worker.load_again,
        )

    async def published(self) -> None:
        """What is claimed is in the topic, and the worker has folded it."""
        await publish_outbox(self.world.store.claims, self.publisher.publish_leases, "q")
        await self.process.settled()

    @property
    def offered(self) -> list[str]:
        """The items of the newest ranking."""
        return [each.item_id for each in max(self.world.rankings("q"), key=lambda ranking: ranking.revision).items]

    def told(self) -> list[LeaseFact]:
        """All that the topic holds."""
        return [decode_lease(message.value, message.key) for message in self.world.broker.messages("leases")]

    def facts(self) -> list[tuple[Action, str]]:
        """What happened to which item, by the topic."""
        return [(fact.action, fact.item_id) for fact in self.told()]


async def desk(items: int = 12, **settings: object) -> Desk:
    world = World()
    world.say(Query("q", **settings), *(item(n) for n in range(items)))  # type: ignore[arg-type]
    process = await world.process()
    await process.settled()
    return Desk(world, process)


async def test_what_is_claimed_leaves_the_ranking_and_comes_back_when_it_is_given_back() -> None:
    at = await desk()
    before = at.offered
    a, b = await at.claims.claim("q", "kim", 2, 60)
    assert [a.item_id, b.item_id] == before[:2]
    await at.published()
    assert set(at.offered) == set(before[2:])
    await at.claims.release("q", b.lease_id, "kim")
    await at.published()
    assert set(at.offered) == set(before) - {a.item_id}


async def test_a_lease_that_runs_out_is_ended_by_the_owner_and_its_item_offered_again() -> None:
    at = await desk()
    (a,) = await at.claims.claim("q", "kim", 1, 60)
    await at.published()
    await at.leasing.look()
    assert a.item_id not in at.offered
    assert at.metrics.leases_live._value.get() == 1
    at.now += 61 * SECOND
    await at.leasing.look()
    await at.process.settled()
    assert a.item_id in at.offered
    assert at.facts()[-1] == (Action.EXPIRED, a.item_id)
    assert at.metrics.leases_expired._value.get() == 1


async def test_an_item_whose_lease_somebody_deleted_is_offered_again_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = await desk()
    (a,) = await at.claims.claim("q", "kim", 1, 60)
    await at.published()
    assert a.item_id not in at.offered
    held = at.claims.queries["q"]
    del held.leases[a.lease_id], held.folded[a.lease_id], held.held[a.item_id]

    async def expire(query_id: str, by: int | None) -> Looked:
        return Looked(expired=0, live=0, waiting=0, age=0.0, lost=int(query_id == "q"))

    monkeypatch.setattr(at.claims, "expire", expire)
    monkeypatch.setattr(at.claims, "leased", _of_q)
    await at.leasing.look()
    await at.process.settled()
    assert a.item_id in at.offered
    assert a.item_id in {each.item_id for each in await at.claims.claim("q", "bo", 12, 60)}


async def _of_q(partition: int) -> set[str]:
    return {"q"}


async def test_what_nobody_published_the_owner_does_after_a_moment() -> None:
    at = await desk()
    (a,) = await at.claims.claim("q", "kim", 1, 60)
    await at.leasing.look()
    assert at.facts() == []  # whoever claimed is about to
    at.now += int(ABANDONED_SECONDS * SECOND)
    await at.leasing.look(every=False)
    await at.process.settled()
    assert at.facts() == [(Action.CLAIMED, a.item_id)]
    assert a.item_id not in at.offered
    await at.leasing.look(every=False)
    assert at.metrics.outbox_records._value.get() == at.metrics.outbox_age._value.get() == 0


async def test_what_nobody_published_need_not_wait_for_a_clock_that_was_set_back() -> None:
    at = await desk()
    (a,) = await at.claims.claim("q", "kim", 1, 60)
    at.now -= 3600 * SECOND
    await at.leasing.look()
    assert at.metrics.outbox_age._value.get() == 0
    await at.process.settled()
    assert at.facts() == [(Action.CLAIMED, a.item_id)]


@pytest.mark.parametrize(("name", "error"), [("expire", TypeError), ("outbox", StoreDamaged)])
async def test_a_query_whose_leases_cannot_be_looked_at_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch, name: str, error: type[Exception]
) -> None:
    at = await desk()
    at.world.say(Query("a"))
    await at.process.settled()
    call = getattr(at.claims, name)

    async def failing(query_id: str, *more: int) -> object:
        if query_id == "a":
            raise error("what is stored there is no lease")
        return await call(query_id, *more)

    monkeypatch.setattr(at.claims, name, failing)
    for query_id in ("a", "q"):
        await at.claims.claim(query_id, "kim", 1, 60)
    at.now += 61 * SECOND
    await at.leasing.look()
    await at.leasing.look(every=False)
    await at.process.settled()
    assert [action for action, _ in at.facts()] == [Action.CLAIMED, Action.EXPIRED]
    assert at.offered


@pytest.mark.parametrize("away", ["store", "topic", "topic that does not answer"])
async def test_what_one_query_waits_for_holds_up_no_other(monkeypatch: pytest.MonkeyPatch, away: str) -> None:
    at = await desk()
    names = [f"r{n}" for n in range(8)]
    at.world.say(*map(Query, names))
    await at.process.settled()
    stored = [await at.world.store.load_query(name) for name in names]
    partitions = {query.settings.query_id: query.partition for query in stored if query is not None}
    first = names[0]
    # Of a topic's partition that is away all queries wait; of the store's servers each has some.
    others = [
        name for name in names if name != first and (away == "store" or partitions[name] != partitions[first])
    ]
    expire, publish, back = at.claims.expire, at.publisher.publish_leases, asyncio.Event()

    async def expiring(query_id: str, by: int | None = None) -> Looked:
        if query_id == first and away == "store" and not back.is_set():
            raise StoreUnavailable("its server is away")
        return await expire(query_id, by)

    async def publishing(records: Sequence[Outgoing]) -> None:
        if records[0].partition == partitions[first] and away != "store" and not back.is_set():
            if away == "topic":
                raise BrokerUnavailable("its partition is away")
            await back.wait()
        await publish(records)

    monkeypatch.setattr(at.claims, "expire", expiring)
    monkeypatch.setattr(at.publisher, "publish_leases", publishing)
    for name in (first, *others):
        await at.claims.claim(name, "kim", 1, 60)
    at.now += 61 * SECOND
    monkeypatch.setattr(leasing, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(leasing, "LIST_SECONDS", 0.0)
    running = asyncio.create_task(at.leasing.run())

    def ended(name: str) -> int:
        return sum((fact.query_id, fact.action) == (name, Action.EXPIRED) for fact in at.told())

    async def end(names: list[str], times: int = 1) -> None:
        while min(map(ended, names)) < times:  # noqa: ASYNC110 - nobody says when
            await asyncio.sleep(0.01)

    await at.process.wait(end(others))
    assert ended(first) == 0
    assert bool(at.retry.troubles) == (away != "topic that does not answer")
    await at.claims.claim(others[0], "kim", 1, 60)
    at.now += 61 * SECOND
    await at.process.wait(end(others[:1], 2))
    assert ended(first) == 0
    back.set()
    await at.process.wait(end([first]))
    running.cancel()


async def test_a_verdict_ends_the_lease_and_the_item_is_not_claimed_again_even_before_that_is_known() -> None:
    at = await desk()
    (a,) = await at.claims.claim("q", "zoe", 1, 60)
    assert a.item_id not in [each.item_id for each in await at.claims.claim("q", "kim", 100, 60)]
    await at.published()
    judged = int(a.item_id.removeprefix("item-"))
    at.world.say(replace(verdict(judged), decided_at=at.now))
    await at.process.settled()
    assert a not in await at.claims.live("q")
    with pytest.raises(ClaimRefused) as refused:
        await at.claims.release("q", a.lease_id, "zoe")
    assert refused.value.code is ClaimCode.LEASE_OVER


async def test_nobody_is_sent_away_while_items_are_left() -> None:
    at = await desk(items=400, top=5)
    got: list[str] = []
    while len(got) < 400:
        try:
            got += [each.item_id for each in await at.claims.claim("q", "kim", 30, 60)]
        except ClaimRefused as refused:
            assert refused.code is ClaimCode.NOT_RANKED_YET  # noqa: PT017 - it need not be raised
            await at.published()
    assert sorted(got) == sorted(f"item-{n}" for n in range(400))
    await at.published()
    assert await at.claims.claim("q", "kim", 1, 60) == []


async def test_extending_publishes_no_ranking_and_is_kept() -> None:
    at = await desk()
    (a,) = await at.claims.claim("q", "kim", 1, 60)
    await at.published()
    before = len(at.world.rankings("q"))
    at.now += SECOND
    longer = await at.claims.extend("q", a.lease_id, "kim", 600)
    await at.published()
    assert len(at.world.rankings("q")) == before
    stored = await at.world.store.load_query("q")
    assert stored is not None
    assert [(each.lease_id, each.until) for each in stored.leases] == [(a.lease_id, longer.until)]


async def test_leases_of_a_query_that_is_opened_later_count_then() -> None:
    world = World()
    world.say(*(item(n) for n in range(4)), lease(1, item=2))
    process = await world.process()
    await process.settled()
    assert [code for code, _ in world.dead_letters()] == ["unknown_query"]
    world.say(Query("q"))
    await process.settled()
    assert "item-2" not in [each.item_id for each in world.rankings("q")[-1].items]


async def test_a_query_that_is_not_open_offers_nothing_to_claim() -> None:
    at = await desk()
    await at.claims.claim("q", "kim", 1, 60)
    await at.published()
    at.world.say(Query("q", status=Status.PAUSED))
    await at.process.settled()
    assert await at.claims.claim("q", "kim", 1, 60) == []


async def test_a_fact_on_another_item_is_a_dead_letter() -> None:
    at = await desk()
    at.world.say(lease(1, item=2), lease(1, "released", item=3))
    await at.process.settled()
    assert [code for code, _ in at.world.dead_letters()] == ["lease_conflict"]


async def test_what_was_claimed_while_no_worker_ran_is_folded_by_the_next_one() -> None:
    at = await desk()
    await at.process.crash()
    (a,) = await at.claims.claim("q", "kim", 1, 60)
    at.process = await at.world.process()
    await at.published()
    assert a.item_id not in at.offered


@pytest.mark.parametrize("follows", ["a verdict", "a release", "nothing"])
async def test_what_was_claimed_waits_for_more_to_be_saved_with(
    follows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "GATHER_SECONDS", 0.01 if follows == "nothing" else 3600.0)
    world = World()
    world.say(Query("q"), *(item(n) for n in range(12)))
    process = await world.process(item_publish_seconds=3600.0)
    world.say(lease(1, item=1))
    await process.taken_in()
    before = len(world.rankings("q"))
    world.say(lease(2, item=2), lease(3, item=3))
    for _ in range(100):
        await asyncio.sleep(0)
    if follows != "nothing":
        assert len(world.rankings("q")) == before
        world.say(verdict(4) if follows == "a verdict" else lease(1, "released", item=1))
    await process.taken_in()
    newest = {each.item_id for each in world.rankings("q")[-1].items}
    assert len(world.rankings("q")) == before + 1
    assert not newest & {"item-2", "item-3"}
    assert ("item-1" in newest) == (follows == "a release")


async def test_many_that_were_claimed_wait_for_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "GATHER_SECONDS", 3600.0)
    world = World()
    world.say(Query("q"), *(item(n) for n in range(60)))
    process = await world.process(item_publish_seconds=3600.0)
    world.say(*(lease(n, item=n) for n in range(1 + gathering.MOST_GATHERED)))

    def without(message: Message) -> bool:
        return "item-3" not in {each.item_id for each in decode_ranking(message.value).items}

    await process.wait(world.broker.wait_for("next-items", without))
