"""The routes of who has which item: take the next, keep it, give it back.

A claim is one step of the store. What happened is told to Kafka behind the answer's back, from the query's outbox;
where this process dies before that, the query's owner does it.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from haystream.errors import Code
from haystream.events import Item, LeaseFact, Status
from haystream_service.api import openapi
from haystream_service.api.access import Role
from haystream_service.api.desk import Desk, Opened, until
from haystream_service.api.guards import CallerOf, DeskOf, PathId, QueryLately, answer, body_of
from haystream_service.api.items import as_answer
from haystream_service.api.messages import ClaimBody, ExtendBody, ItemAnswer, LeaseAnswer, Leases
from haystream_service.api.problems import ApiCode, Problem, not_found, unavailable
from haystream_service.store.claims import ClaimCode, ClaimRefused
from haystream_service.wire import times
from haystream_service.wire.fields import Id

router = APIRouter(tags=["claims"])

RANKED_SECONDS = 2.0
"""For the worker to rank more, where all that is ranked is leased: milliseconds, unless it is away."""

CLAIM_ROUNDS = 3
"""How often more is claimed in place of items that were withdrawn, or put out of scope, just now: the worker takes
these out in milliseconds."""

Analyst = Annotated[Id | None, Query(description="Whose lease it is, where a lead acts for another.")]


With = Annotated[
    Literal["text"] | None, Query(alias="with", description="text: each lease has its item, subject and text.")
]


@router.post("/v1/queries/{query_id}/claims", response_model=Leases, openapi_extra=openapi.json_body(ClaimBody))
async def claim_items(
    opened: QueryLately, request: Request, caller: CallerOf, desk: DeskOf, with_: With = None
) -> Response:
    """Take the next items: the best that nobody has and nobody has judged. None where none is left.

    A claim whose answer was lost is safe to send again with `known`, the leases that the caller knows of: others
    that it has are answered first. With `with=text` each lease has its item, with what that says as far as an
    answer has room for it and Kafka answers.
    """
    body = await body_of(ClaimBody, request)
    analyst = caller.name(body.analyst)
    if opened.settings.status != Status.OPEN:
        raise Problem(ApiCode.QUERY_NOT_OPEN, f"query {opened.query_id!r} is {opened.settings.status}")
    lost: list[LeaseFact] = []
    if body.known is not None:
        live = await desk.claims.live(opened.query_id)
        lost = [lease for lease in live if lease.analyst == analyst and lease.lease_id not in body.known]
        lost.sort(key=lambda lease: (lease.at, lease.rank or 0))
    try:
        given = (await _servable(desk, opened, lost))[: body.count]
        if len(given) < body.count:
            given += await _new(desk, opened, analyst, body.count - len(given), body.seconds)
    finally:
        desk.outbox.tell(opened.query_id)
    said = await desk.contents.read_some([item for _, item in given]) if with_ else [None] * len(given)
    leases = [
        _answer(lease, as_answer(item, contents) if contents else None)
        for (lease, item), contents in zip(given, said, strict=True)
    ]
    return answer(Leases(query_id=opened.query_id, leases=tuple(leases)))


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
    body = await body_of(ExtendBody, request)
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


async def _new(
    desk: Desk, opened: Opened, analyst: str, count: int, seconds: float
) -> list[tuple[LeaseFact, Item]]:
    """Claim so many that may be served. Raises a `Problem`.

    Items that were withdrawn, or put out of scope, a moment ago may still be on offer. They are held until others
    are found, so that the same are not offered again, and then given back: nobody is told of them.
    """
    given: list[tuple[LeaseFact, Item]] = []
    held: list[LeaseFact] = []
    try:
        for _ in range(CLAIM_ROUNDS):
            found = await _claimed(desk, opened, analyst, count - len(given), seconds)
            servable = await _servable(desk, opened, found)
            given += servable
            held += [lease for lease in found if all(lease is not given_one for given_one, _ in servable)]
            if len(servable) == len(found):
                break
        else:
            if not given:  # it is not known that there are none
                raise unavailable("what is on offer was withdrawn, or put out of scope, just now")
    except Problem:
        if not given:
            raise
    finally:
        for lease in held:
            with suppress(ClaimRefused):
                await desk.claims.release(opened.query_id, lease.lease_id, analyst)
    return given


async def _servable(desk: Desk, opened: Opened, leases: Sequence[LeaseFact]) -> list[tuple[LeaseFact, Item]]:
    """Those of the leases whose item was not withdrawn, and is in the query's scope by what is known of it now."""
    scope = opened.settings.scope
    found = await desk.store.find_items(opened.collection, [lease.item_id for lease in leases])
    return [
        (lease, item)
        for lease, item in zip(leases, found, strict=True)
        if isinstance(item, Item) and not item.withdrawn and (scope is None or scope.admits(item))
    ]


async def _claimed(desk: Desk, opened: Opened, analyst: str, count: int, seconds: float) -> list[LeaseFact]:
    """Claim, and wait a little where more has to be ranked first. Raises a `Problem`."""
    found: list[LeaseFact] = []
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
        case ClaimCode.QUERY_DELETED:
            return Problem(Code.QUERY_DELETED, refused.detail)
        # One that is unknown was there a moment ago, and nothing but a loss of Redis takes a query away.
        case ClaimCode.UNKNOWN_QUERY | ClaimCode.REBUILDING | ClaimCode.NOT_RANKED_YET:
            return unavailable(refused.detail)
        case ClaimCode.UNKNOWN_LEASE:
            return not_found("such lease")
        case ClaimCode.LEASE_OVER:
            return Problem(ApiCode.LEASE_OVER, refused.detail)
        case ClaimCode.NOT_YOURS:
            return Problem(ApiCode.FORBIDDEN, "another analyst has the lease")


def _answer(lease: LeaseFact, item: ItemAnswer | None = None) -> LeaseAnswer:
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
        item=item,
    )
