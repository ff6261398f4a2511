"""Another version, this one, and that other one again, on the same Redis and topics: `make upgrade FROM=COMMIT`.

No test by its name: it needs the repository's history. What that version leaves behind is written to
tests/faults/left, where test_upgrade.py finds it.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.equality import assert_is_stored, offline
from support.left import take
from support.pipeline import PATIENCE, Pipeline
from support.versions import OtherWorker, checkout, part

from haystream.events import Event

LEFT = Path(__file__).parent / "left"

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.timeout(1200)]


@pytest.fixture
def commit(pytestconfig: pytest.Config) -> str:
    given = pytestconfig.getoption("upgrade_from")
    if given is None:
        pytest.skip("wants a commit: make upgrade FROM=COMMIT")
    return str(given)


@pytest.fixture
def earlier(commit: str) -> Iterator[Path]:
    with checkout(commit) as tree:
        yield tree


async def test_there_and_back(earlier: Path, commit: str, pipeline: Pipeline) -> None:
    said: list[Event] = []
    for number in range(3):
        this = number == 1
        worker = await pipeline.worker() if this else OtherWorker(earlier, pipeline.environment())
        said += part(number)
        try:
            if not this:
                await asyncio.to_thread(worker.start)
            await pipeline.say(*part(number))
            if this:
                await pipeline.assert_is_the_fold(said)
            else:
                await _stored(pipeline, said)
            await asyncio.to_thread(worker.stop)
        finally:
            print(worker.log.read_text())  # noqa: T201 - pytest shows it where the test fails
            await asyncio.to_thread(worker.close)
        if number == 0:
            LEFT.mkdir(exist_ok=True)
            await take(pipeline, LEFT / f"{commit}.jsonl")


async def _stored(pipeline: Pipeline, said: list[Event]) -> None:
    """Return when all is stored as a fold has it. Which group commits what, and how much a ranking shows of it, is
    that version's own affair."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            await assert_is_stored(pipeline.store, offline(said))
        except AssertionError:
            if time.monotonic() > give_up:
                raise
        else:
            return
        await asyncio.sleep(1)
