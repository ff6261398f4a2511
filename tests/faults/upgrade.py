"""Another version, this one, and that other one again, on the same Redis and topics: `make upgrade FROM=COMMIT`.

Where this one's state is of a later format than that one reads, that one has to say so, and goes on once it has
rebuilt it.

No test by its name: it needs the repository's history. What that version leaves behind is written to
tests/faults/left, where test_upgrade.py finds it.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.equality import assert_is_stored, offline
from support.left import take
from support.pipeline import PATIENCE, Pipeline, page
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


async def test_there_and_back(earlier: Path, commit: str, pipeline: Pipeline, shown: Callable[[str], None]) -> None:
    said: list[Event] = []
    for number in range(3):
        this = number == 1
        worker = await pipeline.worker() if this else OtherWorker(earlier, pipeline.environment())
        said += part(number)
        try:
            if isinstance(worker, OtherWorker):
                shown(f"part {number}: {await _started(worker)}")
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


async def _started(worker: OtherWorker) -> str:
    """Return when the worker is ready, after a rebuild where a later version was there; what happened."""
    starting = asyncio.ensure_future(asyncio.to_thread(worker.start))
    try:
        while not starting.done():
            with suppress(OSError):
                status, said = await asyncio.to_thread(page, worker, "/readyz")
                if status == 503 and "a later version of haystream has written to Redis" in said:
                    break
            await asyncio.sleep(0.1)
        else:
            await starting
            return "the worker of the commit is ready"
    finally:
        if not starting.done():
            await asyncio.to_thread(worker.stop)
            await asyncio.gather(starting, return_exceptions=True)
    ran = await asyncio.to_thread(worker.program, "rebuild", "--yes")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    await asyncio.to_thread(worker.start)
    return f"the worker of the commit waits: {said.strip()}; after its rebuild it is ready"


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
