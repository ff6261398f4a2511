"""How a worker process ends: when it is told to, or cannot go on, and in time."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager, suppress
from threading import Timer
from typing import Any, TypeVar

import faust

from haystream_service.store.base import StoreUnavailable
from haystream_service.worker.endings import StateBack
from haystream_service.worker.items import ItemsReader
from haystream_service.worker.progress import Progress
from haystream_service.worker.worker import Worker

log = logging.getLogger(__name__)

STOP_SECONDS = 8.0
"""For leaving the groups and closing connections, above `drain_seconds`. k8s' grace period has room for it."""
ABANDON_SECONDS = 2.0
"""Of these, for noting in the store what was broken off."""
SAY_SECONDS = 3.0
"""And for saying there what is to be read again."""

T = TypeVar("T")


def stopped_by_signals(drain_seconds: float) -> asyncio.Event:
    """What SIGTERM or SIGINT sets. The process ends in time then, at the latest."""
    stop = asyncio.Event()

    def told() -> None:
        stop.set()
        end_within(drain_seconds + STOP_SECONDS, code=0)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told)
    return stop


def end_within(seconds: float, *, code: int) -> None:
    """Have the process end by then, whatever it still waits for; as after a crash, the rest is delivered again.

    Where Kafka stands still, aiokafka and Faust wait for it in order to leave: Faust in a thread of its own, which
    keeps the process from ending.
    """

    def end() -> None:
        log.warning("not stopped in time; the rest will be delivered again")
        os._exit(code)

    timer = Timer(seconds, end)
    timer.daemon = True  # a process that ends earlier does not wait for it
    timer.start()


async def unless(stop: asyncio.Event, work: Awaitable[T]) -> T | None:
    """The work's result, or None if `stop` comes first."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        return working.result()
    working.cancel()
    return None


async def until_over(app: faust.App, worker: Worker, stop: asyncio.Event) -> bool:
    """Return when it is told to stop (True), or cannot go on."""
    ended = asyncio.ensure_future(app.wait_until_stopped())
    stopping = asyncio.ensure_future(stop.wait())
    waits: set[asyncio.Future[None]] = {ended, worker.failed, stopping}  # type: ignore[arg-type]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    stopping.cancel()
    return stop.is_set() and not worker.failed.done()


async def drain(
    app: faust.App,
    worker: Worker,
    reader: ItemsReader,
    reading: asyncio.Future[None],
    progress: Progress,
    *,
    seconds: float,
) -> None:
    """Take no more records; save, publish and commit those in hand, as far as there is time."""
    log.info("stopping: finishing what is in hand")
    reader.stop()
    app.consumer.stop_flow()
    _take_no_more(app)
    try:
        async with asyncio.timeout(seconds):
            await worker.drain()
            await app.consumer.commit()
            await asyncio.wait([reading])
            with suppress(StateBack, StoreUnavailable):  # whoever comes next finds that out
                await progress.note()
    except TimeoutError:
        log.warning("not finished within %g s; the rest will be delivered again", seconds)


def give_up(app: faust.App) -> None:
    """Leave what is in hand as it is, after a failure."""
    log.critical("stopping after a failure", exc_info=app.crash_reason)
    end_within(STOP_SECONDS, code=1)
    _take_no_more(app)


def _take_no_more(app: faust.App) -> None:
    app.flow_control.suspend()
    app.flow_control.clear()


async def abandon(worker: Worker) -> None:
    """Break off what is in hand. To be done before Kafka is left, which may take all the time that there is."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SAY_SECONDS):
            await worker.written.until_said()
    with suppress(TimeoutError):
        async with asyncio.timeout(ABANDON_SECONDS):
            await worker.abandon()


@asynccontextmanager
async def running(app: faust.App, worker: Worker) -> AsyncIterator[None]:
    """Faust works within the context, and has left Kafka after it; a failure of it is the worker's."""
    # `start` returns only once partitions are assigned, so it is not waited for.
    starting = asyncio.ensure_future(app.start())
    starting.add_done_callback(lambda done: _tell_failure(done, worker))
    try:
        yield
    finally:
        try:
            await asyncio.wait_for(app.stop(), STOP_SECONDS)
        except TimeoutError:
            log.warning("Faust did not stop within %g s", STOP_SECONDS)
        starting.cancel()
        await asyncio.wait([starting])


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None], worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """The work as a task, which ends with the context; a failure of it is the worker's."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: _tell_failure(done, worker))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def _tell_failure(done: asyncio.Future[None], worker: Worker) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        worker.fail(error)
