"""Kafka beside Faust: which topics there are, and what our groups have committed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError

from haystream_service.errors import UserError
from haystream_service.kafka import topics
from haystream_service.kafka.connection import client_arguments, consumer_arguments, refusal, running
from haystream_service.kafka.producer import RANKING_BYTES
from haystream_service.kafka.records import OWNED, SOURCES, BrokerRefused, BrokerUnavailable, Kind
from haystream_service.settings import Settings

log = logging.getLogger(__name__)

LETTER_BYTES = 1 << 20
"""Base64 adds a third to the 512 KiB of a payload that a dead letter holds."""
DAY = 24 * 60 * 60 * 1000
TOPIC_ALREADY_EXISTS = 36
COORDINATOR_SECONDS = 20.0
"""For a broker that has never had a group to find itself a coordinator of one."""
LOOK_SECONDS = 0.2

KEYED = tuple(SOURCES[kind] for kind in OWNED)
"""Topics that must have equally many partitions: partition n of each goes to the owner of its queries."""
TOPICS: Mapping[str, Mapping[str, str]] = {
    # The log of record: Redis is rebuilt from these. Compacted, it would lose settings to what comes after.
    "queries": {"cleanup.policy": "delete", "retention.ms": "-1"},
    "items": {"cleanup.policy": "delete", "retention.ms": "-1"},
    "verdicts": {"cleanup.policy": "delete", "retention.ms": "-1"},
    "leases": {"cleanup.policy": "delete", "retention.ms": "-1"},
    "next-items": {"cleanup.policy": "compact", "max.message.bytes": str(RANKING_BYTES)},
    "dead-letters": {
        "cleanup.policy": "delete",
        "retention.ms": str(30 * DAY),
        "max.message.bytes": str(LETTER_BYTES),
    },
}
"""Every topic, and what it is created with."""


@asynccontextmanager
async def _admin(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connected admin client. Whatever Kafka does not answer becomes `BrokerUnavailable`."""
    admin = AIOKafkaAdminClient(**client_arguments(settings))
    try:
        await admin.start()
        yield admin
    except (KafkaError, OSError) as error:
        if (why := await refusal(settings)) is not None:
            raise BrokerRefused(why) from error
        raise BrokerUnavailable(
            f"Kafka at {settings.kafka} (HAYSTREAM_KAFKA) does not answer: {error!r}"
        ) from error
    finally:
        with suppress(KafkaError, OSError):
            await admin.close()


async def ensure_topics(settings: Settings) -> dict[str, int]:
    """Create the topics that are missing, check the others; the number of partitions of each, by its short name.

    Raises:
        BrokerUnavailable: Kafka did not answer, or would not create one now.
        UserError: two of `KEYED` differ in their number of partitions, or a topic cannot be worked with.
    """
    async with _admin(settings) as admin:
        existing = await _partitions(admin, settings)
        counts = {name: existing[name] for name in KEYED if name in existing}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{settings.topic(name)} has {count}" for name, count in counts.items())
            raise UserError(
                f"the topics of queries, verdicts and leases need equally many partitions, but {listed}. "
                "Copy them to new topics with `haystream repartition`"
            )
        configured = await topics.configurations(admin, [settings.topic(name) for name in existing])
        found = {name: configured[settings.topic(name)] for name in existing if settings.topic(name) in configured}
        topics.check(settings, found, TOPICS)
        partitions = next(iter(counts.values()), settings.partitions)
        counted = {name: existing.get(name, partitions) for name in TOPICS}
        missing = [
            NewTopic(
                name=settings.topic(name),
                num_partitions=counted[name],
                replication_factor=settings.replication,
                topic_configs=dict(config),
            )
            for name, config in TOPICS.items()
            if name not in existing
        ]
        if missing:
            answer = await admin.create_topics(missing)
            for topic, code, *message in answer.topic_errors:
                if code not in {0, TOPIC_ALREADY_EXISTS}:
                    raise BrokerUnavailable(f"Kafka did not create topic {topic}: error {code} {message}")
                log.info("topic %s is there", topic)
    return counted


async def configured(settings: Settings, names: Iterable[str]) -> dict[str, topics.Configuration]:
    """By topic, what those of these names (without the prefix) are configured with. Raises `BrokerUnavailable`."""
    async with _admin(settings) as admin:
        return await topics.configurations(admin, [settings.topic(name) for name in names])


async def _partitions(admin: AIOKafkaAdminClient, settings: Settings) -> dict[str, int]:
    """The number of partitions of those of our topics that exist."""
    ours = {settings.topic(name): name for name in TOPICS}
    # Of all topics: asking for a missing one by name would create it on a broker that does so.
    return {
        ours[topic["topic"]]: len(topic["partitions"])
        for topic in await admin.describe_topics()
        if topic["topic"] in ours
    }


async def partitions_of(settings: Settings, name: str) -> range:
    """The partitions of one of our topics, none where there is no such topic. Raises `BrokerUnavailable`."""
    async with _admin(settings) as admin:
        return range((await _partitions(admin, settings)).get(name, 0))


async def check_topics(settings: Settings, *names: str) -> None:
    """Raise `UserError` where one of our topics of these names is not there, and `BrokerUnavailable`."""
    async with _admin(settings) as admin:
        there = await _partitions(admin, settings)
    if missing := [settings.topic(name) for name in names if name not in there]:
        raise UserError(
            f"Kafka at {settings.kafka} has no topic {', '.join(missing)}: `haystream worker` makes the topics "
            "when it starts, and HAYSTREAM_TOPIC_PREFIX names them"
        )


async def committed_offsets(settings: Settings) -> dict[TopicPartition, int]:
    """What our groups have committed in the source topics: the next offset to read, above 0. May be empty."""
    committed: dict[TopicPartition, int] = {}
    async with _admin(settings) as admin:
        for group, names in _groups(settings).items():
            await _have_coordinator(admin, group)
            offsets = await admin.list_consumer_group_offsets(group)
            committed |= {
                tp: found.offset for tp, found in offsets.items() if tp.topic in names and found.offset > 0
            }
    return committed


async def active_members(settings: Settings) -> list[str]:
    """The client ids and hosts of our groups' members."""
    async with _admin(settings) as admin:
        for group in _groups(settings):
            await _have_coordinator(admin, group)
        # One at a time: of two in one answer aiokafka cannot read the second.
        answers = [a for group in _groups(settings) for a in await admin.describe_consumer_groups([group])]
    groups: list[dict[str, Any]] = [group for answer in answers for group in answer.to_object()["groups"]]
    return [f"{m['client_id']} {m['client_host']}" for group in groups for m in group["members"]]


async def _have_coordinator(admin: AIOKafkaAdminClient, group: str) -> None:
    """Return when the group has a coordinator: Kafka's topic of groups is made when it is first asked."""
    give_up = asyncio.get_running_loop().time() + COORDINATOR_SECONDS
    while True:
        try:
            await admin.find_coordinator(group)
        except GroupCoordinatorNotAvailableError:
            if asyncio.get_running_loop().time() > give_up:
                raise
            await asyncio.sleep(LOOK_SECONDS)
        else:
            return


async def commit(settings: Settings, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit for groups without members. Raises `BrokerUnavailable`."""
    for group, names in _groups(settings).items():
        ours = {tp: offset for tp, offset in offsets.items() if tp.topic in names}
        if ours:
            await _commit(settings, group, ours)


async def _commit(settings: Settings, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    consumer = AIOKafkaConsumer(**consumer_arguments(settings), group_id=group)
    async with running(consumer, "Kafka did not commit"):
        consumer.assign(list(offsets))
        await consumer.commit(dict(offsets))


def _groups(settings: Settings) -> dict[str, set[str]]:
    """Each of our consumer groups, with the topics that it reads."""
    return {
        settings.group: {settings.topic(name) for name in KEYED},
        settings.items_group: {settings.topic(SOURCES[Kind.ITEM])},
    }
