"""Items on new pairs, sent all at once by a process of its own that has made and packed them before.

Who writes items is seldom who judges them. Verdicts are timed where they are sent, and what is timed there must not
be how long items take to be made, nor how long a producer has verdicts wait behind them.

    python -m haystream_service.bench.burst KAFKA TOPIC_PREFIX COUNT PEOPLE SEED PORT
"""

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, closing, suppress
from itertools import islice

import numpy as np
from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer.message_accumulator import BatchBuilder

from haystream.events import Item
from haystream_service.bench import graphs
from haystream_service.kafka.connection import client_arguments
from haystream_service.local import LocalServer, ServerUnavailable
from haystream_service.local.process import HOST
from haystream_service.settings import Settings
from haystream_service.settings import load as load_settings
from haystream_service.wire import encode_item

START_SECONDS = 30.0
"""Beside the time for the items."""
ITEMS_A_SECOND = 5000
"""That are made and packed at least, on a busy machine."""
SENT = b"sent\n"


class Burst(LocalServer):
    """The process. It answers once all is packed."""

    name = "the sender of a burst"

    def __init__(self, settings: Settings, *, count: int, people: int, seed: int) -> None:
        super().__init__(data_dir=None, start_seconds=START_SECONDS + count / ITEMS_A_SECOND)
        self.count = count
        self._arguments = settings.kafka, settings.topic_prefix, *map(str, (count, people, seed))

    def command(self) -> list[str]:
        """This module, by this interpreter."""
        return [sys.executable, "-m", __name__, *self._arguments, str(self.port)]

    def answers(self) -> bool:
        """Whether it takes connections."""
        with socket.create_connection((HOST, self.port), timeout=1.0):
            return True

    async def send(self) -> None:
        """Return when Kafka has all items. Raises `ServerUnavailable`."""
        said = b""
        with suppress(OSError):  # it has ended
            reader, writer = await asyncio.open_connection(HOST, self.port)
            with closing(writer):
                writer.write(b"send\n")
                said = await reader.readline()
        if said != SENT:
            raise ServerUnavailable(f"{self.name} has not sent them\n{self._log_tail()}")


def on_new_pairs(people: int, rng: np.random.Generator) -> Iterator[Item]:
    """Items without end, hardly two of them on one pair: half with somebody new, half between two who are known."""
    for number in range(1 << 62):
        one, two = rng.integers(people, size=2)
        other = f"new{number}" if number % 2 or one == two else f"p{two}"
        yield Item(f"b{number}", graphs.COLLECTION, f"p{one}", (other,))


def packed(create: Callable[[], BatchBuilder], partitions: int, items: Iterator[Item]) -> list[list[BatchBuilder]]:
    """The items in batches as they go to Kafka, by the partition that their keys have; `create` makes one."""
    partition_of, numbers = DefaultPartitioner(), list(range(partitions))
    batches = [[create()] for _ in numbers]
    for item in items:
        key, value = item.item_id.encode(), encode_item(item)
        some = batches[partition_of(key, numbers, numbers)]
        if some[-1].append(key=key, value=value, timestamp=None) is None:  # it is full
            some.append(create())
            some[-1].append(key=key, value=value, timestamp=None)
    return batches


async def main() -> None:
    """Pack the items; send them when asked to, and end."""
    kafka, prefix, *numbers = sys.argv[1:]
    count, people, seed, port = map(int, numbers)
    settings = load_settings(environ={}, kafka=kafka, topic_prefix=prefix)
    topic = settings.topic("items")
    async with AsyncExitStack() as stack:
        producer = AIOKafkaProducer(**client_arguments(settings), enable_idempotence=True)
        await producer.start()
        stack.push_async_callback(producer.stop)
        partitions = len(await producer.partitions_for(topic))
        items = islice(on_new_pairs(people, np.random.default_rng(seed)), count)
        batches = packed(producer.create_batch, partitions, items)
        asked = asyncio.Event()

        async def send(partition: int) -> None:
            sent = [await producer.send_batch(batch, topic, partition=partition) for batch in batches[partition]]
            await asyncio.gather(*sent)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with closing(writer):
                if await reader.readline():  # else somebody looked whether it answers
                    await asyncio.gather(*map(send, range(partitions)))
                    writer.write(SENT)
                    asked.set()

        await stack.enter_async_context(await asyncio.start_server(answer, HOST, port))
        await asked.wait()


if __name__ == "__main__":
    asyncio.run(main())
