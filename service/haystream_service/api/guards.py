"""What a route asks for before it begins: who calls, what it may do, and the query that the path names."""

import math
from typing import Annotated, TypeVar, cast
from urllib.parse import unquote

from fastapi import Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator
from pydantic_core import ErrorDetails
from starlette.responses import Response

from haystream.errors import Rejected
from haystream_service.api.access import ROUTES, Access, Caller, Where
from haystream_service.api.desk import Desk, Opened
from haystream_service.api.problems import ApiCode, Problem
from haystream_service.api.rates import Rates
from haystream_service.api.tokens import Doorkeeper
from haystream_service.wire import limits, read_record
from haystream_service.wire.fields import Id, JsonObject
from haystream_service.wire.reading import rejection_of

FAILURES_A_SECOND = 5.0
"""Tokens that are not known, of one address."""
DOCUMENTS = frozenset({"/docs", "/openapi.json"})
"""What a browser may ask for with the token as a password."""

R = TypeVar("R", bound=JsonObject)


def _decoded(given: object) -> object:
    return unquote(given, errors="strict") if isinstance(given, str) else given


PathId = Annotated[Id, BeforeValidator(_decoded)]
"""An id in a path, percent-encoded there."""
Limit = Annotated[int, Query(ge=1, le=1000)]


class Gate:
    """Who may pass, and how often."""

    def __init__(self, doorkeeper: Doorkeeper, *, rate: float) -> None:
        self._doorkeeper = doorkeeper
        self._rates = Rates(rate, 2 * rate)
        self._failures = Rates(FAILURES_A_SECOND, 4 * FAILURES_A_SECOND)

    async def caller(self, request: Request) -> Caller:
        """Whoever calls, who may use this route, as far as the path says. Raises a `Problem`."""
        try:
            found = await self._known(request)
        except Problem as problem:
            if problem.code is ApiCode.UNAUTHENTICATED:
                _limit(self._failures, request.client.host if request.client else "")
            raise
        _limit(self._rates, found.subject)
        access = _access(request)
        found.check_roles(access)
        if access.where is Where.PATH:
            found.check(unquote(request.path_params["collection"]))
        return found

    async def still_sees(self, request: Request, collection: str) -> bool:
        """Whether whoever called may go on with this route, and with that collection: a key may be taken out of its
        file, and a signed token runs out. Where nobody can be asked who it is, it is as before.
        """
        try:
            found = await self._known(request)
            found.check_roles(_access(request))
        except Problem as problem:
            return problem.code is ApiCode.UNAVAILABLE
        return found.sees(collection)

    async def _known(self, request: Request) -> Caller:
        basic = request.scope["route"].path in DOCUMENTS
        return await self._doorkeeper.caller(request.headers.get("authorization"), basic=basic)


def _access(request: Request) -> Access:
    return ROUTES[f"{request.method} {request.scope['route'].path}"]


def _limit(rates: Rates, name: str) -> None:
    if wait := rates.wait(name):
        seconds = str(max(1, math.ceil(wait)))
        raise Problem(ApiCode.RATE_LIMITED, "more requests than are taken", headers={"Retry-After": seconds})


async def the_desk(request: Request) -> Desk:
    """What the routes work with. Not a plain function: of these each call takes a thread."""
    return cast(Desk, request.app.state.desk)


async def the_gate(request: Request) -> Gate:
    """What says who may pass."""
    return cast(Gate, request.app.state.gate)


async def the_caller(request: Request) -> Caller:
    """Whoever calls."""
    return await (await the_gate(request)).caller(request)


DeskOf = Annotated[Desk, Depends(the_desk)]
GateOf = Annotated[Gate, Depends(the_gate)]
CallerOf = Annotated[Caller, Depends(the_caller)]


async def the_query(query_id: PathId, caller: CallerOf, desk: DeskOf) -> Opened:
    """The query that the path names, as it is now."""
    return await desk.opened(caller, query_id)


async def the_query_lately(query_id: PathId, caller: CallerOf, desk: DeskOf) -> Opened:
    """The same; its settings may be a second old."""
    return await desk.opened(caller, query_id, fresh=False)


QueryOf = Annotated[Opened, Depends(the_query)]
QueryLately = Annotated[Opened, Depends(the_query_lately)]


async def body_of(record: type[R], request: Request) -> R:
    """The body, read as the wire reads a message. Raises `Rejected`."""
    return read_record(record, await request.body(), limit=limits.MESSAGE_BYTES)


def answer(value: BaseModel, status: int = 200, **headers: str) -> Response:
    """The value as the answer."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Response(value.model_dump_json(), status, headers=named, media_type="application/json")


def of_parameters(error: RequestValidationError) -> Problem:
    """What is wrong with a path or a parameter, as the wire would say it."""
    rejected: Rejected = rejection_of(cast(list[ErrorDetails], list(error.errors())))
    return Problem.of(rejected)
