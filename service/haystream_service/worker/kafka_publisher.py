"""How results get to Kafka: rankings, dead letters and what happens to leases."""

import logging
from collections.abc import Callable, Sequence

from aiokafka.errors import MessageSizeTooLargeError
from aiokafka.structs import RecordMetadata

from haystream_service.kafka import admin, topics
from haystream_service.kafka.producer import RANKING_BYTES, Parcel, Producer, correlated
from haystream_service.kafka.records import RESTATES, SOURCES, BrokerUnavailable, Kind, NoSuchPartition
from haystream_service.settings import Settings
from haystream_service.store.base import StoreDamaged
from haystream_service.store.claims import Outgoing
from haystream_service.wire import fit_letter, fit_ranking

log = logging.getLogger(__name__)


class KafkaPublisher:
    """A `Publisher` on Kafka. What a topic refuses for its size is cut to what it takes."""

    def __init__(
        self,
        settings: Settings,
        *,
        landed: Callable[[str, int, int], None] = lambda *_: None,
        acknowledged: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        self._settings = settings
        self._landed = landed
        """Is told the query, the partition and the offset of a ranking that the broker has."""
        self._producer = Producer(settings, acknowledged=acknowledged)
        self._takes: dict[str, int] = {}
        """By topic, how long a value it takes, where it has refused one."""

    async def publish_ranking(self, query_id: str, value: bytes) -> None:
        """Write to next-items, keyed by the query."""
        at = await self._send_fitting("next-items", query_id.encode(), value, fit_ranking)
        self._landed(query_id, at.partition, at.offset)

    async def withdraw_ranking(self, query_id: str) -> None:
        """Write a record without a value to next-items, keyed by the query."""
        at = await self._producer.send("next-items", query_id.encode(), None)
        self._landed(query_id, at.partition, at.offset)

    async def publish_dead_letter(self, key: bytes | None, value: bytes) -> None:
        """Write to dead-letters, keyed as the rejected record was."""
        await self._send_fitting("dead-letters", key, value, fit_letter)

    async def publish_leases(self, records: Sequence[Outgoing]) -> None:
        """Write to leases, to the partition of their query.

        Raises `StoreDamaged` where the store says one that there is not.
        """
        if records:
            parcels = [Parcel(record.key, record.value, correlated(record.correlation)) for record in records]
            try:
                await self._producer.send_all(SOURCES[Kind.LEASE], parcels, partition=records[0].partition)
            except NoSuchPartition as error:
                raise StoreDamaged(f"what Redis has of the query is of a partition that is not: {error}") from None

    async def restate_settings(self, query_id: str, partition: int, value: bytes, restates: int) -> None:
        """Write to that partition of queries, keyed by the query."""
        headers = [(RESTATES, str(restates).encode())]
        try:
            await self._producer.send("queries", query_id.encode(), value, partition=partition, headers=headers)
        except MessageSizeTooLargeError:
            text = "the settings of query %r are longer than queries takes, and were not restated"
            log.warning(text, query_id, extra={"query": query_id})

    async def close(self) -> None:
        """Stop; what is under way is finished first."""
        await self._producer.close()

    async def _send_fitting(
        self, name: str, key: bytes | None, value: bytes, fit: Callable[[bytes, int], bytes]
    ) -> RecordMetadata:
        topic = self._settings.topic(name)
        while True:
            fitted = fit(value, self._takes.get(topic, len(value)))
            try:
                return await self._producer.send(name, key, fitted)
            except MessageSizeTooLargeError:
                self._takes[topic] = await self._taken(name, len(fitted))

    async def _taken(self, name: str, refused: int) -> int:
        """How long a value the topic takes, having refused one of so many bytes."""
        topic = self._settings.topic(name)
        configured = (await admin.configured(self._settings, [name])).get(topic, {})
        takes = int(configured.get("max.message.bytes", refused)) - topics.OVERHEAD
        if takes >= refused:  # it is not the topic's own configuration that speaks
            takes = refused // 2
        mend = topics.command(self._settings, topic, {"max.message.bytes": str(RANKING_BYTES)})
        if takes < topics.LEAST_MESSAGE_BYTES - topics.OVERHEAD:
            raise BrokerUnavailable(f"topic {topic} refused a message of {refused} bytes. Mend it with: {mend}")
        log.warning("topic %s takes %d bytes: what is longer is cut to that. Mend it with: %s", topic, takes, mend)
        return takes
