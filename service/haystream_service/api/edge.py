"""What every request passes, before and after its route: two ASGI middlewares.

The outer one names the request (correlation id) and counts it. The inner one bounds its body, keeps pages of other
origins from writing, and turns what no route has caught into an answer without a traceback. Between them is what
answers preflights, and lets pages of other origins read all answers but its own.
"""

import asyncio
import logging
import re
from collections.abc import Collection
from time import perf_counter
from urllib.parse import urlsplit
from uuid import uuid4

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from haystream.errors import Code
from haystream_service.api.problems import ApiCode, Problem, unavailable
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.logs import CORRELATION
from haystream_service.metrics import ApiMetrics
from haystream_service.store.base import StoreDamaged, StoreUnavailable

log = logging.getLogger(__name__)

CORRELATION_HEADER = b"x-correlation-id"
READING = frozenset({"GET", "HEAD", "OPTIONS"})
BODY_BYTES = 1 << 20
"""Of a request that is not of items: what the wire takes as one message."""
BODY_SECONDS = 30.0
"""For the next piece of a body to come."""
NO_ROUTE = "none"
"""The `route` label of a request that no route answers."""
_NAMES = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


class Edge:
    """The outer middleware."""

    def __init__(self, app: ASGIApp, *, metrics: ApiMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Paths are matched as they were sent, so that an id may hold a slash (%2F); `guards` decodes ids.
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        headers = dict(scope["headers"])
        correlation = _correlation(headers)
        named = CORRELATION.set(correlation)
        began, status = perf_counter(), 500
        method, head = scope["method"], scope["method"] == "HEAD"
        if head:
            scope = {**scope, "method": "GET"}

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", ()),
                    (CORRELATION_HEADER, correlation.encode()),
                    (b"cache-control", b"no-store"),
                    (b"x-content-type-options", b"nosniff"),
                ]
            await send(message)

        try:
            if head:
                await _without_body(self._app, scope, receive, answer)
            else:
                await self._app(scope, receive, answer)
        finally:
            route = getattr(scope.get("route"), "path", NO_ROUTE)
            self._metrics.api_requests.labels(method if route != NO_ROUTE else "", route, str(status)).inc()
            if "text/event-stream" not in str(headers.get(b"accept", b"")):
                self._metrics.api_request.labels(route).observe(perf_counter() - began)
            CORRELATION.reset(named)


async def _without_body(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with what is above the body. Of that, which may be long or never end, no more is made."""
    started = asyncio.Event()

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            started.set()

    answering = asyncio.ensure_future(app(scope, receive, answer))
    waiting = asyncio.ensure_future(started.wait())
    try:
        await asyncio.wait({answering, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not started.is_set():
            answering.result()
        await send({"type": "http.response.body"})
    finally:
        for task in (answering, waiting):
            task.cancel()
        await asyncio.gather(answering, waiting, return_exceptions=True)


class Guarded:
    """The inner middleware. `origins` may write beside the API's own."""

    def __init__(self, app: ASGIApp, *, metrics: ApiMetrics, origins: Collection[str], item_bytes: int) -> None:
        self._app = app
        self._metrics = metrics
        self._origins = frozenset(origins)
        self._item_bytes = item_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, started = dict(scope["headers"]), False

        async def answer(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            self._check_origin(scope["method"], headers)
            body = _Body(receive, self._most(scope["path"]), headers)
            await self._app(scope, body, answer)
        except Exception as error:
            if started:
                log.warning("a request was broken off: %r", error)
                raise
            await self._problem(error).response()(scope, receive, answer)

    def _problem(self, error: Exception) -> Problem:
        if isinstance(error, Problem):
            return error
        if isinstance(error, ClientDisconnect):  # nobody reads it, but it is counted
            return Problem(Code.MALFORMED_JSON, "the client went before all of the body had come")
        server = {StoreUnavailable: "redis", BrokerUnavailable: "kafka"}
        for kind, name in server.items():
            if isinstance(error, kind):
                self._metrics.server_errors.labels(name).inc()
                log.warning("%s", error)
                return unavailable(
                    f"{name.capitalize()} does not answer just now; nothing that you sent is lost by "
                    "sending it again"
                )
        if isinstance(error, StoreDamaged):
            self._metrics.server_errors.labels("redis").inc()
            log.error("%s", error)
            return unavailable("Redis does not hold what was written there; a person has to mend that")
        log.error("a bug", exc_info=error)
        return Problem(ApiCode.INTERNAL, "this is a bug of ours; the log has it under the correlation id")

    def _check_origin(self, method: str, headers: dict[bytes, bytes]) -> None:
        """Raise a `Problem` where a page of another origin would write: a browser says so by itself."""
        if method in READING:
            return
        origin = headers.get(b"origin", b"").decode("latin-1")
        own = headers.get(b"host", b"").decode("latin-1")
        foreign = bool(origin) and origin not in self._origins and urlsplit(origin).netloc != own
        crossed = headers.get(b"sec-fetch-site", b"") == b"cross-site" and origin not in self._origins
        if foreign or crossed:
            raise Problem(ApiCode.CROSS_ORIGIN, f"a page of {origin or 'another origin'} may not write here")

    def _most(self, path: str) -> int:
        return self._item_bytes if path.startswith("/v1/collections/") else BODY_BYTES


class _Body:
    """`receive` that ends with a `Problem` where the body is too large, or stops coming."""

    def __init__(self, receive: Receive, most: int, headers: dict[bytes, bytes]) -> None:
        self._receive = receive
        self._most = most
        self._came = 0
        self._ended = False
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > most:
            raise self._too_large()

    def _too_large(self) -> Problem:
        return Problem(
            Code.TOO_LARGE, f"the body has more than {self._most} bytes", headers={"Connection": "close"}
        )

    async def __call__(self) -> Message:
        if self._ended:
            return await self._receive()  # which says when the client has gone
        try:
            message = await asyncio.wait_for(self._receive(), BODY_SECONDS)
        except TimeoutError:
            raise Problem(Code.MALFORMED_JSON, f"no more of the body came for {BODY_SECONDS:g} seconds") from None
        if message["type"] == "http.request":
            self._came += len(message.get("body", b""))
            self._ended = not message.get("more_body", False)
            if self._came > self._most:
                raise self._too_large()
        return message


def _correlation(headers: dict[bytes, bytes]) -> str:
    given = headers.get(CORRELATION_HEADER, b"").decode("latin-1")
    return given if _NAMES.fullmatch(given) else uuid4().hex
