"""Verdicts and items at a steady rate into Kafka, and the time until each verdict's answer is there."""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from haystream_service.demo.play import NoAnswer
from haystream_service.kafka.connection import client_arguments
from haystream_service.settings import Settings

PATIENCE = 120.0
"""Seconds in which an answer is given up."""
BUNDLE_SECONDS = 0.02
"""Items are sent in bundles so far apart."""

LOOK_SECONDS = 0.05

Message = tuple[bytes, bytes]
"""Key and value."""


class Traffic:
    """A producer and a consumer of one deployment's topics; an async context manager.

    `answered` tells from a value of next-items how many of its key's verdicts it knows of.
    """

    def __init__(self, settings: Settings, answered: Callable[[bytes, bytes], int]) -> None:
        self.latencies: list[float] = []
        """Seconds from handing a verdict to the producer to holding the first answer that knows it."""
        self._settings = settings
        self._answered = answered
        self._producer = AIOKafkaProducer(**client_arguments(settings), enable_idempotence=True)
        self._consumer = AIOKafkaConsumer(
            settings.topic("next-items"), **client_arguments(settings), auto_offset_reset="earliest"
        )
        self._sent: defaultdict[bytes, deque[float]] = defaultdict(deque)
        self._counts: defaultdict[bytes, int] = defaultdict(int)
        self._came = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._producer.start()
        await self._consumer.start()
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()
        await self._consumer.stop()
        await self._producer.stop()

    async def send(self, topic: str, message: Message, *, partition: int | None = None) -> None:
        """Hand a message to the producer."""
        key, value = message
        await self._producer.send(self._settings.topic(topic), value, key=key, partition=partition)

    async def flush(self) -> None:
        """Return when Kafka has all that was sent."""
        await self._producer.flush()

    async def verdict(self, message: Message) -> None:
        """Send a verdict and start its clock."""
        self._sent[message[0]].append(time.perf_counter())
        await self.send("verdicts", message)

    async def steady(
        self, verdict: Callable[[], Message], items: Iterable[Message], *, verdicts_per_s: float, items_per_s: float
    ) -> None:
        """Send verdicts, evenly, and items beside them, until these end; return when all is answered."""
        self.latencies.clear()
        streaming = asyncio.create_task(self._stream(items, items_per_s))
        began = time.perf_counter()
        number = 0
        while not streaming.done():
            await self.verdict(verdict())
            number += 1
            await asyncio.sleep(began + number / verdicts_per_s - time.perf_counter())
        streaming.result()
        await self.until(lambda: not any(self._sent.values()), "the answers to all verdicts")

    async def during(
        self, work: "asyncio.Future[Any]", verdict: Callable[[], Message], *, verdicts_per_s: float, patience: float
    ) -> int:
        """Send verdicts, evenly, until the work is done; how many have no answer so many seconds later."""
        self.latencies.clear()
        began, number = time.perf_counter(), 0
        while not work.done():
            await self.verdict(verdict())
            number += 1
            await asyncio.sleep(began + number / verdicts_per_s - time.perf_counter())
        work.result()
        give_up = time.perf_counter() + patience
        while any(self._sent.values()) and time.perf_counter() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)
        unanswered = sum(map(len, self._sent.values()))
        for key, sent in self._sent.items():
            self._counts[key] += len(sent)  # what comes later is no answer to what is sent next
            sent.clear()
        return unanswered

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Return when the condition holds; it is looked at whenever an answer comes. Raises `NoAnswer`."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            raise NoAnswer(f"not within {PATIENCE:g} seconds: {what}") from None

    async def _stream(self, items: Iterable[Message], per_second: float) -> None:
        began, bundle = time.perf_counter(), max(1, round(per_second * BUNDLE_SECONDS))
        for number, item in enumerate(items):
            if number % bundle == 0:
                await asyncio.sleep(began + number / per_second - time.perf_counter())
            await self.send("items", item)

    async def _read(self) -> None:
        async for record in self._consumer:
            now, key = time.perf_counter(), bytes(record.key)
            sent, answered = self._sent[key], self._answered(key, record.value)
            while self._counts[key] < answered and sent:
                self._counts[key] += 1
                self.latencies.append(now - sent.popleft())
            self._came.set()
