"""The routes of a query's ranking: once, as it comes, and how far the query is."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Request
from starlette.responses import Response, StreamingResponse

from haystream_service.api import openapi
from haystream_service.api.desk import Desk, Opened
from haystream_service.api.guards import DeskOf, GateOf, Limit, QueryLately, QueryOf, answer
from haystream_service.api.messages import Progress
from haystream_service.wire import NextItems, decode_ranking

router = APIRouter(tags=["rankings"])

QUIET_SECONDS = 15.0
"""Then a stream says that it is alive: proxies close what is silent for a minute."""
ASK_SECONDS = 1.0
"""For how long it is believed that whoever has a stream may still see it: a signature takes 0.1 ms to check."""
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="The ETag of a ranking: 304 while there is no newer one.")
]
LastEventId = Annotated[
    str, Header(alias="Last-Event-ID", description="The revision of the last ranking that came.")
]


@router.get(
    "/v1/queries/{query_id}/ranking", response_model=NextItems, responses={304: {"description": "As before."}}
)
async def show_ranking(
    opened: QueryLately, desk: DeskOf, limit: Limit = 1000, known: IfNoneMatch = None
) -> Response:
    """What to read next, as last saved: a value of the topic `next-items`. Its ETag is the revision."""
    raw = await _ranking(desk, opened)
    value = orjson.loads(raw)
    tag = f'"{value["revision"]}"'
    if known is not None and _names(known, tag):
        return Response(status_code=304, headers={"ETag": tag})
    if len(value["items"]) > limit:
        value["items"] = value["items"][:limit]
        raw = orjson.dumps(value)
    return Response(raw, headers={"ETag": tag}, media_type="application/json")


@router.get(
    "/v1/queries/{query_id}/ranking/stream",
    response_class=StreamingResponse,
    responses=openapi.stream("Server-sent events: `ranking`, whose id is the revision, and `deleted`."),
)
async def stream_ranking(
    opened: QueryOf, request: Request, desk: DeskOf, gate: GateOf, last: LastEventId = ""
) -> Response:
    """Every ranking as it comes, the newest first; with Last-Event-ID, only what is newer than that revision.

    It ends where the token is not taken any more.
    """
    after = int(last) if last.isdecimal() and len(last) <= 18 else -1
    headers = {"X-Accel-Buffering": "no"}  # or a proxy keeps what should be seen at once
    events = _events(desk, opened, after, partial(gate.still_sees, request, opened.collection))
    return StreamingResponse(events, headers=headers, media_type="text/event-stream")


@router.get("/v1/queries/{query_id}/progress", response_model=Progress)
async def show_progress(opened: QueryOf, desk: DeskOf) -> Response:
    """How far the query is, and what is expected to remain."""
    ranking = decode_ranking(await _ranking(desk, opened))
    in_scope = await desk.graphs.in_scope(opened.settings.view)
    return answer(
        Progress(
            query_id=opened.query_id,
            revision=ranking.revision,
            published_at=ranking.published_at,
            items=await desk.store.item_count(opened.collection) if in_scope is None else len(in_scope),
            screened=ranking.screened,
            found=ranking.found,
            leased=len(await desk.claims.live(opened.query_id)),
            expected_remaining=ranking.expected_remaining,
            discrepancy=ranking.discrepancy,
        )
    )


def _names(known: str, tag: str) -> bool:
    """Whether If-None-Match names the ETag, which a proxy that packs answers has made a weak one (`W/`)."""
    return known.strip() == "*" or tag in {one.strip().removeprefix("W/") for one in known.split(",")}


async def _ranking(desk: Desk, opened: Opened) -> bytes:
    raw = await desk.store.read_ranking(opened.query_id)
    if raw is None:
        raise await desk.missing(f"ranking of query {opened.query_id!r}")
    return raw


async def _events(
    desk: Desk, opened: Opened, after: int, still_sees: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    asked = monotonic()
    async with desk.watching.query(opened.query_id) as watched:
        yield b"retry: 1000\n\n"
        while not desk.stopping.is_set():
            moved = await watched.after(after, QUIET_SECONDS)
            if monotonic() - asked > ASK_SECONDS:
                if not await still_sees():
                    return
                asked = monotonic()
            if not moved:
                yield b": still here\n\n"
                continue
            after, ranking = watched.revision, watched.ranking
            if ranking is None:
                yield b"id: %d\nevent: deleted\ndata: {}\n\n" % after
                return
            # The ranking may be newer than the revision that was looked at before it.
            after = max(after, orjson.loads(ranking)["revision"])
            yield b"id: %d\nevent: ranking\ndata: %b\n\n" % (after, ranking)
