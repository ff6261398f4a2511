"""The routes of who has which item: take the next, keep it, give it back.

A claim is one step of the store. What happened is told to Kafka behind the answer's back, from the query's outbox;
where this process dies before that, the query's owner does it.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from haystream.errors import Code
from haystream.events import Status
from haystream_service.api import openapi
from haystream_service.api.access import Role
from haystream_service.api.desk import Desk, Opened, until
from haystream_service.api.guards import CallerOf, DeskOf, PathId, QueryLately, answer, body_of
from haystream_service.api.messages import ClaimBody, ExtendBody, LeaseAnswer, Leases
from haystream_service.api.problems import ApiCode, Problem, not_found, unavailable
from haystream_service.store.claims import ClaimCode, ClaimRefused, Lease
from haystream_service.wire import times
from haystream_service.wire.fields import Id

router = APIRouter(tags=["claims"])

RANKED_SECONDS = 2.0
"""For the worker to rank more, where all that is ranked is leased: milliseconds, unless it is away."""

Analyst = Annotated[Id | None, Query(description="Whose lease it is, where a lead acts for another.")]


@router.post("/v1/queries/{query_id}/claims", response_model=Leases, openapi_extra=openapi.json_body(ClaimBody))
async def claim_items(opened: QueryLately, request: Request, caller: CallerOf, desk: DeskOf) -> Response:
    """Take the next items: the best that nobody has and nobody has judged. None where none is left.

    A claim whose answer was lost is safe to send again with `known`, the leases that the caller knows of: others
    that it has are answered first.
    """
    body = await body_of(ClaimBody, request, desk)
    analyst = caller.name(body.analyst)
    if opened.settings.status != Status.OPEN:
        raise Problem(ApiCode.QUERY_NOT_OPEN, f"query {opened.query_id!r} is {opened.settings.status}")
    lost: list[Lease] = []
    if body.known is not None:
        live = await desk.claims.live(opened.query_id)
        lost = [lease for lease in live if lease.analyst == analyst and lease.lease_id not in body.known]
        lost.sort(key=lambda lease: (lease.at, lease.rank or 0))
    new: list[Lease] = []
    if len(lost) < body.count:
        new = await _claimed(desk, opened, analyst, body.count - len(lost), body.seconds)
    desk.outbox.tell(opened.query_id)
    return answer(Leases(query_id=opened.query_id, leases=tuple(map(_answer, [*lost[: body.count], *new]))))


@router.get("/v1/queries/{query_id}/leases", response_model=Leases)
async def list_leases(opened: QueryLately, caller: CallerOf, desk: DeskOf) -> Response:
    """Leases that are not over: one's own, or, for a lead, everybody's. Those that end first come first."""
    live = await desk.claims.live(opened.query_id)
    mine = [lease for lease in live if Role.LEAD in caller.roles or lease.analyst == caller.subject]
    mine.sort(key=lambda lease: (lease.until, lease.rank or 0))
    return answer(Leases(query_id=opened.query_id, leases=tuple(map(_answer, mine))))


@router.post(
    "/v1/queries/{query_id}/leases/{lease_id}/extend",
    response_model=LeaseAnswer,
    openapi_extra=openapi.json_body(ExtendBody),
)
async def extend_lease(
    opened: QueryLately, lease_id: PathId, request: Request, caller: CallerOf, desk: DeskOf, analyst: Analyst = None
) -> Response:
    """Keep an item for so long from now."""
    body = await body_of(ExtendBody, request, desk)
    try:
        lease = await desk.claims.extend(opened.query_id, lease_id, caller.name(analyst), body.seconds)
    except ClaimRefused as refused:
        raise _problem(refused) from None
    desk.outbox.tell(opened.query_id)
    return answer(_answer(lease))


@router.delete("/v1/queries/{query_id}/leases/{lease_id}", response_model=LeaseAnswer)
async def release_lease(
    opened: QueryLately, lease_id: PathId, caller: CallerOf, desk: DeskOf, analyst: Analyst = None
) -> Response:
    """Give an item back, unread. After a verdict it need not be said: that ends the lease."""
    try:
        lease = await desk.claims.release(opened.query_id, lease_id, caller.name(analyst))
    except ClaimRefused as refused:
        raise _problem(refused) from None
    desk.outbox.tell(opened.query_id)
    return answer(_answer(lease))


async def _claimed(desk: Desk, opened: Opened, analyst: str, count: int, seconds: float) -> list[Lease]:
    """Claim, and wait a little where more has to be ranked first. Raises a `Problem`."""
    found: list[Lease] = []
    refused: ClaimRefused | None = None

    async def claimed() -> bool:
        nonlocal found, refused
        try:
            found = await desk.claims.claim(opened.query_id, analyst, count, seconds)
        except ClaimRefused as why:
            refused = why
            return why.code is not ClaimCode.NOT_RANKED_YET
        refused = None
        return True

    await until(claimed, RANKED_SECONDS)
    if refused is not None:
        raise _problem(refused)
    return found


def _problem(refused: ClaimRefused) -> Problem:
    match refused.code:
        case ClaimCode.UNKNOWN_QUERY:
            return Problem(Code.UNKNOWN_QUERY, refused.detail)
        case ClaimCode.QUERY_DELETED:
            return Problem(Code.QUERY_DELETED, refused.detail)
        case ClaimCode.REBUILDING | ClaimCode.NOT_RANKED_YET:
            return unavailable(refused.detail)
        case ClaimCode.UNKNOWN_LEASE:
            return not_found("such lease")
        case ClaimCode.LEASE_OVER:
            return Problem(ApiCode.LEASE_OVER, refused.detail)
        case ClaimCode.NOT_YOURS:
            return Problem(ApiCode.FORBIDDEN, "another analyst has the lease")


def _answer(lease: Lease) -> LeaseAnswer:
    return LeaseAnswer(
        lease_id=lease.lease_id,
        query_id=lease.query_id,
        item_id=lease.item_id,
        analyst=lease.analyst,
        at=times.to_text(lease.at),
        until=times.to_text(lease.until),
        rank=lease.rank,
        score=lease.score,
        mean=lease.mean,
        level=lease.level,
        by=lease.by,
    )
