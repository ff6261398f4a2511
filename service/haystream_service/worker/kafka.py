"""Kafka beside Faust: the topics, the publisher, and what the group has committed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from haystream_service.errors import UserError
from haystream_service.settings import Settings
from haystream_service.worker.records import BrokerUnavailable

log = logging.getLogger(__name__)

RANKING_BYTES = 16 << 20
"""A ranking of 10,000 items, the most that a query may ask for, takes some 5 MB: Kafka's default is 1 MB."""
ACKNOWLEDGE_SECONDS = 30.0
"""Then a publish is tried again. A broker that moves its leaders takes a few seconds, one that restarts more."""
DAY = 24 * 60 * 60 * 1000
TOPIC_ALREADY_EXISTS = 36

SOURCES = ("queries", "items", "verdicts")
"""Topics that must have equally many partitions: their partition n goes to one worker."""
TOPICS: Mapping[str, Mapping[str, str]] = {
    "queries": {"cleanup.policy": "compact"},
    # The log of record: Redis is rebuilt from these.
    "items": {"cleanup.policy": "delete", "retention.ms": "-1"},
    "verdicts": {"cleanup.policy": "delete", "retention.ms": "-1"},
    "next-items": {"cleanup.policy": "compact", "max.message.bytes": str(RANKING_BYTES)},
    "dead-letters": {"cleanup.policy": "delete", "retention.ms": str(30 * DAY)},
}
"""Every topic, and what it is created with."""


@asynccontextmanager
async def _admin(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connected admin client. Whatever Kafka does not answer becomes `BrokerUnavailable`."""
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.kafka)
    try:
        await admin.start()
        yield admin
    except (KafkaError, OSError) as error:
        raise BrokerUnavailable(f"Kafka at {settings.kafka} does not answer: {error!r}") from error
    finally:
        with suppress(KafkaError, OSError):
            await admin.close()


async def ensure_topics(settings: Settings) -> int:
    """Create the topics that are missing; the number of partitions of the source topics.

    Raises:
        BrokerUnavailable: Kafka did not answer, or would not create one now.
        UserError: the source topics that exist differ in their number of partitions.
    """
    async with _admin(settings) as admin:
        existing = await _partitions(admin, settings)
        counts = {name: existing[name] for name in SOURCES if name in existing}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{settings.topic(name)} has {count}" for name, count in counts.items())
            raise UserError(
                f"the topics of queries, items and verdicts need equally many partitions, but {listed}. "
                "Make them anew, or name others with HAYSTREAM_TOPIC_PREFIX"
            )
        partitions = next(iter(counts.values()), settings.partitions)
        missing = [
            NewTopic(
                name=settings.topic(name),
                num_partitions=partitions,
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
    return partitions


async def _partitions(admin: AIOKafkaAdminClient, settings: Settings) -> dict[str, int]:
    """The number of partitions of those of our topics that exist."""
    ours = {settings.topic(name): name for name in TOPICS}
    # Of all topics: asking for a missing one by name would create it on a broker that does so.
    return {
        ours[topic["topic"]]: len(topic["partitions"])
        for topic in await admin.describe_topics()
        if topic["topic"] in ours
    }


async def committed_offsets(settings: Settings) -> dict[TopicPartition, int]:
    """What the group has committed in our source topics: the next offset to read, above 0. May be empty."""
    ours = {settings.topic(name) for name in SOURCES}
    async with _admin(settings) as admin:
        offsets = await admin.list_consumer_group_offsets(settings.group)
    return {tp: found.offset for tp, found in offsets.items() if tp.topic in ours and found.offset > 0}


async def active_members(settings: Settings) -> list[str]:
    """The client ids and hosts of the group's members."""
    async with _admin(settings) as admin:
        answers = await admin.describe_consumer_groups([settings.group])
    groups: list[dict[str, Any]] = [group for answer in answers for group in answer.to_object()["groups"]]
    return [f"{m['client_id']} {m['client_host']}" for group in groups for m in group["members"]]


async def commit(settings: Settings, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit for a group without members. Raises `BrokerUnavailable`."""
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.kafka, group_id=settings.group, enable_auto_commit=False)
    try:
        await consumer.start()
        consumer.assign(list(offsets))
        await consumer.commit(dict(offsets))
    except (KafkaError, OSError) as error:
        raise BrokerUnavailable(f"Kafka did not commit: {error!r}") from error
    finally:
        await consumer.stop()


class KafkaPublisher:
    """A `Publisher` with an idempotent producer. A producer that has failed for good is replaced."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._producer: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()

    async def publish_ranking(self, query_id: str, value: bytes) -> None:
        """Write to next-items, keyed by the query."""
        await self._send("next-items", query_id.encode(), value)

    async def publish_dead_letter(self, key: bytes | None, value: bytes) -> None:
        """Write to dead-letters, keyed as the rejected record was."""
        await self._send("dead-letters", key, value)

    async def close(self) -> None:
        """Stop; what is under way is finished first."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaError, OSError):
                await producer.stop()

    async def _send(self, topic: str, key: bytes | None, value: bytes) -> None:
        try:
            producer = await self._started()
            async with asyncio.timeout(ACKNOWLEDGE_SECONDS):
                await producer.send_and_wait(self._settings.topic(topic), value, key=key)
        except MessageSizeTooLargeError:
            raise  # it would be too large the next time as well
        except TimeoutError:
            raise BrokerUnavailable(f"Kafka did not acknowledge within {ACKNOWLEDGE_SECONDS:g} s") from None
        except (KafkaError, OSError) as error:
            if not getattr(error, "retriable", True):
                await self.close()
            raise BrokerUnavailable(f"Kafka did not acknowledge: {error!r}") from error

    async def _started(self) -> AIOKafkaProducer:
        async with self._starting:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    bootstrap_servers=self._settings.kafka,
                    enable_idempotence=True,
                    max_request_size=RANKING_BYTES,
                )
                try:
                    await producer.start()
                except BaseException:
                    await producer.stop()
                    raise
                self._producer = producer
            return self._producer


async def end_offsets(
    consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offset that each partition's next record will get. Raises `BrokerUnavailable`."""
    try:
        return dict(await consumer.end_offsets(list(partitions)))
    except (KafkaError, OSError) as error:
        raise BrokerUnavailable(f"Kafka did not tell its end offsets: {error!r}") from error
