"""Queries take in what is no concern of them one after the other, for their totals."""

import asyncio

import pytest
from support.world import World

from haystream.collection.collection import Collection
from haystream.events import Item
from haystream_service.worker.followers import LONGEST_REST_SECONDS, TOTALS_REST_FACTOR, Follower

pytestmark = pytest.mark.asyncio


class Unconcerned:
    """A query that nothing new is a concern of; to take it in takes so many seconds."""

    def __init__(self, took: float) -> None:
        self.took = took
        self.asked: list[tuple[float, float]] = []
        """When it was, on the loop's clock, and how soon it may at the earliest."""

    def grown(self, *, expected: bool) -> bool:
        return False

    def catch_up(self, *, after: float) -> float:
        self.asked.append((asyncio.get_running_loop().time(), after))
        return self.took


async def test_queries_take_in_what_is_no_concern_of_them_one_after_the_other(world: World) -> None:
    process = await world.process(item_publish_seconds=0.0, totals_seconds=0.01)
    follower = Follower(Collection("default"), process.worker._shared)
    queries = [Unconcerned(took) for took in (0.01, 0.0, 0.02, 1e3, 0.0)]
    follower.listeners.update({f"q{number}": query for number, query in enumerate(queries)})

    async def asked_of_all(times: int) -> None:
        number = 0
        while any(len(query.asked) < times for query in queries):
            number += 1
            pair = Item(f"i{number + 1000 * times}", "default", f"p{number}", ("hub",))
            await world.store.append_items("default", [pair])
            await asyncio.sleep(0.01)

    await process.wait(asked_of_all(1))
    turn = 1.0 + TOTALS_REST_FACTOR
    first, *others = (query.asked[0] for query in queries)
    assert first[1] == 0.0
    afters = [after for _, after in others]
    assert afters == pytest.approx([0.01 * turn, 0.01 * turn, 0.03 * turn, (0.03 + LONGEST_REST_SECONDS) * turn])

    for query in queries:
        query.took = 0.0
    began = queries[0].asked[0][0]
    follower._totals_over = began + 0.2  # the last of them, in a fraction of the time
    await process.wait(asked_of_all(2))
    assert queries[0].asked[1][0] >= began + 0.2  # no lap begins before the last is over
    assert [query.asked[1][1] for query in queries] == [0.0] * 5
    follower.close()
