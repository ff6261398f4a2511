"""The producer that all of a process share: what one record does to those who wait beside it."""

import asyncio

import pytest
from aiokafka.errors import MessageSizeTooLargeError, OutOfOrderSequenceNumber, ProducerClosed
from aiokafka.structs import RecordMetadata

from haystream_service.kafka import producer
from haystream_service.kafka.producer import Parcel, Producer
from haystream_service.kafka.records import BrokerUnavailable, NoSuchPartition
from haystream_service.settings import Settings

pytestmark = pytest.mark.asyncio

NO_ROOM = b"for this one there is no room yet"


class Client:
    """Stands for aiokafka's producer: what it is given waits for the test to say what becomes of it."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._closed = asyncio.Event()
        self._partitions = set(range(broker.partitions))
        broker.clients.append(self)

    @property
    def stopped(self) -> bool:
        return self._closed.is_set()

    @property
    def client(self) -> "Client":
        return self

    async def partitions_for(self, topic: str) -> set[int]:
        return self._partitions

    async def force_metadata_update(self) -> None:
        self._partitions = set(range(self._broker.partitions))

    async def start(self) -> None:
        await self._broker.starts.wait()

    async def stop(self) -> None:
        self._closed.set()

    async def send(self, topic: str, value: bytes, **_: object) -> asyncio.Future[RecordMetadata]:
        if value == NO_ROOM and self is self._broker.clients[0]:
            await self._closed.wait()
            raise ProducerClosed
        return self._broker.waiting.setdefault(value, asyncio.get_running_loop().create_future())


class Broker:
    """What was given to producers, one after the other, and is not acknowledged yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clients: list[Client] = []
        self.waiting: dict[bytes, asyncio.Future[RecordMetadata]] = {}
        self.partitions = 1
        """Of each topic. A producer knows of those that there were when it last asked."""
        self.starts = asyncio.Event()
        """Set where it answers those who would begin."""
        self.starts.set()
        monkeypatch.setattr(producer, "AIOKafkaProducer", lambda **_: Client(self))

    async def has(self, value: bytes) -> asyncio.Future[RecordMetadata]:
        """What is to be told of the record, once it is there."""
        while value not in self.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return self.waiting[value]


def at(offset: int) -> RecordMetadata:
    return RecordMetadata("verdicts", 0, None, offset, 0, 0, 0)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    return Broker(monkeypatch)


async def too_large(producer: Producer, broker: Broker) -> None:
    sending = asyncio.create_task(producer.send("items", b"i", b"too large"))
    (await broker.has(b"too large")).set_exception(MessageSizeTooLargeError())
    with pytest.raises(MessageSizeTooLargeError):
        await sending


async def test_who_waits_beside_a_record_that_is_too_large_closes_nobody_elses_producer(broker: Broker) -> None:
    producer = Producer(Settings())
    beside = asyncio.create_task(producer.send("verdicts", b"q", b"beside it"))
    failing = await broker.has(b"beside it")
    await too_large(producer, broker)
    later = asyncio.create_task(producer.send("verdicts", b"q", b"later"))
    written = await broker.has(b"later")
    failing.set_exception(OutOfOrderSequenceNumber())
    with pytest.raises(BrokerUnavailable):
        await beside
    assert [client.stopped for client in broker.clients] == [True, False]
    written.set_result(at(7))
    assert await later == at(7)
    await producer.close()
    assert [client.stopped for client in broker.clients] == [True, True]


async def test_what_has_not_been_taken_when_a_producer_is_closed_goes_to_the_next_one_in_order(
    broker: Broker,
) -> None:
    producer = Producer(Settings())
    several = asyncio.create_task(producer.send_all("leases", [Parcel(b"q", b"first"), Parcel(b"q", NO_ROOM)]))
    first = await broker.has(b"first")
    await too_large(producer, broker)
    for _ in range(20):
        await asyncio.sleep(0)
    assert NO_ROOM not in broker.waiting, "the one before it is not there yet"
    first.set_result(at(5))
    (await broker.has(NO_ROOM)).set_result(at(6))
    assert await several == [at(5), at(6)]
    assert [client.stopped for client in broker.clients] == [True, False]
    await producer.close()


async def test_a_producer_that_is_closed_starts_no_other(broker: Broker) -> None:
    producer = Producer(Settings())
    several = asyncio.create_task(producer.send_all("leases", [Parcel(b"q", b"first"), Parcel(b"q", NO_ROOM)]))
    first = await broker.has(b"first")
    await producer.close()
    first.set_result(at(5))
    for sending in (several, producer.send("leases", b"q", b"later")):
        with pytest.raises(RuntimeError, match="closed"):
            await sending
    assert [client.stopped for client in broker.clients] == [True]


async def test_a_producer_that_is_closed_while_it_starts_is_stopped(broker: Broker) -> None:
    broker.starts.clear()
    producer = Producer(Settings())
    sending = asyncio.create_task(producer.send("leases", b"q", b"first"))
    while not broker.clients:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await producer.close()
    broker.starts.set()
    with pytest.raises(RuntimeError, match="closed"):
        await sending
    assert [client.stopped for client in broker.clients] == [True]


async def test_what_is_not_acknowledged_is_told_with_its_topic(broker: Broker) -> None:
    producer = Producer(Settings(topic_prefix="other"), acknowledge_seconds=0.01)
    with pytest.raises(BrokerUnavailable, match=r"for other\.verdicts within 0\.01 s"):
        await producer.send("verdicts", b"q", b"to a topic that is not there")
    producer = Producer(Settings())
    sending = asyncio.create_task(producer.send("leases", b"q", b"refused"))
    (await broker.has(b"refused")).set_exception(OutOfOrderSequenceNumber())
    with pytest.raises(BrokerUnavailable, match=r"for haystream\.leases: OutOfOrder"):
        await sending


async def test_a_partition_that_was_added_is_written_to_at_once(broker: Broker) -> None:
    """The producer asks for the partitions every five minutes; what lies on others is not damaged meanwhile."""
    producer = Producer(Settings())
    first = asyncio.create_task(producer.send("leases", b"q", b"on the first", partition=0))
    (await broker.has(b"on the first")).set_result(at(0))
    await first
    with pytest.raises(NoSuchPartition):
        await producer.send("leases", b"q", b"on the second", partition=1)
    broker.partitions = 2
    second = asyncio.create_task(producer.send("leases", b"q", b"on the second", partition=1))
    await asyncio.wait({second, asyncio.ensure_future(broker.has(b"on the second"))}, return_when="FIRST_COMPLETED")
    assert not second.done()
    broker.waiting[b"on the second"].set_result(at(1))
    assert await second == at(1)
