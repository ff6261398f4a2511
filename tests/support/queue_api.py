"""The API as a test sees it: on the in-memory transport and store, or on any others, behind a real HTTP server."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from haystream_service.api.access import Role
from haystream_service.api.app import build_app
from haystream_service.api.contents import ContentReader
from haystream_service.api.desk import Desk
from haystream_service.api.facts import At
from haystream_service.api.guards import Gate
from haystream_service.api.on_demand import GraphsOnDemand
from haystream_service.api.outbox import Outbox
from haystream_service.api.serve import Listener, listener
from haystream_service.api.tokens import Doorkeeper, KeyFile
from haystream_service.api.watching import Watching
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.metrics import ApiMetrics
from haystream_service.store.base import Store
from haystream_service.store.claims import Outgoing
from haystream_service.worker.memory_broker import MemoryBroker
from support.equality import EXACT
from support.world import World

HOST = "127.0.0.1"
EVERYTHING = "*"


class MemoryFacts:
    """`Facts` on the in-memory transport, whose past can be away."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.away = False

    async def write(self, topic: str, key: str, value: bytes, *, partition: int | None = None) -> At:
        if partition is None:
            self.broker.produce(topic, key.encode(), value)
            return next(
                At(p, self.broker.end((topic, p)) - 1)
                for p in range(self.broker.partitions)
                if any(m.key == key.encode() for m in self.broker._logs[topic, p])
            )
        return At(partition, self.broker.append((topic, partition), key.encode(), value))

    async def write_items(self, records: Sequence[tuple[str, bytes]]) -> None:
        for key, value in records:
            await self.write("items", key, value)

    async def write_leases(self, records: Sequence[Outgoing]) -> None:
        for record in records:
            await self.write("leases", record.key.decode(), record.value, partition=record.partition)

    async def history(self, topic: str, key: str, partition: int) -> AsyncIterator[bytes]:
        if self.away:
            raise BrokerUnavailable("Kafka is away")
        for message in self.broker._logs[topic, partition]:
            if message.key == key.encode() and message.value is not None:
                yield message.value


class MemoryRecords:
    """`Records` on the in-memory transport, which can be away."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.away = False
        self.reads: list[At] = []

    async def read(self, places: Sequence[At]) -> list[bytes | None]:
        if self.away:
            raise BrokerUnavailable("Kafka is away")
        self.reads += places
        logs = [self.broker._logs["items", at.partition] for at in places]
        return [
            log[at.offset].value if at.offset < len(log) else None for log, at in zip(logs, places, strict=True)
        ]

    async def close(self) -> None: ...


def write_keys(path: Path, *callers: tuple[str, Sequence[Role], Sequence[str]]) -> KeyFile:
    """A file in which every caller's key is its name."""
    lines = [
        {
            "sha256": hashlib.sha256(name.encode()).hexdigest(),
            "subject": name,
            "roles": list(roles),
            "collections": list(collections),
        }
        for name, roles, collections in callers
    ]
    path.write_text(json.dumps(lines))
    return KeyFile(path)


def an_app(store: Store, facts: MemoryFacts, keys: KeyFile, *, rate: float = 1e5, **given: Any) -> FastAPI:
    """The application, made of these."""
    origins, metrics = given.pop("origins", ()), ApiMetrics(CollectorRegistry())
    contents = ContentReader(given.pop("records", MemoryRecords(facts.broker)), metrics)
    outbox, graphs, watching = Outbox(store.claims, facts), GraphsOnDemand(store, EXACT), Watching(store)
    desk = Desk(store, store.claims, facts, contents, outbox, graphs, watching, **given)
    return build_app(desk, Gate(Doorkeeper(keys, None), rate=rate), metrics, origins=origins)


@asynccontextmanager
async def listening(app: FastAPI) -> AsyncIterator[str]:
    """Its address, while it is served in this loop."""
    server: Listener = listener(app, HOST, 0)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        assert not serving.done(), serving
        await asyncio.sleep(0.005)
    try:
        yield f"http://{HOST}:{server.port}"
    finally:
        app.state.desk.stopping.set()
        server.should_exit = True
        await serving
        await app.state.desk.graphs.close()
        await app.state.desk.outbox.close()


async def told(world: World, query_id: str) -> None:
    """All that happened to the query's leases is in the topic, and folded: it comes behind the answers' backs."""
    while await world.store.claims.outbox(query_id, 1):  # noqa: ASYNC110 - nobody says when
        await asyncio.sleep(0.005)
    await world.processes[0].settled()


@asynccontextmanager
async def calling(address: str, token: str | None) -> AsyncIterator[httpx.AsyncClient]:
    """A client with that token."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    # Without TLS there is nothing to verify; to prepare it takes longer than most tests.
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=30, verify=False) as client:
        yield client
