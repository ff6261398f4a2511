"""A client of the queue API: typed, synchronous, and safe to be interrupted.

    with Haystream("http://127.0.0.1:8080", token) as haystream:
        for lease in haystream.next("case-7", count=10):
            haystream.decide("case-7", lease.item_id, Outcome.RELEVANT)

A call that gets no answer, or is told to come again, is made again with the same ids, so nothing is done twice.
"""

import json
import os
import random
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx
from pydantic import BaseModel, ValidationError

from haystream.events import Outcome
from haystream_service.api.messages import (
    Deleted,
    Ingested,
    ItemAnswer,
    LeaseAnswer,
    Leases,
    Me,
    Neighbourhood,
    ProblemRecord,
    Progress,
    QueryAnswer,
    QueryLine,
    QueryList,
    RejectedLine,
    Released,
    VerdictAnswer,
    Why,
)
from haystream_service.errors import UserError
from haystream_service.wire import NextItems

TRIES = 8
FIRST_SECONDS = 0.1
LONGEST_SECONDS = 5.0
"""Of a pause between two tries; all tries together take some 20 seconds."""
AGAIN_STATUSES = frozenset({429, 502, 503, 504})
ITEM_LINES = 5000
"""Items of one request, at most."""
ITEM_BYTES = 8 << 20
"""Of one request's items together, unless one alone has more: the API takes twice as many by default."""

TOKEN = re.compile(r"[!-~]+")
"""What a header takes, and every token is."""
TRUSTED = "SSL_CERT_FILE"
"""The variable that names the file of certificates that all programs are to trust."""
CHARACTERS_AROUND = 20
"""Characters of what was given that are shown on either side of one that is wrong."""

A = TypeVar("A", bound=BaseModel)


class ApiProblem(UserError):  # noqa: N818 - as the API calls it
    """The API does not do what was asked: `code` says why (docs/api.md)."""

    def __init__(self, problem: ProblemRecord) -> None:
        super().__init__(f"{problem.code}: {problem.detail}")
        self.code = problem.code
        self.status = problem.status
        self.correlation_id = problem.correlation_id


class ApiUnavailable(UserError):  # noqa: N818 - as StoreUnavailable
    """No answer came in all tries. What was asked may have been done."""


class Haystream:
    """The API at an address. A context manager.

    Raises `UserError` where the address, the token or the file of certificates is none.
    """

    def __init__(
        self,
        address: str,
        token: str,
        *,
        ca_file: Path | None = None,
        timeout: float = 40.0,
        transport: httpx.BaseTransport | None = None,
        pause: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        if not TOKEN.fullmatch(token):
            raise UserError(
                "the API's token is empty, or no token: HAYSTREAM_API_TOKEN_FILE (or HAYSTREAM_API_TOKEN)"
            )
        self._address = address
        try:
            base = httpx.URL(address)
        except httpx.InvalidURL as error:
            raise UserError(f"{address} is no address of an API (HAYSTREAM_API): {error}") from None
        try:
            self._client = httpx.Client(
                base_url=base,
                headers={"Authorization": f"Bearer {token}"},
                timeout=timeout,
                transport=transport,
                verify=_trusting(ca_file) if ca_file else True,
            )
        except (httpx.InvalidURL, ValueError, ImportError) as error:
            named = "the proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names"
            raise UserError(f"{named} cannot be used: {error}") from None
        except OSError as error:
            where, name = (ca_file, "HAYSTREAM_API_CA_FILE") if ca_file else (os.getenv(TRUSTED), TRUSTED)
            raise UserError(f"the certificates in {where} cannot be used ({name}): {error}") from None
        self._pause = pause
        self._rng = rng or random.Random()
        self._leases: dict[str, set[str]] = {}
        """By query, the leases that we were told of."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    # ---- queries ----

    def me(self) -> Me:
        """Whose the token is."""
        return self._ask(Me, "GET", "me")

    def queries(self, *, collection: str | None = None) -> Iterator[QueryLine]:
        """All queries, by id."""
        after: str | None = None
        while True:
            page = self._ask(QueryList, "GET", "queries", params={"after": after, "collection": collection})
            yield from page.queries
            if (after := page.next) is None:
                return

    def query(self, query_id: str) -> QueryAnswer:
        """A query's settings and state."""
        return self._ask(QueryAnswer, "GET", "queries", query_id)

    def open(self, query_id: str, settings: Mapping[str, Any] | None = None) -> QueryAnswer:
        """The query, which is open from now on; the same once more changes nothing."""
        return self._ask(QueryAnswer, "PUT", "queries", query_id, json=dict(settings or {}))

    def change(self, query_id: str, patch: Mapping[str, Any]) -> QueryAnswer:
        """The query with its settings changed, by a JSON merge patch."""
        return self._ask(QueryAnswer, "PATCH", "queries", query_id, json=dict(patch))

    def pause(self, query_id: str) -> QueryAnswer:
        """The query, of which nothing is offered for now."""
        return self.change(query_id, {"status": "paused"})

    def close(self, query_id: str) -> QueryAnswer:
        """The query, of which nothing is offered any more."""
        return self.change(query_id, {"status": "closed"})

    def reopen(self, query_id: str) -> QueryAnswer:
        """The query, of which items are offered again."""
        return self.change(query_id, {"status": "open"})

    def release(self, query_id: str) -> Released:
        """Whether the query was stopped; it tries again now."""
        return self._ask(Released, "POST", "queries", query_id, "release")

    def delete(self, query_id: str) -> Deleted:
        """Whether the query is gone yet: it is deleted, for good."""
        try:
            return self._ask(Deleted, "DELETE", "queries", query_id)
        except ApiProblem as problem:
            if problem.code != "query_deleted":  # it is what was wanted, or an earlier try has done it
                raise
            return Deleted(query_id=query_id, deleted=True)

    def progress(self, query_id: str) -> Progress:
        """How far the query is."""
        return self._ask(Progress, "GET", "queries", query_id, "progress")

    def ranking(self, query_id: str, *, limit: int = 1000) -> NextItems:
        """What to read next, whoever has it."""
        return self._ask(NextItems, "GET", "queries", query_id, "ranking", params={"limit": limit})

    # ---- work ----

    def next(
        self,
        query_id: str,
        *,
        count: int = 1,
        seconds: float = 600,
        analyst: str | None = None,
        with_text: bool = False,
    ) -> tuple[LeaseAnswer, ...]:
        """The next items, which nobody else gets for so long; none where none is left.

        `with_text`: each lease has its `item`, with subject and text where these could be read (`contents`).
        """
        known = self._leases.get(query_id)
        if known is None:
            # What we had before this process began is no answer that was lost.
            known = {lease.lease_id for lease in self.leases(query_id)}
        body = {"count": count, "seconds": seconds, "analyst": analyst, "known": sorted(known)}
        said = {"with": "text" if with_text else None}
        found = self._ask(Leases, "POST", "queries", query_id, "claims", params=said, json=body).leases
        known |= {lease.lease_id for lease in found}
        live = {lease.lease_id for lease in self.leases(query_id)} if len(known) > 10 * count else known
        self._leases[query_id] = known & live
        return found

    def leases(self, query_id: str) -> tuple[LeaseAnswer, ...]:
        """Items that one has; for a lead, everybody's."""
        return self._ask(Leases, "GET", "queries", query_id, "leases").leases

    def keep(self, lease: LeaseAnswer, seconds: float = 600) -> LeaseAnswer:
        """The lease of an item that is kept for so long from now."""
        path = ("queries", lease.query_id, "leases", lease.lease_id, "extend")
        return self._ask(LeaseAnswer, "POST", *path, params={"analyst": lease.analyst}, json={"seconds": seconds})

    def give_back(self, lease: LeaseAnswer) -> None:
        """Give an item back, unread."""
        path = ("queries", lease.query_id, "leases", lease.lease_id)
        try:
            self._ask(LeaseAnswer, "DELETE", *path, params={"analyst": lease.analyst})
        except ApiProblem as problem:
            if problem.code != "lease_over":  # it is what was wanted, or an earlier try has done it
                raise

    def decide(
        self,
        query_id: str,
        item_id: str,
        outcome: Outcome,
        *,
        analyst: str | None = None,
        verdict_id: str | None = None,
        decided_at: datetime | None = None,
        wait: Literal["kafka", "ranking"] = "kafka",
    ) -> VerdictAnswer:
        """What became of a verdict; `Outcome.RETRACTED` takes back whatever was said of the item."""
        moment = (decided_at or datetime.now(UTC)).astimezone(UTC)
        body = {
            "item_id": item_id,
            "outcome": outcome.value,
            "analyst": analyst,
            "decided_at": moment.isoformat(timespec="microseconds"),
        }
        path = ("queries", query_id, "verdicts", verdict_id or uuid4().hex)
        return self._ask(VerdictAnswer, "PUT", *path, params={"wait": wait}, json=body)

    def undo(self, query_id: str, verdict_id: str, *, wait: Literal["kafka", "ranking"] = "kafka") -> VerdictAnswer:
        """What became of taking a verdict back."""
        return self._ask(
            VerdictAnswer, "DELETE", "queries", query_id, "verdicts", verdict_id, params={"wait": wait}
        )

    # ---- items and beliefs ----

    def send_items(self, collection: str, items: Iterable[bytes]) -> Ingested:
        """What became of items that are sent, each a JSON object. Lines count from 1 over all."""
        accepted, sent, size = 0, 0, 0
        rejected: list[RejectedLine] = []
        batch: list[bytes] = []

        def send() -> None:
            nonlocal accepted, sent, size
            found = self._ask(Ingested, "POST", "collections", collection, "items", content=b"\n".join(batch))
            accepted += found.accepted
            rejected.extend(line.model_copy(update={"line": line.line + sent}) for line in found.rejected)
            sent, size = sent + len(batch), 0
            batch.clear()

        for item in items:
            if batch and (len(batch) == ITEM_LINES or size + len(item) > ITEM_BYTES):
                send()
            batch.append(item)
            size += len(item) + 1
        if batch:
            send()
        return Ingested(accepted=accepted, rejected=tuple(rejected))

    def item(self, collection: str, item_id: str) -> ItemAnswer:
        """An item, with its subject and text. Raises `ApiProblem` `withdrawn` where it was taken back."""
        return self._ask(ItemAnswer, "GET", "collections", collection, "items", item_id)

    def why(self, query_id: str, item_id: str) -> Why:
        """Why an item is ranked where it is."""
        return self._ask(Why, "GET", "queries", query_id, "items", item_id)

    def participant(self, query_id: str, participant: str) -> Neighbourhood:
        """A participant and its contacts."""
        return self._ask(Neighbourhood, "GET", "queries", query_id, "participants", participant)

    def export(
        self, query_id: str, what: Literal["decisions", "audit"], *, form: Literal["ndjson", "csv"] = "ndjson"
    ) -> AbstractContextManager[Iterator[bytes]]:
        """The bytes of an export, in pieces. To read them raises `ApiUnavailable` where it breaks off."""
        return _Export(self, self._path("queries", query_id, "export", what), form)

    # ---- how it is asked ----

    @staticmethod
    def _path(*parts: str) -> str:
        for part in parts:
            if part in {"", ".", ".."}:
                raise UserError(f"{part!r} is no id that can be asked for")
        return "/v1/" + "/".join(quote(_utf8(part), safe="") for part in parts)

    def _ask(self, answer: type[A], method: str, *parts: str, **request: Any) -> A:
        """The answer of the first try that gets one. Raises `ApiProblem` or `ApiUnavailable`."""
        if "params" in request:
            request["params"] = {name: value for name, value in request["params"].items() if value is not None}
        if "json" in request:
            value = {name: value for name, value in request.pop("json").items() if name != "analyst" or value}
            content = _utf8(json.dumps(value, ensure_ascii=False))
            request |= {"content": content, "headers": {"Content-Type": "application/json"}}
        found = self._answered(lambda: self._client.request(method, self._path(*parts), **request))
        try:
            return answer.model_validate_json(found.content)
        except ValidationError:
            raise ApiUnavailable(f"what answers at {self._address} is no haystream API") from None

    def _answered(self, ask: Callable[[], httpx.Response]) -> httpx.Response:
        why, least = "", 0.0
        for number in range(TRIES):
            if number:
                self._pause(least + self._rng.uniform(0.0, min(LONGEST_SECONDS, FIRST_SECONDS * 2**number)))
            least = 0.0
            try:
                found = ask()
            except httpx.TransportError as error:
                why = f"no API answers at {self._address} (HAYSTREAM_API): {error}"
                continue
            if found.is_success:
                return found
            if found.status_code not in AGAIN_STATUSES:
                raise _problem(found)
            why = str(_problem(found))
            wished = found.headers.get("retry-after", "")
            least = min(LONGEST_SECONDS, float(wished)) if wished.isdigit() else 0.0
        raise ApiUnavailable(why)


def _utf8(text: str) -> bytes:
    """The text's bytes. Raises `UserError` where it has none: a terminal may hand over what is no UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        around = text[max(0, error.start - CHARACTERS_AROUND) : error.end + CHARACTERS_AROUND]
        raise UserError(f"what was given is not UTF-8, at {around!r}") from None


class _Export(AbstractContextManager[Iterator[bytes]]):
    """An export that is being read. One that breaks off in the middle has to be asked for again."""

    def __init__(self, haystream: Haystream, path: str, form: str) -> None:
        self._haystream = haystream
        self._request = haystream._client.build_request("GET", path, params={"format": form})
        self._response: httpx.Response | None = None

    def __enter__(self) -> Iterator[bytes]:
        client = self._haystream._client

        def ask() -> httpx.Response:
            found = client.send(self._request, stream=True)
            if not found.is_success:
                found.read()
                found.close()
            return found

        self._response = self._haystream._answered(ask)
        return self._pieces(self._response)

    @staticmethod
    def _pieces(response: httpx.Response) -> Iterator[bytes]:
        try:
            yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise ApiUnavailable(f"unavailable: the export broke off, and is not whole: {error}") from None

    def __exit__(self, *_: object) -> None:
        if self._response is not None:
            self._response.close()


def _trusting(certificates: Path) -> ssl.SSLContext:
    """What connections are checked by: certificates in a file, or in a folder by their hashes. Raises `OSError`."""
    if certificates.is_dir():
        return ssl.create_default_context(capath=certificates)
    return ssl.create_default_context(cafile=certificates)


def _problem(found: httpx.Response) -> ApiProblem:
    try:
        problem = ProblemRecord.model_validate_json(found.content)
    except ValidationError:
        problem = ProblemRecord(
            type="about:blank",
            title=found.reason_phrase,
            status=found.status_code,
            detail=f"the answer was {found.status_code} {found.reason_phrase}",
            code="unavailable" if found.status_code in AGAIN_STATUSES else "unknown",
        )
    return ApiProblem(problem)
