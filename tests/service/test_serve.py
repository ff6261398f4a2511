"""How a worker's process ends: in which order it leaves what it has."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from haystream_service.settings import Settings
from haystream_service.worker import serve as module
from haystream_service.worker import stopping
from haystream_service.worker.worker import Worker

pytestmark = pytest.mark.asyncio

NOWHERE = "127.0.0.1:1"


class App:
    """A Faust app that has started, and notes in `events` when it leaves Kafka."""

    rebalancing = False
    crash_reason = None

    def __init__(self, events: list[str]) -> None:
        self._events = events
        self.consumer = self.flow_control = self
        self.started = asyncio.Event()

    async def start(self) -> None:
        self.started.set()

    async def stop(self) -> None:
        self._events.append("Kafka is left")

    async def wait_until_stopped(self) -> None:
        await asyncio.Event().wait()

    async def commit(self) -> None:
        pass

    def stop_flow(self) -> None:
        pass

    suspend = clear = stop_flow


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a worker does to its process is not done to this one, or undone."""
    monkeypatch.setattr(module, "_settle_memory", lambda: None)
    monkeypatch.setattr(stopping, "end_within", lambda *_, **__: None)
    seconds = sys.getswitchinterval()
    yield
    sys.setswitchinterval(seconds)


@pytest.mark.parametrize("answers", [True, False], ids=["the store answers", "the store is silent"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_what_is_in_hand_is_given_up_before_kafka_is_left(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, answers: bool
) -> None:
    """To leave Kafka may take all the time that there is: what was broken off would be held against its query."""
    events: list[str] = []
    app, abandon = App(events), Worker.abandon

    async def noting(worker: Worker) -> None:
        events.append("queries are being given up")
        if not answers and "Kafka is left" not in events:
            await asyncio.Event().wait()
        await abandon(worker)
        events.append("queries are given up")

    async def prepared(_: module.Server) -> bool:
        return True

    monkeypatch.setattr(Worker, "abandon", noting)
    monkeypatch.setattr(module, "_prepare", prepared)
    monkeypatch.setattr(module, "build_app", lambda *_, **__: app)
    monkeypatch.setattr(stopping, "ABANDON_SECONDS", 10.0 if answers else 0.05)
    settings = Settings(kafka=NOWHERE, redis=f"redis://{NOWHERE}", port=0, host="127.0.0.1", drain_seconds=0.05)
    serving = asyncio.ensure_future(module.serve(settings))
    try:
        async with asyncio.timeout(30):
            await app.started.wait()
            os.kill(os.getpid(), number)
            assert await serving == 0
    finally:
        serving.cancel()
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(each)
    told = ["queries are being given up", "queries are given up"] if answers else ["queries are being given up"]
    assert events[: events.index("Kafka is left")] == told
