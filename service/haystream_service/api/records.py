"""Single records of the topic `items`, read from Kafka where they lie."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from haystream_service.api.facts import At
from haystream_service.kafka.connection import consumer_arguments, start
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.settings import Settings

READERS = 4
"""Connections of a replica, made as they are needed: each reads one record at a time, in some milliseconds."""
READ_SECONDS = 2.0
"""For all records of a request: whoever waits is told to come again."""
FETCH_BYTES = 16 << 10
"""Of what follows a record, fetched with it. The batch that it lies in comes whole in any case."""
FETCH_WAIT_MS = 1
"""What a broker waits for records that are not there: nobody waits for new ones here."""
LOOK_MS = 100
"""Between two looks whether the partition ends before the record, which then was another topic's."""


class Records(Protocol):
    """The topic's records."""

    async def read(self, places: Sequence[At]) -> list[bytes | None]:
        """The values at these places, None where there is no record any more. Raises `BrokerUnavailable`."""
        ...

    async def close(self) -> None:
        """Let go of all connections."""
        ...


class KafkaRecords:
    """The real ones, over a few consumers that belong to no group."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = settings.topic("items")
        self._free = asyncio.Semaphore(READERS)
        self._idle: list[AIOKafkaConsumer] = []
        self._ending: set[asyncio.Task[None]] = set()

    async def read(self, places: Sequence[At]) -> list[bytes | None]:
        """As `Records` says."""
        reading = [asyncio.ensure_future(self._read(at)) for at in places]
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await asyncio.gather(*reading)
        except TimeoutError:
            reason = f"within {READ_SECONDS:g} s"
        except (KafkaError, OSError) as error:
            reason = repr(error)
        finally:  # where one has failed the others are still under way
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        raise BrokerUnavailable(f"Kafka did not hand out what was asked for: {reason}")

    async def _read(self, at: At) -> bytes | None:
        async with self._free:
            consumer = self._idle.pop() if self._idle else await self._started()
            try:
                value = await _value(consumer, TopicPartition(self._topic, at.partition), at.offset)
            except BaseException:
                self._end(consumer)
                raise
            self._idle.append(consumer)
            return value

    async def _started(self) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            **consumer_arguments(self._settings),
            auto_offset_reset="none",
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )
        await start(consumer)
        return consumer

    def _end(self, consumer: AIOKafkaConsumer) -> None:
        task = asyncio.ensure_future(_stop(consumer))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """As `Records` says."""
        while self._idle:
            self._end(self._idle.pop())
        await asyncio.gather(*self._ending)


async def _value(consumer: AIOKafkaConsumer, where: TopicPartition, offset: int) -> bytes | None:
    consumer.assign([where])  # also where it is: what was known of the partition's end may be old
    consumer.seek(where, offset)
    try:
        while True:  # until READ_SECONDS are over
            found = await consumer.getmany(where, timeout_ms=LOOK_MS, max_records=1)
            for record in found.get(where, ()):
                return record.value if record.offset == offset else None
            end = consumer.highwater(where)
            if end is not None and end <= offset:
                return None
    except OffsetOutOfRangeError:  # older than the topic keeps, or the topic is another
        return None
    finally:
        # Not `unsubscribe`: the client would then ask for all topics that there are, and at the next record again.
        consumer.pause(where)


async def _stop(consumer: AIOKafkaConsumer) -> None:
    with suppress(KafkaError, OSError):
        await consumer.stop()
