"""What ends a worker that does not move, and what does not."""

import asyncio
from dataclasses import dataclass, field

import pytest
from aiokafka import TopicPartition
from prometheus_client import CollectorRegistry

from haystream_service.kafka.records import OWNED, BrokerUnavailable, Kind
from haystream_service.metrics import Metrics
from haystream_service.worker.endings import Stalled
from haystream_service.worker.partitions import Stall
from haystream_service.worker.watch import AGENT_SECONDS, RESTART_SECONDS, Question, Watch

pytestmark = pytest.mark.asyncio

STANDS = TopicPartition("haystream.verdicts", 0)


@dataclass
class World:
    """The clock, the servers, the partitions and the worker, as the watch sees them."""

    time: float = 1000.0
    kafka: str | None = None
    redis: list[str] = field(default_factory=list)
    since: float | None = None
    unread: list[str] = field(default_factory=list)
    stalled: list[Stall] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def left_out(self) -> list[str]:
        return self.unread

    async def look(self) -> None:
        if self.kafka is not None:
            raise BrokerUnavailable(self.kafka)
        self.stalled = [] if self.since is None else [Stall(STANDS, 4, 9, 0, self.time - self.since)]

    async def store_troubles(self) -> list[str]:
        return self.redis

    async def note(self) -> None:
        pass

    def fail(self, bug: BaseException) -> None:
        self.failures.append(bug)


def watch(world: World, agents: set[Kind]) -> Watch:
    metrics = Metrics(CollectorRegistry(), labelled_queries=0)
    return Watch(world, world, world, agents, metrics, world)  # type: ignore[arg-type]


async def test_a_worker_that_was_not_looked_at_yet_is_not_counted_on() -> None:
    watching = watch(World(), set(OWNED))
    assert len(watching.troubles) == 2
    await watching.look()
    assert watching.troubles == []


async def test_a_partition_that_stands_still_is_told_at_once_and_ends_the_process_in_the_end() -> None:
    world = World()
    watching = watch(world, set(OWNED))
    world.since = world.time - 61.0
    await watching.look()
    assert watching.troubles == ["haystream.verdicts/0 stands at 4 of 9 for 61 s, 0 in hand"]
    assert world.failures == []
    world.time += RESTART_SECONDS + 1.0
    await watching.look()
    (failure,) = world.failures
    assert isinstance(failure, Stalled)


@pytest.mark.parametrize("server", ["kafka", "redis"])
async def test_nothing_is_ended_for_a_server_that_is_away_and_the_time_counts_from_its_return(server: str) -> None:
    world = World(since=1000.0)
    watching = watch(world, set(OWNED))
    await watching.look()
    setattr(world, server, "Kafka is away" if server == "kafka" else ["Redis is away"])
    for _ in range(3):
        world.time += RESTART_SECONDS
        await watching.look()
        assert f"{server.capitalize()} is away" in watching.troubles
    setattr(world, server, None if server == "kafka" else [])
    await watching.look()
    assert world.failures == []
    world.time += RESTART_SECONDS + 1.0
    await watching.look()
    assert len(world.failures) == 1


async def test_an_agent_that_has_ended_is_told_and_ends_the_process_unless_it_comes_back() -> None:
    world, agents = World(), {Kind.QUERY, Kind.LEASE}
    watching = watch(world, agents)
    await watching.look()
    assert watching.troubles == ["the agent of verdicts has ended"]
    world.time += AGENT_SECONDS - 1.0
    agents.add(Kind.VERDICT)
    await watching.look()
    assert watching.troubles == []
    world.time += AGENT_SECONDS + 1.0
    agents.discard(Kind.VERDICT)
    await watching.look()
    assert len(world.failures) == 1


async def test_the_time_until_the_first_look_ends_nothing() -> None:
    """What is compiled for minutes on a busy machine is compiled before that."""
    world = World(since=1000.0)
    watching = watch(world, set())
    world.time += RESTART_SECONDS + 1.0
    await watching.look()
    assert world.failures == []
    world.time += AGENT_SECONDS + 1.0
    await watching.look()
    assert len(world.failures) == 1


async def test_a_server_that_is_silent_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("haystream_service.worker.watch.PATIENCE_SECONDS", 0.0)
    world, asked, answer = World(), list[int](), asyncio.Event()

    async def ask() -> list[str]:
        asked.append(1)
        await answer.wait()
        return []

    question = Question("Redis", ask, world)
    await question.ask()
    world.time += 7.0
    await question.ask()
    assert (question.troubles, len(asked)) == (["Redis has not answered for 7 s"], 1)
    answer.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await question.ask()
    assert question.troubles == []


async def test_who_lacks_a_topic_is_not_counted_on() -> None:
    world = World()
    watching = watch(world, set(OWNED))
    await watching.look()
    world.unread = ["haystream.verdicts: of partition 0 nothing is read"]
    assert watching.troubles == world.unread
