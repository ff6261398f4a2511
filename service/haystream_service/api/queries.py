"""The routes of queries: open, list, show, change, delete, and let go on."""

from contextlib import suppress
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Request
from pydantic import ValidationError
from pydantic_core import from_json, to_json
from starlette.responses import Response

from haystream.errors import Code, Rejected
from haystream.events import Query as Settings
from haystream.events import Status
from haystream_service.api import openapi
from haystream_service.api.access import Caller
from haystream_service.api.desk import Desk, Opened, etag, until
from haystream_service.api.facts import At
from haystream_service.api.guards import CallerOf, DeskOf, Limit, PathId, QueryOf, answer
from haystream_service.api.messages import (
    WAIT_SECONDS,
    Deleted,
    QuarantineRecord,
    QueryAnswer,
    QueryLine,
    QueryList,
    Released,
    State,
    Wait,
)
from haystream_service.api.problems import ApiCode, Problem
from haystream_service.store.base import Head, Hold, Note, StoreUnavailable
from haystream_service.wire import decode_query, encode_query, limits, times
from haystream_service.wire.fields import Id

router = APIRouter(tags=["queries"])

HELD_SECONDS = 60.0
"""For how long a change that was made from some settings keeps others out that are made from the same, unless the
worker takes it in before. It does within milliseconds; but it may be away, or have rejected the change."""
WaitFor = Annotated[Wait, Query(description="Seconds to wait at most until the worker has taken it in.")]
IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="The ETag of the settings that the change was made from.")
]


@router.get("/v1/queries", response_model=QueryList)
async def list_queries(
    caller: CallerOf, desk: DeskOf, after: Id | None = None, limit: Limit = 100, collection: Id | None = None
) -> Response:
    """Queries by id, deleted ones left out."""
    await desk.check_in_use()
    names = sorted(name for name in await desk.store.query_ids() if after is None or name > after)
    stopped = await desk.store.quarantined()
    lines: list[QueryLine] = []
    for start in range(0, len(names), 500):
        some = names[start : start + 500]
        for query_id, head in zip(some, await desk.store.read_heads(some), strict=True):
            settings = head.settings if head else None
            if head is None or settings is None or settings.status == Status.DELETED:
                continue
            if not caller.sees(settings.collection) or collection not in {None, settings.collection}:
                continue
            if len(lines) == limit:
                return answer(QueryList(queries=tuple(lines), next=lines[-1].query_id))
            lines.append(_line(query_id, settings, head, stopped=query_id in stopped))
    return answer(QueryList(queries=tuple(lines)))


@router.put(
    "/v1/queries/{query_id}",
    response_model=QueryAnswer,
    responses={201: {"model": QueryAnswer}, 202: {"model": QueryAnswer}},
    openapi_extra=openapi.settings_body(
        "The query's settings, as the topic `queries` has them; all have defaults."
    ),
)
async def open_query(
    query_id: PathId, request: Request, caller: CallerOf, desk: DeskOf, wait: WaitFor = WAIT_SECONDS
) -> Response:
    """Open a query. The same once more changes nothing; other settings under its id are a conflict.

    201: it is opened. 200: it was there. 202: the worker has not taken it in yet.
    """
    settings = _settings(query_id, _object(await request.body()))
    if settings.status == Status.DELETED:
        raise Problem(Code.INVALID_VALUE, "status: a query is deleted with DELETE")
    caller.check(settings.collection)
    if (there := await _there(desk, caller, settings)) is not None:
        return await _answer(desk, there)
    await desk.check_in_use()  # it may be open, and what is written here would replace its settings
    if await desk.store.is_deleted(settings.collection):
        raise Problem(Code.COLLECTION_DELETED, f"collection {settings.collection!r} was deleted")
    name = etag(settings)
    held = await desk.store.hold_settings(query_id, -1, name, HELD_SECONDS)
    if held is not Hold.OURS:
        if (there := await _there(desk, caller, settings)) is not None:  # somebody was faster
            return await _answer(desk, there)
        if (await desk.store.read_note(query_id)).quarantine is None:  # what cannot be computed may be put right
            raise Problem(
                ApiCode.QUERY_EXISTS, f"somebody has just asked for a query {query_id!r} with other settings"
            )
    return await _written_under(desk, name, settings, None, wait)


@router.get("/v1/queries/{query_id}", response_model=QueryAnswer)
async def show_query(opened: QueryOf, desk: DeskOf) -> Response:
    """A query's settings and state. The ETag is of the settings, for If-Match."""
    return await _answer(desk, opened)


@router.patch(
    "/v1/queries/{query_id}",
    response_model=QueryAnswer,
    responses={202: {"model": QueryAnswer}},
    openapi_extra=openapi.settings_body("A JSON merge patch (RFC 7396) of the settings.", patch=True),
)
async def change_query(
    opened: QueryOf, request: Request, desk: DeskOf, wait: WaitFor = WAIT_SECONDS, wanted: IfMatch = None
) -> Response:
    """Change settings: `{"status": "paused"}`, `{"top": 20}`; null takes the default.

    The watch-list is edited by name: `{"prior": {"participants": {"ann": 0.9, "bob": null}}}`. With If-Match
    nothing is changed where somebody else was faster.
    """
    if wanted not in {None, "*", etag(opened.settings)}:
        raise Problem(ApiCode.SETTINGS_CHANGED, f"the settings of query {opened.query_id!r} are not those any more")
    patch = _object(await request.body())
    if patch.get("status") == Status.DELETED:
        raise Problem(Code.INVALID_VALUE, "status: a query is deleted with DELETE")
    patched = _merged(orjson.loads(encode_query(opened.settings)), patch)
    settings = _settings(opened.query_id, patched)
    if settings.collection != opened.collection:
        raise Problem(Code.COLLECTION_CHANGED, f"query {opened.query_id!r} is on collection {opened.collection!r}")
    if settings.scope != opened.settings.scope:
        raise Problem(Code.SCOPE_CHANGED, f"query {opened.query_id!r} was opened with another scope, which stands")
    if settings == opened.settings:
        return await _answer(desk, opened)
    if wanted in {None, "*"}:
        return await _written(desk, settings, opened.head.partition, wait)
    return await _written_alone(desk, opened, settings, wait)


@router.delete("/v1/queries/{query_id}", response_model=Deleted, responses={202: {"model": Deleted}})
async def delete_query(opened: QueryOf, desk: DeskOf, wait: WaitFor = WAIT_SECONDS) -> Response:
    """Delete a query, its verdicts and its ranking, for good; its id is never used again. Kafka keeps the facts."""
    query_id, value = opened.query_id, encode_query(Settings(opened.query_id, status=Status.DELETED))
    await desk.facts.write("queries", query_id, value, partition=opened.head.partition)

    async def carried_out() -> bool:
        head = await desk.head(query_id)
        return head is not None and head.settings is not None and head.settings.status == Status.DELETED

    deleted = await until(carried_out, wait)
    return answer(Deleted(query_id=query_id, deleted=deleted), 200 if deleted else 202)


@router.post("/v1/queries/{query_id}/release", response_model=Released)
async def release_query(opened: QueryOf, desk: DeskOf) -> Response:
    """Let a query that is stopped try again. What came meanwhile counts then."""
    note = await desk.store.read_note(opened.query_id)
    await desk.store.release(opened.query_id)
    return answer(Released(query_id=opened.query_id, released=note.quarantine is not None))


def _object(body: bytes) -> dict[str, Any]:
    """The JSON object that the body is. Raises a `Problem`."""
    if len(body) > limits.MESSAGE_BYTES:
        raise Problem(Code.TOO_LARGE, f"the body has {len(body)} bytes, at most {limits.MESSAGE_BYTES} are taken")
    try:
        value = from_json(body or b"{}", allow_inf_nan=True)
    except ValueError as error:
        raise Problem(Code.MALFORMED_JSON, str(error)) from None
    if not isinstance(value, dict):
        raise Problem(Code.MALFORMED_JSON, "the body should be a JSON object")
    return value


def _settings(query_id: str, value: dict[str, Any]) -> Settings:
    """Raises a `Problem` where the wire would reject them."""
    if value.setdefault("query_id", query_id) != query_id:
        raise Problem(Code.KEY_MISMATCH, f"query_id: the path says {query_id!r}")
    try:
        return decode_query(to_json(value, inf_nan_mode="constants"), query_id.encode())
    except (ValueError, ValidationError) as error:
        if isinstance(error, Rejected):
            raise
        raise Problem(Code.MALFORMED_JSON, str(error)) from None


def _merged(target: Any, patch: Any) -> Any:
    """What RFC 7396 says."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged(merged.get(name), value)
    return merged


async def _there(desk: Desk, caller: Caller, settings: Settings) -> Opened | None:
    """The query with these settings; None where there is none of that id. Raises a `Problem` if it has others."""
    if await desk.head(settings.query_id) is None:
        return None
    there = await desk.opened(caller, settings.query_id)
    if there.settings != settings:
        detail = f"there is a query {settings.query_id!r} with other settings: PATCH changes it"
        if there.collection != settings.collection:
            detail = f"there is a query {settings.query_id!r}, on collection {there.collection!r}, which stands"
        elif there.settings.scope != settings.scope:
            detail = f"there is a query {settings.query_id!r} with another scope, which stands"
        raise Problem(ApiCode.QUERY_EXISTS, detail)
    return there


async def _written_alone(desk: Desk, opened: Opened, settings: Settings, wait: float) -> Response:
    """The same, where nobody else changes the settings at the same time. Raises a `Problem`."""
    query_id, name = opened.query_id, etag(settings)
    held = await desk.store.hold_settings(query_id, opened.head.position.queries_offset, name, HELD_SECONDS)
    if held is not Hold.OURS:
        raise Problem(ApiCode.SETTINGS_CHANGED, f"somebody else is changing the settings of query {query_id!r}")
    return await _written_under(desk, name, settings, opened.head.partition, wait)


async def _written_under(desk: Desk, name: str, settings: Settings, partition: int | None, wait: float) -> Response:
    """The same, under a hold of that name. Without a `partition` it is what opens the query."""
    query_id = settings.query_id

    async def written(offset: int | None) -> None:
        with suppress(StoreUnavailable):  # it ends by itself
            await desk.store.let_go_settings(query_id, name, offset)

    try:
        at = await desk.facts.write("queries", query_id, encode_query(settings), partition=partition)
    except Problem:
        await written(None)
        raise
    await written(at.offset)
    return await _applied(desk, settings, at, wait, created=partition is None)


async def _written(desk: Desk, settings: Settings, partition: int, wait: float) -> Response:
    """Write the settings, and wait until the worker has applied them."""
    at = await desk.facts.write("queries", settings.query_id, encode_query(settings), partition=partition)
    return await _applied(desk, settings, at, wait, created=False)


async def _applied(desk: Desk, settings: Settings, at: At, wait: float, *, created: bool) -> Response:
    """The answer once the worker has taken in what was written, or after so long."""
    query_id = settings.query_id

    async def applied() -> bool:
        head = await desk.head(query_id)
        return head is not None and head.position.queries_offset >= at.offset

    done = await until(applied, wait)
    head = await desk.head(query_id)
    if done and head is not None and head.settings is not None:
        return await _answer(desk, Opened(query_id, head.settings, head), 201 if created else 200)
    pending = QueryAnswer(
        query_id=query_id,
        state="running",
        partition=at.partition,
        revision=head.revision if head else 0,
        settings=orjson.loads(encode_query(settings)),
        applied=False,
    )
    return answer(pending, 202)


async def _answer(desk: Desk, opened: Opened, status: int = 200) -> Response:
    note = await desk.store.read_note(opened.query_id)
    why = note.quarantine
    shown = QueryAnswer(
        query_id=opened.query_id,
        state=_state(note),
        partition=opened.head.partition,
        revision=opened.head.revision,
        settings=orjson.loads(encode_query(opened.settings)),
        quarantine=None
        if why is None
        else QuarantineRecord(code=why.code, detail=why.detail, since=times.to_text(int(why.since * 1e6))),
    )
    return answer(shown, status, ETag=etag(opened.settings))


def _state(note: Note) -> State:
    if note.quarantine is not None:
        return "stopped"
    return "released" if note.passed.queries is not None else "running"


def _line(query_id: str, settings: Settings, head: Head, *, stopped: bool) -> QueryLine:
    return QueryLine(
        query_id=query_id,
        collection=settings.collection,
        status=settings.status,
        state="stopped" if stopped else "running",
        revision=head.revision,
        last_event_at=times.to_text(head.touched * 1000),
    )
