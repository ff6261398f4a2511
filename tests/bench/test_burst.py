"""A burst's items, as they are packed for Kafka before it begins, and what becomes of one that is not sent."""

import asyncio
from functools import partial
from itertools import islice

import numpy as np
import pytest
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record import MemoryRecords

from haystream_service.bench.burst import Burst, on_new_pairs, packed
from haystream_service.local import ServerUnavailable
from haystream_service.settings import load
from haystream_service.wire import decode_item


def test_hardly_two_items_are_on_one_pair() -> None:
    items = list(islice(on_new_pairs(1000, np.random.default_rng(1)), 500))
    assert len({item.item_id for item in items}) == 500
    pairs = {frozenset(item.people()) for item in items}
    assert {len(pair) for pair in pairs} == {2}
    assert len(pairs) > 495  # two who are known may be drawn again
    newcomers = {person for pair in pairs for person in pair if person.startswith("new")}
    assert 250 <= len(newcomers) < 260


@pytest.mark.parametrize("count", [3, 2000])  # less than a batch in each partition, and several
def test_each_item_is_in_one_batch_of_its_keys_partition(count: int) -> None:
    items = list(islice(on_new_pairs(1000, np.random.default_rng(1)), count))
    batches = packed(partial(BatchBuilder, 1 << 14, 0), 3, iter(items))
    assert count == 3 or all(len(some) > 1 for some in batches)
    found = []
    for partition, some in enumerate(batches):
        for batch in some:
            records = MemoryRecords(bytes(batch._build()))
            while records.has_next():
                for record in records.next_batch():
                    assert DefaultPartitioner()(record.key, [0, 1, 2], [0, 1, 2]) == partition
                    found.append(decode_item(record.value, record.key))
    assert sorted(found, key=lambda item: item.item_id) == sorted(items, key=lambda item: item.item_id)


@pytest.mark.asyncio
async def test_one_that_is_not_sent_says_what_the_sender_said() -> None:
    async def give_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    sender = Burst(load(environ={}), count=1, people=2, seed=0)
    refused = pytest.raises(ServerUnavailable, match="has not sent them\nno more disk")
    try:
        sender.log.write_text("no more disk")
        with refused:
            await sender.send()  # nobody is there
        async with await asyncio.start_server(give_up, "127.0.0.1", sender.port):
            with refused:
                await sender.send()
    finally:
        sender.close()
