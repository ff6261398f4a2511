"""Who may do what: one table of all routes. `app` refuses to be built with a route that is not in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from haystream_service.api.problems import ApiCode, Problem

EVERY_COLLECTION = "*"


class Role(StrEnum):
    """What a token is for; a token may have several."""

    INGEST = "ingest"
    """Sends items."""
    ANALYST = "analyst"
    """Takes items and decides, under its own name."""
    LEAD = "lead"
    """Opens and changes queries, exports, and whatever an analyst does, in any analyst's name."""
    OPERATIONS = "operations"
    """Sees how queries are doing and lets those go that are stopped; reads no item and no verdict."""


class Where(StrEnum):
    """How a route's collection is known."""

    NOWHERE = "nowhere"
    """It is about none: a role is enough."""
    PATH = "path"
    """The path names it."""
    QUERY = "query"
    """It is that of the query that the path names."""
    BODY = "body"
    """What is sent names it: the handler asks with `Caller.check`."""
    EACH = "each"
    """The answer is about many, and has those that the caller may see."""


class Access(NamedTuple):
    """What a route asks of its caller."""

    roles: frozenset[Role]
    where: Where


ANY = frozenset(Role)
READERS = frozenset({Role.ANALYST, Role.LEAD})
WATCHERS = frozenset({Role.ANALYST, Role.LEAD, Role.OPERATIONS})
LEADS = frozenset({Role.LEAD})
QUERY = "/v1/queries/{query_id}"

OPEN = frozenset({"GET /healthz"})
"""Routes that ask for no token."""

ROUTES: Mapping[str, Access] = {
    "GET /docs": Access(ANY, Where.NOWHERE),
    "GET /openapi.json": Access(ANY, Where.NOWHERE),
    "GET /v1/me": Access(ANY, Where.NOWHERE),
    "GET /v1/queries": Access(WATCHERS, Where.EACH),
    f"PUT {QUERY}": Access(LEADS, Where.BODY),
    f"GET {QUERY}": Access(WATCHERS, Where.QUERY),
    f"PATCH {QUERY}": Access(LEADS, Where.QUERY),
    f"DELETE {QUERY}": Access(LEADS, Where.QUERY),
    f"POST {QUERY}/release": Access(frozenset({Role.LEAD, Role.OPERATIONS}), Where.QUERY),
    f"GET {QUERY}/progress": Access(WATCHERS, Where.QUERY),
    f"GET {QUERY}/ranking": Access(READERS, Where.QUERY),
    f"GET {QUERY}/ranking/stream": Access(READERS, Where.QUERY),
    f"GET {QUERY}/items/{{item_id}}": Access(READERS, Where.QUERY),
    f"POST {QUERY}/claims": Access(READERS, Where.QUERY),
    f"GET {QUERY}/leases": Access(READERS, Where.QUERY),
    f"POST {QUERY}/leases/{{lease_id}}/extend": Access(READERS, Where.QUERY),
    f"DELETE {QUERY}/leases/{{lease_id}}": Access(READERS, Where.QUERY),
    f"PUT {QUERY}/verdicts/{{verdict_id}}": Access(READERS, Where.QUERY),
    f"GET {QUERY}/verdicts/{{verdict_id}}": Access(READERS, Where.QUERY),
    f"DELETE {QUERY}/verdicts/{{verdict_id}}": Access(READERS, Where.QUERY),
    f"GET {QUERY}/participants": Access(READERS, Where.QUERY),
    f"GET {QUERY}/participants/{{participant}}": Access(READERS, Where.QUERY),
    f"GET {QUERY}/pairs": Access(READERS, Where.QUERY),
    f"GET {QUERY}/export/decisions": Access(LEADS, Where.QUERY),
    f"GET {QUERY}/export/audit": Access(LEADS, Where.QUERY),
    "POST /v1/collections/{collection}/items": Access(frozenset({Role.INGEST}), Where.PATH),
    "GET /v1/collections/{collection}/items/{item_id}": Access(READERS, Where.PATH),
}
"""Method and path of every route but those in `OPEN`."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever a token says that it is."""

    subject: str
    roles: frozenset[Role]
    collections: frozenset[str]

    def sees(self, collection: str) -> bool:
        """Whether the collection is one of this caller's."""
        return EVERY_COLLECTION in self.collections or collection in self.collections

    def check_roles(self, access: Access) -> None:
        """Raise a `Problem` unless one of the roles is enough."""
        if not self.roles & access.roles:
            wanted = ", ".join(sorted(access.roles))
            raise Problem(ApiCode.FORBIDDEN, f"this takes one of the roles {wanted}, and {self.subject!r} has none")

    def check(self, collection: str) -> None:
        """Raise a `Problem` unless the collection, which the caller has named, is one of this caller's."""
        if not self.sees(collection):
            raise Problem(ApiCode.FORBIDDEN, f"collection {collection!r} is none of {self.subject!r}'s")

    def name(self, analyst: str | None) -> str:
        """In whose name the caller acts: its own, or, of a lead, the one that is given. Raises a `Problem`."""
        if analyst is None or analyst == self.subject:
            return self.subject
        if Role.LEAD not in self.roles:
            raise Problem(ApiCode.FORBIDDEN, f"{self.subject!r} may not act in the name of {analyst!r}: a lead may")
        return analyst
