"""Whether the worker can do its work: looked at all the time, so that a probe is answered at once."""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from haystream_service.kafka.records import OWNED, SOURCES, BrokerUnavailable, Kind
from haystream_service.metrics import Metrics
from haystream_service.store.base import StoreUnavailable
from haystream_service.worker.clock import Clock
from haystream_service.worker.endings import Stalled, StateBack
from haystream_service.worker.partitions import Partitions
from haystream_service.worker.progress import Progress
from haystream_service.worker.worker import Worker

PATIENCE_SECONDS = 2.0
"""A server that has been silent for so long counts as away. When it is well it answers in milliseconds."""
RESTART_SECONDS = 600.0
"""A partition that has stood still for so long, although every server answers, ends the process: it comes back with
new connections and threads, and everything is delivered again. Loading five million edges takes minutes."""


AGENT_SECONDS = 60.0
"""The same for an agent that has ended: Faust makes another within seconds, if it does."""


class Watch:
    """Asks Kafka and the store, and ends the worker when only a restart can help."""

    def __init__(
        self,
        worker: Worker,
        partitions: Partitions,
        progress: Progress,
        agents: Collection[Kind],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._worker = worker
        self._progress = progress
        self._partitions = partitions
        self._agents = agents
        self._metrics = metrics
        self._clock = clock
        self._kafka = Question("Kafka", self._ask_kafka, clock)
        self._store = Question("Redis", self._ask_store, clock)
        self._well_since = self._all_alive = float("inf")
        """Since when; before the first look nothing counts, as whoever starts may compile for minutes."""

    @property
    def troubles(self) -> list[str]:
        """Why not to count on the worker, as far as the last look told."""
        stalled = map(str, self._partitions.stalled)
        return [
            *self._kafka.troubles,
            *self._store.troubles,
            *self._dead(),
            *self._partitions.left_out(),
            *stalled,
        ]

    async def look(self) -> None:
        """Bring `troubles` and the metrics up to date."""
        await asyncio.gather(self._kafka.ask(), self._store.ask())
        now = self._clock.monotonic()
        self._well_since, self._all_alive = min(self._well_since, now), min(self._all_alive, now)
        if self._kafka.troubles or self._store.troubles:
            self._well_since = now  # it is no wonder that nothing moves
        if not self._dead():
            self._all_alive = now
        self._metrics.stalled_partitions.set(len(self._partitions.stalled))
        self._restart_if_stalled(now)

    def close(self) -> None:
        """Ask no more."""
        self._kafka.close()
        self._store.close()

    def _restart_if_stalled(self, now: float) -> None:
        well = now - self._well_since
        reasons = [str(s) for s in self._partitions.stalled if min(s.seconds, well) > RESTART_SECONDS]
        if min(now - self._all_alive, well) > AGENT_SECONDS:
            reasons += self._dead()
        if reasons:
            self._worker.fail(Stalled(f"{'; '.join(reasons)}, and every server answers: starting anew"))

    def _dead(self) -> list[str]:
        return [f"the agent of {SOURCES[kind]} has ended" for kind in OWNED if kind not in self._agents]

    async def _ask_kafka(self) -> list[str]:
        try:
            await self._partitions.look()
        except BrokerUnavailable as error:
            self._metrics.server_errors.labels("kafka").inc()
            return [str(error)]
        return []

    async def _ask_store(self) -> list[str]:
        troubles = await self._worker.store_troubles()
        if not troubles:
            try:
                await self._progress.note()
            except StoreUnavailable as error:
                self._metrics.server_errors.labels("redis").inc()
                return [str(error)]
            except StateBack as back:
                self._worker.fail(back)
                return [str(back)]
        return troubles


class Question:
    """What is asked again and again, one at a time, and for how long there has been no answer."""

    def __init__(self, server: str, ask: Callable[[], Awaitable[list[str]]], clock: Clock) -> None:
        self.troubles = [f"{server} was not asked yet"]
        """What the last answer was, or that there is none."""
        self._server = server
        self._ask = ask
        self._clock = clock
        self._asked: asyncio.Future[list[str]] | None = None
        self._since = 0.0

    async def ask(self) -> None:
        """Return when there is an answer, or soon. A question that has none yet is not asked again."""
        if self._asked is None:
            self._asked = asyncio.ensure_future(self._ask())
            self._since = self._clock.monotonic()
        await asyncio.wait({self._asked}, timeout=PATIENCE_SECONDS)
        if self._asked.done():
            self.troubles = self._asked.result()
            self._asked = None
        else:
            waited = self._clock.monotonic() - self._since
            self.troubles = [f"{self._server} has not answered for {waited:.0f} s"]

    def close(self) -> None:
        """Ask no more."""
        if self._asked is not None:
            self._asked.cancel()
