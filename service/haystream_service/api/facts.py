"""How facts get to Kafka, and how a query's are read from there once more."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import MessageSizeTooLargeError

from haystream.errors import Code
from haystream_service.api.problems import Problem
from haystream_service.kafka.producer import Parcel, Producer, correlated
from haystream_service.kafka.records import NoSuchPartition
from haystream_service.kafka.stretches import WHOLE, stretch
from haystream_service.logs import CORRELATION
from haystream_service.settings import Settings
from haystream_service.store.base import StoreDamaged
from haystream_service.store.claims import Outgoing


class At(NamedTuple):
    """Where a record lies."""

    partition: int
    offset: int


class Facts(Protocol):
    """The topics that facts are written to. All may raise `BrokerUnavailable`, or a `Problem`."""

    async def write(self, topic: str, key: str, value: bytes, *, partition: int | None = None) -> At:
        """Write a record; where it lies, once the broker has it. By default its key says on which partition."""
        ...

    async def write_items(self, records: Sequence[tuple[str, bytes]]) -> None:
        """Write items, by id and value; return when the broker has all."""
        ...

    async def write_leases(self, records: Sequence[Outgoing]) -> None:
        """Write what happened to leases of one query; return when the broker has all."""
        ...

    def history(self, topic: str, key: str, partition: int) -> AsyncIterator[bytes]:
        """The values under the key that the partition holds now, in their order."""
        ...


class KafkaFacts:
    """The real ones."""

    def __init__(self, settings: Settings, producer: Producer) -> None:
        self._settings = settings
        self._producer = producer

    async def write(self, topic: str, key: str, value: bytes, *, partition: int | None = None) -> At:
        """As `Facts` says."""
        try:
            found = await self._producer.send(
                topic, key.encode(), value, partition=partition, headers=correlated(CORRELATION.get())
            )
        except MessageSizeTooLargeError:
            raise _too_large(topic) from None
        return At(found.partition, found.offset)

    async def write_items(self, records: Sequence[tuple[str, bytes]]) -> None:
        """As `Facts` says."""
        headers = correlated(CORRELATION.get())
        await self._write_all("items", [Parcel(key.encode(), value, headers) for key, value in records])

    async def write_leases(self, records: Sequence[Outgoing]) -> None:
        """As `Facts` says."""
        parcels = [Parcel(record.key, record.value, correlated(record.correlation)) for record in records]
        await self._write_all("leases", parcels, partition=records[0].partition)

    async def _write_all(self, topic: str, records: Sequence[Parcel], *, partition: int | None = None) -> None:
        try:
            await self._producer.send_all(topic, records, partition=partition)
        except MessageSizeTooLargeError:
            raise _too_large(topic) from None
        except NoSuchPartition as error:
            raise StoreDamaged(f"what Redis has of the query is of a partition that is not: {error}") from None

    async def history(self, topic: str, key: str, partition: int) -> AsyncIterator[bytes]:
        """As `Facts` says."""
        name, spans = key.encode(), {TopicPartition(self._settings.topic(topic), partition): WHOLE}
        async with aclosing(stretch(self._settings, spans)) as records:
            async for record in records:
                if record.key == name and record.value is not None:
                    yield record.value


def _too_large(topic: str) -> Problem:
    return Problem(Code.TOO_LARGE, f"the topic {topic} takes no record of that size (its max.message.bytes)")
