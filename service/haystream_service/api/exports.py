"""The routes that hand out all of a query: its decisions, and the trail of who did what."""

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from haystream.events import Outcome, Verdict
from haystream_service.api import openapi
from haystream_service.api.desk import Desk, Opened
from haystream_service.api.guards import DeskOf, QueryOf
from haystream_service.wire import times

router = APIRouter(tags=["exports"])

Row = dict[str, Any]
Form = Annotated[Literal["ndjson", "csv"], Query(alias="format", description="An object a line, or a table.")]
DECISION = ("item_id", "outcome", "analyst", "decided_at", "verdict_id", "holds")
TRAIL = ("fact", "at", "analyst", "item_id", "action", "id", "until", "rank", "score", "mean", "level", "by")
TOPICS = ("leases", "verdicts")
MEDIA = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
ITEMS_AT_ONCE = 500
"""Looked up with one question to Redis."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""


@router.get(
    "/v1/queries/{query_id}/export/decisions",
    response_class=StreamingResponse,
    responses=openapi.export("Verdicts by item and time; `holds` marks the one that counts."),
)
async def export_decisions(opened: QueryOf, desk: DeskOf, form: Form = "ndjson") -> Response:
    """Every verdict that was given, and which of them hold."""
    stored = await desk.store.load_query(opened.query_id)
    verdicts = stored.verdicts if stored else ()
    in_scope = await desk.graphs.in_scope(opened.settings.view)
    withdrawn = await _withdrawn(desk, opened.collection, sorted({verdict.item_id for verdict in verdicts}))
    rows = _decisions(
        verdicts, lambda item_id: item_id not in withdrawn and (in_scope is None or item_id in in_scope)
    )
    return _file(_lines(_each(rows), DECISION, form), form)


@router.get(
    "/v1/queries/{query_id}/export/audit",
    response_class=StreamingResponse,
    responses=openapi.export("Facts in the order in which Kafka has them, topic by topic."),
)
async def export_audit(opened: QueryOf, desk: DeskOf, form: Form = "ndjson") -> Response:
    """Who was handed what, when, at which score, and what they said of it: read from Kafka, so it takes a while."""
    rows = _trail(desk, opened)
    # Before the answer begins: afterwards nobody could be told that Kafka is away.
    first = await anext(rows, None)
    return _file(_lines(_after(first, rows), TRAIL, form), form)


async def _withdrawn(desk: Desk, collection: str, item_ids: Sequence[str]) -> set[str]:
    """Those of the items that were taken back."""
    gone: set[str] = set()
    for start in range(0, len(item_ids), ITEMS_AT_ONCE):
        some = item_ids[start : start + ITEMS_AT_ONCE]
        known = zip(some, await desk.store.find_items(collection, some), strict=True)
        gone |= {item_id for item_id, item in known if item is not None and item.withdrawn}
    return gone


def _decisions(verdicts: Iterable[Verdict], counts: Callable[[str], bool]) -> Iterator[Row]:
    """The verdicts as rows, by item and time; `counts`: whether those on an item, by its id, count at all."""
    ordered = sorted(verdicts, key=lambda verdict: (verdict.item_id, verdict.decided_at, verdict.verdict_id))
    last = {verdict.item_id: verdict.verdict_id for verdict in ordered}
    for verdict in ordered:
        yield {
            "item_id": verdict.item_id,
            "outcome": verdict.outcome.value,
            "analyst": verdict.analyst,
            "decided_at": times.to_text(verdict.decided_at),
            "verdict_id": verdict.verdict_id,
            "holds": last[verdict.item_id] == verdict.verdict_id
            and verdict.outcome != Outcome.RETRACTED
            and counts(verdict.item_id),
        }


async def _lines(
    rows: AsyncIterator[Mapping[str, Any]], columns: tuple[str, ...], form: str
) -> AsyncIterator[bytes]:
    if form == "csv":
        yield _cells(columns)
    async for row in rows:
        yield _line(row, columns, form)


async def _each(rows: Iterable[Row]) -> AsyncIterator[Row]:
    for row in rows:
        yield row


async def _after(first: Row | None, rows: AsyncIterator[Row]) -> AsyncIterator[Row]:
    """The rows with the first one, which was read already; None where there was none."""
    if first is not None:
        yield first
    async for row in rows:
        yield row


async def _trail(desk: Desk, opened: Opened) -> AsyncIterator[Row]:
    """The facts as rows. Raises `BrokerUnavailable`."""
    for topic in TOPICS:
        async for value in desk.facts.history(topic, opened.query_id, opened.head.partition):
            row = _fact(topic, value)
            if row is not None:
                yield row


def _fact(topic: str, value: bytes) -> Row | None:
    """The fact as a row; None where the record is none, and was rejected."""
    try:
        fact = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fact, dict):
        return None
    if topic == "verdicts":
        names = {"at": "decided_at", "action": "outcome", "id": "verdict_id"}
        kind = "verdict"
    else:
        names = {"id": "lease_id"}
        kind = "lease"
    row = {name: fact.get(names.get(name, name)) for name in TRAIL}
    return {**row, "fact": kind}


def _line(row: Mapping[str, Any], columns: tuple[str, ...], form: str) -> bytes:
    if form == "csv":
        return _cells(row[name] for name in columns)
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def _cells(values: Iterable[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow([_cell(value) for value in values])
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    """The value for a spreadsheet, which is not to take an id for a formula."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return "" if value is None else value


def _file(lines: AsyncIterator[bytes], form: str) -> Response:
    return StreamingResponse(lines, media_type=MEDIA[form], headers={"Content-Disposition": "attachment"})
