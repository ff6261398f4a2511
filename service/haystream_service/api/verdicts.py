"""The routes of verdicts: give one, see it, take it back."""

from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from haystream.errors import Code
from haystream.events import Outcome, Verdict
from haystream_service.api import openapi
from haystream_service.api.access import Caller, Role
from haystream_service.api.desk import Desk, Opened, until
from haystream_service.api.guards import CallerOf, DeskOf, PathId, QueryLately, answer, body_of
from haystream_service.api.messages import WAIT_SECONDS, VerdictAnswer, VerdictBody, Wait
from haystream_service.api.problems import Problem
from haystream_service.wire import VerdictRecord, encode_verdict, read_record, to_verdict
from haystream_service.wire.fields import ID_LENGTH

router = APIRouter(tags=["verdicts"])

AHEAD_SECONDS = 300.0
"""By how much an analyst's clock may be ahead: the latest verdict holds, and one from next year would for long."""
UNDONE = "/undone"
"""Ends the id of the verdict that takes another back."""
KNOWN_SECONDS = 2.0
"""For a verdict that was given just now to be known, so that it can be taken back."""

For = Annotated[
    Literal["kafka", "ranking"],
    Query(alias="wait", description="Answer when Kafka has it, or when the ranking reflects it."),
]
Seconds = Annotated[Wait, Query(alias="wait_seconds", description="Of waiting for the ranking, at most.")]


@router.put(
    "/v1/queries/{query_id}/verdicts/{verdict_id}",
    response_model=VerdictAnswer,
    responses={201: {"model": VerdictAnswer}, 202: {"model": VerdictAnswer}},
    openapi_extra=openapi.json_body(VerdictBody),
)
async def give_verdict(
    opened: QueryLately,
    verdict_id: PathId,
    request: Request,
    caller: CallerOf,
    desk: DeskOf,
    wait: For = "kafka",
    seconds: Seconds = WAIT_SECONDS,
) -> Response:
    """Give a verdict. The same once more changes nothing; another under its id is a conflict.

    To change one's mind is another verdict on the item, later, under an id of its own. 201: Kafka has it. 200: it
    was there. 202: Kafka has it, and the ranking that was to be waited for did not come in time.
    """
    body = await body_of(VerdictBody, request)
    verdict = to_verdict(
        VerdictRecord(
            verdict_id=verdict_id,
            query_id=opened.query_id,
            item_id=body.item_id,
            analyst=caller.name(body.analyst),
            outcome=body.outcome,
            decided_at=body.decided_at,
        )
    )
    if verdict.decided_at > (desk.now() + AHEAD_SECONDS) * 1e6:
        raise Problem(Code.OUT_OF_RANGE, f"decided_at: {body.decided_at} is in the future")
    return await _given(desk, opened, verdict, wait, seconds)


@router.get("/v1/queries/{query_id}/verdicts/{verdict_id}", response_model=VerdictAnswer)
async def show_verdict(opened: QueryLately, verdict_id: PathId, caller: CallerOf, desk: DeskOf) -> Response:
    """A verdict that counts: one's own, or, for a lead, anybody's."""
    verdict = await desk.store.read_verdict(opened.query_id, verdict_id)
    if verdict is None or not _own(caller, verdict):
        raise await desk.missing(f"verdict {verdict_id!r}")
    return await _answer(desk, verdict, known=True, ranked=True)


@router.delete(
    "/v1/queries/{query_id}/verdicts/{verdict_id}",
    response_model=VerdictAnswer,
    responses={201: {"model": VerdictAnswer}, 202: {"model": VerdictAnswer}},
)
async def undo_verdict(
    opened: QueryLately,
    verdict_id: PathId,
    caller: CallerOf,
    desk: DeskOf,
    wait: For = "kafka",
    seconds: Seconds = WAIT_SECONDS,
) -> Response:
    """Take a verdict back: the item is as if nothing had been said of it, unless something was said later.

    What is written is a verdict, too, with the outcome `retracted`, a microsecond after the one that it takes back.
    """
    found: Verdict | None = None

    async def known() -> bool:
        nonlocal found
        found = await desk.store.read_verdict(opened.query_id, verdict_id)
        return found is not None

    await until(known, KNOWN_SECONDS)
    if found is None or not _own(caller, found):
        raise await desk.missing(f"verdict {verdict_id!r}")
    if found.outcome == Outcome.RETRACTED:
        raise Problem(Code.INVALID_VALUE, f"verdict {verdict_id!r} takes one back itself: decide anew")
    retraction = replace(
        found, verdict_id=_undoing(verdict_id), outcome=Outcome.RETRACTED, decided_at=found.decided_at + 1
    )
    _record(retraction)  # a later time may be too late
    return await _given(desk, opened, retraction, wait, seconds)


def _undoing(verdict_id: str) -> str:
    """The id of the verdict that takes this one back: the same whenever it is asked for."""
    if len(verdict_id) + len(UNDONE) > ID_LENGTH:
        verdict_id = sha256(verdict_id.encode()).hexdigest()
    return verdict_id + UNDONE


async def _given(desk: Desk, opened: Opened, verdict: Verdict, wait: str, seconds: float) -> Response:
    """Write the verdict unless it is known, and wait for what is to be waited for."""

    async def counts() -> bool:
        known = await desk.store.read_verdict(opened.query_id, verdict.verdict_id)
        if known not in {None, verdict}:
            raise Problem(Code.VERDICT_CONFLICT, f"verdict {verdict.verdict_id!r} is known with other content")
        return known is not None

    if await counts():
        return await _answer(desk, verdict, known=True, ranked=True)
    await desk.facts.write("verdicts", opened.query_id, encode_verdict(verdict), partition=opened.head.partition)
    if wait == "kafka":
        return await _answer(desk, verdict, known=False, ranked=False, status=201)
    if await until(counts, seconds):
        return await _answer(desk, verdict, known=False, ranked=True, status=201)
    note = await desk.store.read_note(opened.query_id)
    if note.quarantine is not None:
        raise Problem(
            Code.QUARANTINED,
            f"the verdict is kept, and counts once query {opened.query_id!r} is released, which is stopped: "
            f"{note.quarantine.detail}",
        )
    return await _answer(desk, verdict, known=False, ranked=False, status=202)


async def _answer(desk: Desk, verdict: Verdict, *, known: bool, ranked: bool, status: int = 200) -> Response:
    revision = await desk.store.read_revision(verdict.query_id) if ranked else None
    return answer(VerdictAnswer(verdict=_record(verdict), known=known, ranked=ranked, revision=revision), status)


def _record(verdict: Verdict) -> VerdictRecord:
    """The verdict as the wire has it. Raises `Rejected`."""
    return read_record(VerdictRecord, encode_verdict(verdict), limit=1 << 20)


def _own(caller: Caller, verdict: Verdict) -> bool:
    return Role.LEAD in caller.roles or verdict.analyst == caller.subject
