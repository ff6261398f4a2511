"""What can be wrong with a request, as a problem (RFC 9457) with a code: the wire's where that has one."""

from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus

import orjson
from starlette.responses import Response

from haystream.errors import Code, Rejected
from haystream_service.logs import CORRELATION

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1
"""When to try again, where a server was away: it comes back in seconds, or not for a long time."""


class ApiCode(StrEnum):
    """What the wire has no code for."""

    UNAUTHENTICATED = "unauthenticated"
    """No token, or none that is known."""
    FORBIDDEN = "forbidden"
    """The token's roles, or its collections, do not allow it."""
    CROSS_ORIGIN = "cross_origin"
    """A page of another origin may not write."""
    NOT_FOUND = "not_found"
    """There is no such thing, or it is in a collection that the token may not see."""
    METHOD_NOT_ALLOWED = "method_not_allowed"
    """The address is known, the method is not."""
    QUERY_EXISTS = "query_exists"
    """There is a query of that id, with other settings."""
    QUERY_NOT_OPEN = "query_not_open"
    """The query is paused or closed: nothing is offered for reading."""
    WITHDRAWN = "withdrawn"
    """The item was taken back: nobody is shown it any more."""
    LEASE_OVER = "lease_over"
    """The lease is over: released, run out, or ended by a verdict."""
    SETTINGS_CHANGED = "settings_changed"
    """The settings are not those that If-Match names."""
    RATE_LIMITED = "rate_limited"
    """More requests than are taken from one subject; Retry-After says when the next one is."""
    UNAVAILABLE = "unavailable"
    """Kafka or Redis does not answer, or what was asked is being prepared: try again after Retry-After."""
    INTERNAL = "internal"
    """A bug of ours; the log has it under the correlation id."""


_STATUS: Mapping[str, int] = {
    Code.MALFORMED_JSON: 400,
    Code.TOO_LARGE: 413,
    Code.ITEM_CONFLICT: 409,
    Code.VERDICT_CONFLICT: 409,
    Code.COLLECTION_CHANGED: 409,
    Code.SCOPE_CHANGED: 409,
    Code.QUARANTINED: 409,
    Code.UNKNOWN_QUERY: 404,
    Code.QUERY_DELETED: 410,
    Code.COLLECTION_DELETED: 410,
    ApiCode.UNAUTHENTICATED: 401,
    ApiCode.FORBIDDEN: 403,
    ApiCode.CROSS_ORIGIN: 403,
    ApiCode.NOT_FOUND: 404,
    ApiCode.METHOD_NOT_ALLOWED: 405,
    ApiCode.QUERY_EXISTS: 409,
    ApiCode.QUERY_NOT_OPEN: 409,
    ApiCode.WITHDRAWN: 410,
    ApiCode.LEASE_OVER: 409,
    ApiCode.SETTINGS_CHANGED: 412,
    ApiCode.RATE_LIMITED: 429,
    ApiCode.UNAVAILABLE: 503,
    ApiCode.INTERNAL: 500,
}


class Problem(Exception):  # noqa: N818 - it is a word of the field
    """The request cannot be done, for this reason."""

    def __init__(self, code: Code | ApiCode, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})

    @classmethod
    def of(cls, rejected: Rejected) -> "Problem":
        """The same of an event that the wire rejects."""
        return cls(rejected.code, rejected.detail)

    @property
    def status(self) -> int:
        """The HTTP status that goes with the code: 422 for what is well formed and cannot be taken."""
        return _STATUS.get(self.code, 422)

    def response(self) -> Response:
        """The answer."""
        body = {
            "type": f"urn:haystream:problem:{self.code.value}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail[:2000],
            "code": self.code.value,
            "correlation_id": CORRELATION.get(),
        }
        return Response(orjson.dumps(body), self.status, headers=self.headers, media_type=MEDIA_TYPE)


def unavailable(detail: str, *, seconds: int = RETRY_SECONDS) -> Problem:
    """The problem that says: try again in so many seconds."""
    return Problem(ApiCode.UNAVAILABLE, detail, headers={"Retry-After": str(seconds)})


def not_found(what: str) -> Problem:
    """The problem that says: there is no such thing, as far as this caller may know."""
    return Problem(ApiCode.NOT_FOUND, f"there is no {what}, or your token may not see it")
