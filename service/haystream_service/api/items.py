"""The routes of a collection's items: many in, one out."""

import asyncio
from codecs import BOM_UTF8

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from haystream.errors import Code, Rejected
from haystream.events import Item
from haystream_service.api import openapi
from haystream_service.api.contents import Contents, unread
from haystream_service.api.desk import Desk
from haystream_service.api.guards import CallerOf, DeskOf, PathId, answer
from haystream_service.api.messages import Ingested, ItemAnswer, RejectedLine
from haystream_service.api.problems import ApiCode, Problem, unavailable
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.wire import ItemRecord, encode_record, limits, read_record, times
from haystream_service.wire.decoding import to_item_fact
from haystream_service.wire.records import ErrorRecord

router = APIRouter(tags=["items"])

MOST_LINES = 10_000
"""Of one body: some seconds of Kafka's time."""
READ_AT_ONCE = 20
"""Lines that are read between two looks at whom else to serve: some 2 ms."""
ITEMS_AT_ONCE = 500
"""Items that are written before their acknowledgement is waited for."""


@router.post(
    "/v1/collections/{collection}/items", response_model=Ingested, openapi_extra=openapi.ndjson_body(ItemRecord)
)
async def send_items(collection: PathId, request: Request, caller: CallerOf, desk: DeskOf) -> Response:
    """Send items, one JSON object a line. Kafka has all that are accepted; each line that is no item is answered.

    To send the same once more changes nothing, so after a 503 send all of it again.
    """
    lines = (await request.body()).removeprefix(BOM_UTF8).split(b"\n")
    if len(lines) > MOST_LINES + 1:
        raise Problem(Code.TOO_LARGE, f"the body has more than {MOST_LINES} lines: send it in parts")
    if await desk.store.is_deleted(collection):
        raise Problem(Code.COLLECTION_DELETED, f"collection {collection!r} was deleted")
    records: list[tuple[str, bytes]] = []
    rejected: list[RejectedLine] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                record = _item(line, collection)
            except Rejected as problem:
                error = ErrorRecord(code=problem.code, detail=problem.detail)
                rejected.append(RejectedLine(line=number, error=error))
            else:
                records.append((record.item_id, encode_record(record)))
        if number % READ_AT_ONCE == 0:
            await asyncio.sleep(0)
    for start in range(0, len(records), ITEMS_AT_ONCE):
        await desk.facts.write_items(records[start : start + ITEMS_AT_ONCE])
    return answer(Ingested(accepted=len(records), rejected=tuple(rejected)))


@router.get("/v1/collections/{collection}/items/{item_id}", response_model=ItemAnswer)
async def show_item(collection: PathId, item_id: PathId, caller: CallerOf, desk: DeskOf) -> Response:
    """An item: who is on it, when it was sent, where it can be opened, what it says.

    Subject and text are read from Kafka. Of an item that was withdrawn nothing is told but that.
    """
    item = await find_item(desk, collection, item_id)
    try:
        contents = await desk.contents.read(item)
    except BrokerUnavailable as error:
        raise unavailable(str(error)) from None
    return answer(as_answer(item, contents))


async def find_item(desk: Desk, collection: str, item_id: str) -> Item:
    """What is known of the item. Raises a `Problem` where nothing is, or it was withdrawn."""
    found = await desk.store.find_item(collection, item_id)
    if found is None:
        raise await desk.missing(f"item {item_id!r}")
    if found.withdrawn:
        raise Problem(ApiCode.WITHDRAWN, f"item {item_id!r} was withdrawn")
    assert isinstance(found, Item)
    return found


def as_answer(item: Item, contents: Contents | None = None) -> ItemAnswer:
    """The item as it is told; by default without what it says."""
    roles, said = item.sender is not None, contents or unread(item)
    return ItemAnswer(
        item_id=item.item_id,
        collection=item.collection,
        sender=item.sender,
        recipients=item.participants if roles else None,
        participants=None if roles else item.participants,
        sent_at=None if item.sent_at is None else times.to_text(item.sent_at),
        uri=item.uri,
        labels={key: orjson.loads(value) for key, value in item.labels},
        contents=said.state,
        subject=said.subject,
        text=said.text,
    )


def _item(line: bytes, collection: str) -> ItemRecord:
    """The item on the line, in this collection. Raises `Rejected`."""
    record = read_record(ItemRecord, line, limit=limits.MESSAGE_BYTES)
    if "collection" in record.model_fields_set and record.collection != collection:
        raise Rejected(Code.INVALID_VALUE, f"collection: the path says {collection!r}")
    record = record.model_copy(update={"collection": collection})
    to_item_fact(record)
    return record
