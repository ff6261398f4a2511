"""`haystream query list|show|release`: over the API at HAYSTREAM_API, or, where that is not set, from the store.

The store knows more: queries that nobody has opened, deleted ones, and what was passed over.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import orjson

from haystream.errors import Rejected
from haystream.events import Status
from haystream_service.client import ApiProblem, Haystream
from haystream_service.commands.connected import connected_if_named
from haystream_service.console import notes, plain, results, write_json
from haystream_service.errors import UserError
from haystream_service.settings import load
from haystream_service.store.base import Note, Store, StoreDamaged, StoredQuery
from haystream_service.wire import decode_ranking, encode_query, times

T = TypeVar("T")

RUNNING, STOPPED, RELEASED, UNKNOWN, DELETED = "running", "stopped", "released", "unknown", "deleted"
DAMAGED = "damaged"
"""Of a query whose note or ranking in Redis cannot be read: the others are told of all the same."""


def run_list(*, stopped: bool, config: Path | None, json: bool) -> None:
    """Print a line for each query, or for each that is stopped. Raises `UserError`."""
    rows = _found(config, lambda api: _lines(api, stopped=stopped), lambda store: _rows(store, stopped=stopped))
    if json:
        write_json({"queries": rows})
        return

    out = results()
    for row in rows:
        known = f", {row['found']} relevant in {row['screened']} screened" if "screened" in row else ""
        why = f", {row['quarantine']['code']}: {row['quarantine']['detail']}" if row.get("quarantine") else ""
        why = f", {row['detail']}" if "detail" in row else why
        status = f", {row['status']}" if "status" in row else ""
        out.print(f"[bold]{plain(row['query_id'])}[/] {row['state']}{status}{known}{plain(why)}")
    notes.print(f"{len(rows)} queries")


def run_show(query_id: str, *, config: Path | None, json: bool) -> None:
    """Print all that is known of a query but its verdicts. Raises `UserError`."""
    found = _found(config, lambda api: _told(api, query_id), lambda store: _shown(store, query_id))
    if json:
        write_json(found)
        return

    out = results()
    for name, value in found.items():
        text = value if isinstance(value, str) else orjson.dumps(value).decode()
        out.print(f"[bold]{name}[/]: {plain(text)}")


def run_release(query_id: str, *, config: Path | None, json: bool) -> None:
    """Let a query that is stopped go on. Raises `UserError`."""
    was = _found(config, lambda api: api.release(query_id).released, lambda store: _release(store, query_id))
    if json:
        write_json({"query_id": query_id, "released": was})
    elif was:
        notes.print(f"query {plain(query_id)} is released: its worker tries it again within seconds")
    else:
        notes.print(f"query {plain(query_id)} is not stopped")


def _found(config: Path | None, over_api: Callable[[Haystream], T], in_store: Callable[[Store], Awaitable[T]]) -> T:
    with connected_if_named(config) as client:
        return over_api(client) if client is not None else _answer(config, in_store)


def _lines(api: Haystream, *, stopped: bool) -> list[dict[str, Any]]:
    lines = (line.model_dump(mode="json", exclude_none=True) for line in api.queries())
    return [line for line in lines if not stopped or line["state"] == STOPPED]


def _told(api: Haystream, query_id: str) -> dict[str, Any]:
    found = api.query(query_id).model_dump(mode="json", exclude={"applied"}, exclude_none=True)
    try:
        progress = api.progress(query_id).model_dump(mode="json", exclude={"query_id", "revision"})
    except ApiProblem as problem:
        if problem.code != "not_found":
            raise
        progress = {}  # nothing is ranked yet
    return {**found, **progress, "settings": found["settings"]}


def _answer(config: Path | None, ask: Callable[[Store], Awaitable[T]]) -> T:
    from haystream_service.store.redis import RedisStore

    async def asked() -> T:
        store = RedisStore.open(load(config))
        try:
            return await ask(store)
        finally:
            await store.close()

    return asyncio.run(asked())


async def _rows(store: Store, *, stopped: bool) -> list[dict[str, Any]]:
    listed, unknown = await store.quarantined(), await store.unknown()
    opened = await store.query_ids()
    names = set(listed) if stopped else opened | set(listed) | set(unknown)
    rows = []
    for query_id in sorted(names):
        row: dict[str, Any] = {"query_id": query_id}
        try:
            note = await store.read_note(query_id)
            row["state"] = _state(note, opened=query_id in opened)
            if stopped and row["state"] != STOPPED:
                continue
            ranking = await store.read_ranking(query_id)
            if ranking is None and query_id in opened:
                row["state"] = DELETED
            if ranking is not None:
                value = decode_ranking(ranking).model_dump(mode="json")
                row |= {name: value[name] for name in ("screened", "found", "revision", "published_at")}
            row |= _quarantine(note)
        except (StoreDamaged, Rejected) as damaged:
            row |= {"state": DAMAGED, "detail": str(damaged)}
        rows.append(row)
    return rows


async def _shown(store: Store, query_id: str) -> dict[str, Any]:
    note = await store.read_note(query_id)
    trouble: dict[str, Any] = {}
    stored: StoredQuery | None = None
    try:
        stored = await store.load_query(query_id)
    except Rejected as rejected:
        trouble = {"settings_rejected": {"code": rejected.code, "detail": rejected.detail}}
    opened = bool(stored or trouble)
    listed, unknown = await store.quarantined(), await store.unknown()
    if not opened and query_id not in listed and query_id not in unknown:
        raise UserError(f"nobody has opened query {query_id!r}; `haystream query list` names those that there are")
    shown: dict[str, Any] = {"query_id": query_id, "state": _state(note, opened=opened), **_quarantine(note)}
    if stored is not None and stored.settings.status == Status.DELETED:
        return {"query_id": query_id, "state": DELETED, "partition": stored.partition, "revision": stored.revision}
    if stored is not None:
        ranking = orjson.loads(await store.read_ranking(query_id) or b"{}")
        shown |= {name: ranking.get(name) for name in ("screened", "found", "expected_remaining", "published_at")}
        shown |= {
            "partition": stored.partition,
            "revision": stored.revision,
            "verdicts": len(stored.verdicts),
            "entries": stored.position.cursor,
            "leases": len(await store.claims.live(query_id)),
            "read_up_to": {
                "queries": stored.position.queries_offset,
                "verdicts": stored.position.verdicts_offset,
                "leases": stored.position.leases_offset,
            },
            "settings": orjson.loads(encode_query(stored.settings)),
        }
    else:
        shown["partition"] = {**unknown, **listed}.get(query_id)
    to_read = {name: asdict(span) for name, span in note.passed._asdict().items() if span is not None}
    return {**shown, **trouble, "passed_over": to_read}


async def _release(store: Store, query_id: str) -> bool:
    note = await store.read_note(query_id)
    if note.quarantine is None and query_id not in await store.query_ids() | set(await store.quarantined()):
        raise UserError(f"there is no query {query_id!r}; `haystream query list` names those that there are")
    await store.release(query_id)
    return note.quarantine is not None


def _state(note: Note, *, opened: bool) -> str:
    if note.quarantine is not None:
        return STOPPED
    if note.passed.queries is not None:
        return RELEASED
    return RUNNING if opened else UNKNOWN


def _quarantine(note: Note) -> dict[str, Any]:
    why = note.quarantine
    if why is None:
        return {}
    since = times.to_text(int(why.since * 1e6))
    return {"quarantine": {"code": why.code, "detail": why.detail, "since": since}}
