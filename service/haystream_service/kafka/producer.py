"""How we write to Kafka: each record acknowledged by every replica that is in step, and there once."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, ProducerClosed
from aiokafka.structs import RecordMetadata

from haystream_service.kafka.connection import client_arguments, start
from haystream_service.kafka.records import BrokerUnavailable, NoSuchPartition
from haystream_service.settings import Settings

RANKING_BYTES = 16 << 20
"""A ranking of 10,000 items, the most that a query may ask for, takes some 5 MB: Kafka's default is 1 MB."""
ACKNOWLEDGE_SECONDS = 30.0
"""Then a publish is tried again. A broker that moves its leaders takes a few seconds, one that restarts more."""
CORRELATION_HEADER = "haystream-correlation"
"""Of a record: the correlation id of the request that led to it."""

Headers = Sequence[tuple[str, bytes]]


class Parcel(NamedTuple):
    """What a record is made of."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def correlated(correlation: str | None) -> Headers:
    """The headers of a record that this request, if it is one, led to."""
    return [(CORRELATION_HEADER, correlation.encode())] if correlation else []


class Producer:
    """An idempotent producer, started when it is first needed. One that has failed for good is replaced.

    `acknowledged` is told the topic, without its prefix, and the seconds that the broker took to acknowledge.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        acknowledge_seconds: float = ACKNOWLEDGE_SECONDS,
        acknowledged: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        self._settings = settings
        self._seconds = acknowledge_seconds
        self._acknowledged = acknowledged
        self._producer: AIOKafkaProducer | None = None
        self._closed = False
        self._starting = asyncio.Lock()

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Write a record to one of our topics; where it lies, once the broker has acknowledged it.

        By default the murmur2 hash of the key says on which partition.

        Raises:
            BrokerUnavailable: it was not acknowledged in time; it may be there all the same.
            MessageSizeTooLargeError: the topic does not take so much.
            NoSuchPartition: the topic does not have that partition.
            RuntimeError: it was closed before the record was on its way.
        """
        (at,) = await self.send_all(topic, [Parcel(key, value, headers)], partition=partition)
        return at

    async def send_all(
        self, topic: str, records: Sequence[Parcel], *, partition: int | None = None
    ) -> list[RecordMetadata]:
        """Return when all of several records are there. Where one raises, others may be."""
        began = perf_counter()
        producer: AIOKafkaProducer | None = None
        found: list[RecordMetadata] = []
        unanswered = f"Kafka did not acknowledge what is for {self._settings.topic(topic)}"
        try:
            async with asyncio.timeout(self._seconds):
                while len(found) < len(records):
                    producer = await self._started()
                    found += await self._sent(producer, topic, records[len(found) :], partition)
                    if len(found) < len(records):
                        await self._let_go(producer)  # it is closed, whoever has done that
        except MessageSizeTooLargeError:
            await self._let_go(producer)  # the broker misses a sequence number now
            raise
        except TimeoutError:
            raise BrokerUnavailable(f"{unanswered} within {self._seconds:g} s") from None
        except (KafkaError, OSError) as error:
            if not getattr(error, "retriable", True):
                await self._let_go(producer)
            raise BrokerUnavailable(f"{unanswered}: {error!r}") from error
        self._acknowledged(topic, perf_counter() - began)
        return found

    async def _sent(
        self, producer: AIOKafkaProducer, topic: str, records: Sequence[Parcel], partition: int | None
    ) -> list[RecordMetadata]:
        """Where the first of the records lie: all of them, unless another's record has the producer closed."""
        name = self._settings.topic(topic)
        if partition is not None and partition not in await producer.partitions_for(name):
            # It may have been added since this was last asked, minutes ago.
            await producer.client.force_metadata_update()
            if partition not in await producer.partitions_for(name):
                raise NoSuchPartition(f"{name} has no partition {partition}")
        sent: list[asyncio.Future[RecordMetadata]] = []
        with suppress(ProducerClosed):  # this record is not written, nor are those after it
            for key, value, headers in records:
                sent.append(await producer.send(name, value, key=key, partition=partition, headers=list(headers)))
        found = await asyncio.gather(*sent, return_exceptions=True)
        for answer in found:
            if isinstance(answer, BaseException):
                raise answer
        return [at for at in found if not isinstance(at, BaseException)]

    async def close(self) -> None:
        """Stop for good; what is under way is finished first."""
        self._closed = True
        await self._let_go(self._producer)

    async def _let_go(self, producer: AIOKafkaProducer | None) -> None:
        """Stop this one; if another is in its place by now, that goes on."""
        if self._producer is producer:
            self._producer = None
        if producer is not None:
            with suppress(KafkaError, OSError):
                await producer.stop()

    async def _started(self) -> AIOKafkaProducer:
        async with self._starting:
            self._check_open()
            if self._producer is None:
                producer = AIOKafkaProducer(
                    **client_arguments(self._settings),
                    enable_idempotence=True,
                    max_request_size=RANKING_BYTES,
                )
                await start(producer)
                if self._closed:  # meanwhile, by somebody who could not know of it
                    await self._let_go(producer)
                self._check_open()
                self._producer = producer
            return self._producer

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this producer is closed, and sends nothing more")
