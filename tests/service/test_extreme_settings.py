"""Settings that an engine is not good for are one query's trouble, in a worker as it runs."""

from dataclasses import replace
from unittest import mock

import pytest
from support.pipeline import until
from support.world import World, item, verdict

from haystream.errors import Code
from haystream.events import Policy, Prior, Query
from haystream.models.ranges import Range
from haystream.models.settings import MODEL_SETTINGS

pytestmark = pytest.mark.asyncio

ITEMS = [item(n) for n in range(10)]


async def why(world: World, query_id: str) -> str | None:
    """The code for which the query is stopped."""
    stopped = (await world.store.read_note(query_id)).quarantine
    return None if stopped is None else stopped.code


async def test_new_settings_that_are_out_of_range_are_dead_letters_and_verdicts_wait_for_better_ones(
    world: World,
) -> None:
    process = await world.process()
    said = [replace(verdict(n), query_id="bad", verdict_id=f"b{n}") for n in range(3)]
    world.say(Query("q"), Query("bad", prior=Prior(weight=1e-20)), *ITEMS, *said, verdict(1))
    await process.settled()
    assert "out_of_range" in [code for code, _ in world.dead_letters()]
    assert world.rankings("q")[-1].screened == 1
    world.say(Query("bad", prior=Prior(weight=0.01)))
    await process.settled()
    assert world.rankings("bad")[-1].screened == 3


async def test_settings_that_an_earlier_version_took_stop_their_query_until_it_has_others(world: World) -> None:
    first = await world.process()
    events = [Query("q"), Query("old", prior=Prior(participant=1e-3)), *ITEMS, verdict(1)]
    with mock.patch.dict(MODEL_SETTINGS["rates"].ranges, participant=Range(1e-6, 1e6)):
        world.say(*events, replace(verdict(2), query_id="old"))
        await first.settled()
    await first.crash()
    second = await world.process()
    world.say(verdict(3), replace(verdict(4), query_id="old", verdict_id="o4"))
    await second.settled()
    assert world.rankings("q")[-1].screened == 2
    assert (await why(world, "q"), await why(world, "old")) == (None, Code.OUT_OF_RANGE)
    world.say(Query("old"))
    await second.settled()
    await second.crash()
    await world.store.release("old")
    third = await world.process()
    await third.settled()

    async def counts_all() -> bool:
        return world.rankings("old")[-1].screened == 2

    await third.wait(until(counts_all, "with the settings that came, and both verdicts"))


async def test_a_graph_that_outgrows_the_dense_engine_stops_its_query_alone(world: World) -> None:
    with mock.patch("haystream.query.engine_choice.MOST_FOR_REFERENCE", 3):
        process = await world.process()
        world.say(Query("q", policy=Policy("greedy")), Query("dense", engine="reference"), *ITEMS, verdict(1))
        await process.settled()
        assert (await why(world, "q"), await why(world, "dense")) == (None, Code.TOO_MUCH_WORK)
        assert world.rankings("q")[-1].screened == 1
