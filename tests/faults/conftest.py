"""The servers that are broken, and what became of the workers on them."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

import pytest
from support.arena import ProxiedKafka, Servers, Struck, arena, recorded
from support.faults import FAULTS, SAMPLE, Fault, small_disk

from haystream_service.local import ServerUnavailable, ValkeyServer

TRUTH_SECONDS = 30.0
"""For /readyz to say what is: a member is given up after ten seconds, an answer after five."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "struck" in metafunc.fixturenames:
        every = metafunc.config.getoption("faults") == "all"
        chosen = [fault for fault in FAULTS if every or fault.name in SAMPLE]
        metafunc.parametrize("struck", chosen, indirect=True, scope="module", ids=lambda fault: fault.name)


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory, unavailable: Callable[[str], NoReturn]
) -> Iterator[tuple[Servers, bool]]:
    """A Kafka and a Valkey that the faults share, and whether Valkey has a disk of its own."""
    disk: Path = tmp_path_factory.mktemp("disk")
    try:
        with small_disk(disk) as own, ProxiedKafka() as kafka, ValkeyServer(data_dir=disk) as valkey:
            yield Servers(kafka, valkey), own
    except ServerUnavailable as missing:
        unavailable(str(missing))


@pytest.fixture(scope="module")
def struck(request: pytest.FixtureRequest, servers: tuple[Servers, bool]) -> Struck:
    """Two workers amid a stream, and the fault: once for all that is asked of it."""
    fault: Fault = request.param
    made, own_disk = servers
    if fault.name.startswith("disk") and not own_disk:
        pytest.skip("a small file system needs the right to mount")
    return asyncio.run(_play(made, fault))


async def _play(servers: Servers, fault: Fault) -> Struck:
    struck = Struck(fault.name)
    async with arena(servers, f"fault-{uuid4().hex[:8]}") as ring:
        first, stream = recorded(len(fault.name))
        if fault.twice:
            stream = [event for event in stream for _ in range(2)]
        await ring.start_workers(fault.skew)
        await ring.say(first, pause=0.0)
        await ring.pipeline.drained()
        saying = asyncio.create_task(ring.say(stream))
        claiming = asyncio.create_task(ring.claim(random.Random(fault.name)))
        await ring.works()
        wanted = {number: number not in fault.dark for number in range(len(ring.workers))}
        async with fault.strike(ring):
            asked = asyncio.create_task(ring.is_ready(wanted, TRUTH_SECONDS))
            await asyncio.sleep(fault.seconds)
            struck.lies = await asked
            mended = time.monotonic()
        try:
            struck.recovery = await ring.recovered(mended)
            await saying
            claiming.cancel()
            await ring.check()
            struck.stale = await ring.newest_is_last()
        except Exception as error:  # noqa: BLE001 - it is for the tests to raise it
            struck.error = error
            for worker in ring.workers:
                print(worker.log.read_text(errors="replace"))  # noqa: T201 - pytest shows it with the failure
        finally:
            saying.cancel()
            claiming.cancel()
    print(f"{fault.name}: ready again after {struck.recovery:.1f} s")  # noqa: T201 - pytest shows it with -s
    return struck
