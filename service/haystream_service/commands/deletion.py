"""`haystream query delete` and `haystream collection delete`, and what Kafka keeps of either."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import typer

from haystream.errors import Rejected
from haystream.events import Query, Status
from haystream_service.commands.connected import connected_if_named
from haystream_service.console import notes, plain, write_json
from haystream_service.errors import UserError
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.settings import Settings, load
from haystream_service.store.base import Store, StoreDamaged
from haystream_service.wire import encode_query

PATIENCE_SECONDS = 30.0
"""How long a worker has to take the deletion up, until the command says that none has yet."""
LOOK_SECONDS = 0.1
T = TypeVar("T")


def run_query(query_id: str, *, config: Path | None, yes: bool, json: bool) -> None:
    """Delete a query over the API, or through its topic; wait for its worker; print what Kafka keeps.

    Over the API nobody is told what Kafka keeps. Raises `UserError`.
    """
    with connected_if_named(config) as client:
        if client is not None:
            client.query(query_id)
            _confirm(f"Delete query {query_id!r} with its verdicts, for good?", yes)
            deleted = client.delete(query_id).deleted
            if json:
                write_json({"query_id": query_id, "deleted": deleted})
            else:
                _tell_deleted(query_id, done=deleted)
            return
    verdicts = _answer(config, lambda settings, store: _verdicts(store, query_id))
    _confirm(f"Delete query {query_id!r} with its {verdicts} verdicts, for good?", yes)
    done = _answer(config, lambda settings, store: _delete_query(settings, store, query_id))
    keeps = _answer(
        config, lambda settings, _: _retention(settings, "queries", "verdicts", "leases", "dead-letters")
    )
    if json:
        write_json({"query_id": query_id, "deleted": done, "verdicts": verdicts, "kafka_keeps": keeps})
        return
    _tell_deleted(query_id, done=done)
    _tell(keeps)


def _tell_deleted(query_id: str, *, done: bool) -> None:
    if done:
        notes.print(f"query {plain(query_id)} is deleted: nothing but its id is left in Redis and in the workers")
    else:
        notes.print(f"query {plain(query_id)}: no worker has taken the deletion up yet. One will when it runs")


def run_collection(name: str, *, config: Path | None, yes: bool, json: bool) -> None:
    """Delete a collection from the store, print what Kafka keeps. Raises `UserError`."""
    items = _answer(config, lambda _, store: _unused(store, name))
    _confirm(f"Delete collection {name!r} with its {items} items, for good?", yes)
    _answer(config, lambda _, store: store.delete_collection(name))
    keeps = _answer(config, lambda settings, _: _retention(settings, "items", "dead-letters"))
    if json:
        write_json({"collection": name, "deleted": True, "items": items, "kafka_keeps": keeps})
        return
    notes.print(
        f"collection {plain(name)} is deleted: nothing but its name is left in Redis. Workers that had it in "
        "memory let go HAYSTREAM_IDLE_SECONDS after the last of its queries went"
    )
    _tell(keeps)


def _answer(config: Path | None, ask: Callable[[Settings, Store], Awaitable[T]]) -> T:
    from haystream_service.store.redis import RedisStore

    async def asked() -> T:
        settings = load(config)
        store = RedisStore.open(settings)
        try:
            return await ask(settings, store)
        finally:
            await store.close()

    try:
        return asyncio.run(asked())
    except BrokerUnavailable as error:
        raise UserError(str(error)) from None


def _confirm(question: str, yes: bool) -> None:
    if not yes and not typer.confirm(question, err=True):
        raise UserError("nothing was deleted")


async def _verdicts(store: Store, query_id: str) -> int:
    """How many verdicts the query has; raises `UserError` where there is no such query any more."""
    try:
        stored = await store.load_query(query_id)
    except (Rejected, StoreDamaged):
        return 0  # settings of another version, or no settings at all: that keeps nobody from deleting it
    if stored is None and query_id not in {**await store.quarantined(), **await store.unknown()}:
        raise UserError(f"there is no query {query_id!r}; `haystream query list` names those that there are")
    if stored is not None and stored.settings.status == Status.DELETED:
        raise UserError(f"query {query_id!r} is deleted already")
    return len(stored.verdicts) if stored else 0


async def _delete_query(settings: Settings, store: Store, query_id: str) -> bool:
    """Write the deletion to the query's partition; whether a worker has carried it out."""
    (head,) = await store.read_heads([query_id])
    known = {**await store.unknown(), **await store.quarantined()}
    opened = head is not None and head.partition >= 0
    await _send(settings, query_id, head.partition if head is not None and opened else known.get(query_id))
    for _ in range(int(PATIENCE_SECONDS / LOOK_SECONDS)):
        (head,) = await store.read_heads([query_id])
        if head is not None and head.settings is not None and head.settings.status == Status.DELETED:
            return True
        await asyncio.sleep(LOOK_SECONDS)
    return False


async def _send(settings: Settings, query_id: str, partition: int | None) -> None:
    from aiokafka import AIOKafkaProducer

    from haystream_service.kafka.admin import check_topics
    from haystream_service.kafka.connection import client_arguments, running

    await check_topics(settings, "queries")  # a producer would wait for it
    producer = AIOKafkaProducer(**client_arguments(settings), enable_idempotence=True)
    value = encode_query(Query(query_id, status=Status.DELETED))
    async with running(producer, f"Kafka at {settings.kafka} did not take the deletion"):
        await producer.send_and_wait(settings.topic("queries"), value, key=query_id.encode(), partition=partition)


async def _unused(store: Store, name: str) -> int:
    """How many items the collection has; raises `UserError` while it has queries, or where it is not there."""
    if await store.is_deleted(name):
        raise UserError(f"collection {name!r} is deleted already")
    query_ids = sorted(await store.query_ids())
    heads = zip(query_ids, await store.read_heads(query_ids), strict=True)
    using = [query_id for query_id, head in heads if head is not None and _uses(head.settings, name)]
    if using:
        some = ", ".join(using[:10]) + (" and others" if len(using) > 10 else "")
        raise UserError(f"collection {name!r} has queries: {some}. Delete them first (`haystream query delete`)")
    items = await store.item_count(name)
    if not items:
        raise UserError(f"there is no collection {name!r} with items")
    return items


def _uses(settings: Query | None, name: str) -> bool:
    """Whether the query has, or may have, to do with the collection."""
    return settings is None or (settings.collection == name and settings.status != Status.DELETED)


async def _retention(settings: Settings, *names: str) -> dict[str, int]:
    """By topic, for how many milliseconds Kafka keeps a record; -1: for ever."""
    from haystream_service.kafka import admin

    configured = await admin.configured(settings, names)
    return {topic: int(configuration.get("retention.ms", -1)) for topic, configuration in configured.items()}


def _tell(keeps: dict[str, int]) -> None:
    for topic, milliseconds in keeps.items():
        long = "for ever" if milliseconds < 0 else f"for {milliseconds / 86_400_000:g} days after they were written"
        notes.print(f"  Kafka keeps records in {topic} {long}")
    notes.print("To take them out of Kafka, too: docs/erasure.md")
