"""Thousands of schedules of delivery, delay, rebalance and crash between any two effects, in time of their own.

How many is said by `--schedules`, and from which seed on by `--first-schedule`: `make faults` runs ten thousand.
"""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from support.simulated import desk, schedule
from support.simulated.group import Partitions
from support.simulated.loop import VirtualLoop
from support.simulated.process import Process
from support.simulated.schedule import ScheduleFailed

from haystream.collection.collection import Collection
from haystream_service.kafka.records import Record
from haystream_service.store.base import Change
from haystream_service.store.memory import MemoryStore
from haystream_service.worker.worker import Worker

A_PIECE = 50
"""Schedules that are one test."""
SOON = 1000
"""In so many schedules a bug that was put in on purpose has to show: the rarest does in one of about a hundred."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("first_schedule"), metafunc.config.getoption("schedules")
        pieces = [range(n, min(n + A_PIECE, first + count)) for n in range(first, first + count, A_PIECE)]
        metafunc.parametrize("seeds", pieces, ids=[f"{piece.start}-{piece.stop - 1}" for piece in pieces])


class WentWrong(NamedTuple):
    """In a schedule that has ended in what replay says."""

    faults: Counter[str]
    stale: int
    """How often a collection was contradicted, and counted anew."""


@cache
def went_wrong(seed: int) -> WentWrong:
    """What did, in the schedule of a seed, which is run once."""
    with patch.object(Collection, "afresh", autospec=True, side_effect=Collection.afresh) as afresh:
        return WentWrong(schedule.run(seed).faults, afresh.call_count)


@pytest.mark.slow
def test_every_schedule_ends_in_what_replay_says(seeds: range) -> None:
    for seed in seeds:
        went_wrong(seed)


@pytest.mark.slow
def test_what_goes_wrong_is_drawn_often_enough() -> None:
    """A schedule in which nothing fails would prove nothing; nor would one in which nothing is contradicted."""
    some = [went_wrong(seed) for seed in range(120)]
    faults = sum((each.faults for each in some), start=Counter())
    for fault in schedule.FAULTS:
        assert faults[fault] >= 5, faults
    assert any(each.stale for each in some)


@pytest.mark.slow
def test_a_seed_brings_back_the_same_run() -> None:
    """In another process, too, whatever order its hashes give."""
    here = schedule.run(7)
    code = "from support.simulated import schedule; print('\\n'.join(schedule.run(7).trace))"
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed}
        there = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert there.stdout.splitlines() == here.trace


def test_a_process_writes_to_kafka_in_order_however_long_one_of_it_takes() -> None:
    for seed in range(100):
        landed: list[int] = []

        async def write(seed: int = seed, landed: list[int] = landed) -> None:
            said = schedule.Schedule(seed, Random(seed))
            process = Process("w", said.store, said.broker, said.rng, said.metrics, skew=0.0, fatal=None)
            numbers = range(10)
            writes = (process.write("kafka", partial(landed.append, n), "", in_order=True) for n in numbers)
            await asyncio.gather(*writes)

        with closing(VirtualLoop(Random(seed))) as loop:
            loop.run_until_complete(write())
        assert landed == sorted(landed), f"seed {seed}"


def _first_that_fails() -> ScheduleFailed:
    for seed in range(SOON):
        try:
            schedule.run(seed)
        except ScheduleFailed as failed:
            return failed
    pytest.fail(f"none of {SOON} schedules found it")


def test_an_acknowledgement_before_the_save_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    on_record = Worker.on_record

    async def hasty(worker: Worker, record: Record) -> None:
        await on_record(worker, record)
        record.ack()

    monkeypatch.setattr(Worker, "on_record", hasty)
    assert "nothing of it is saved" in str(_first_that_fails())
    # And by what it does, too: facts are missing in the end.
    monkeypatch.setattr(schedule.Schedule, "check_saved", lambda *_: None)
    assert "AssertionError" in str(_first_that_fails())


def test_a_lease_that_ends_before_what_was_judged_in_time_is_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where queries take long to load, as those with very many verdicts do, and many claim from them."""
    read = Process.read

    async def slowly(process: Process, server: str, call: Callable[[], Awaitable[Any]], what: str) -> Any:
        if what == "load_query":
            await asyncio.sleep(5.0)
        return await read(process, server, call, what)

    monkeypatch.setattr(Process, "read", slowly)
    monkeypatch.setattr(desk, "MOST_CLAIMS", 40)
    monkeypatch.setattr(Partitions, "behind", lambda *_: 0.0)
    assert "was judged in time and served again" in str(_first_that_fails())


def test_a_save_without_compare_and_set_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    save = MemoryStore.save_query

    async def overwriting(store: MemoryStore, change: Change, **options: Any) -> None:
        stored = await store.load_query(change.query_id)
        known = stored is not None
        revision = stored.revision if known else 0
        later = replace(change, expected=revision, revision=max(revision + 1, change.revision))
        await save(store, later, **options)

    monkeypatch.setattr(MemoryStore, "save_query", overwriting)
    _first_that_fails()
