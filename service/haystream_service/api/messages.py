"""What is sent to the API and what it answers, beside the wire's own records. The client reads the same."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from haystream.events import Outcome, Status
from haystream_service.wire.fields import Count, Id, JsonObject, Text
from haystream_service.wire.records import ErrorRecord, EstimateRecord, RankedItemRecord, VerdictRecord

State = Literal["running", "stopped", "released", "deleted"]


class ProblemRecord(JsonObject):
    """Why a request was not done (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    correlation_id: str | None = None


class Me(JsonObject):
    """Whoever the token is of."""

    subject: str
    roles: tuple[str, ...]
    collections: tuple[str, ...]


class QueryLine(JsonObject):
    """A query in a list."""

    query_id: Id
    collection: Id | None = None
    """None where this version cannot read the query's settings."""
    status: Status | None = None
    state: State
    revision: Count
    last_event_at: str


class QueryList(JsonObject):
    """Queries by id; `next` is what to ask for `after` to get more, where there are more."""

    queries: tuple[QueryLine, ...]
    next: Id | None = None


class QuarantineRecord(JsonObject):
    """Why a query is stopped."""

    code: str
    detail: str
    since: str


class QueryAnswer(JsonObject):
    """A query's settings and where it stands."""

    query_id: Id
    state: State
    partition: Count
    revision: Count
    settings: dict[str, JsonValue]
    """As the topic `queries` has them."""
    quarantine: QuarantineRecord | None = None
    applied: bool = True
    """False where the worker has not taken in yet what was just sent."""


class Deleted(JsonObject):
    """What became of a query's deletion."""

    query_id: Id
    deleted: bool
    """False where its worker has not carried it out yet."""


class Released(JsonObject):
    """What became of letting a query go on."""

    query_id: Id
    released: bool
    """False where it was not stopped."""


class Progress(JsonObject):
    """How far a query is, as of its last published ranking."""

    query_id: Id
    revision: Count
    published_at: str
    items: Count
    """Of its collection, or of those that are in its scope."""
    screened: Count
    found: Count
    leased: Count
    """Items that somebody has just now."""
    expected_remaining: EstimateRecord
    discrepancy: float


class VerdictBody(JsonObject, use_attribute_docstrings=True):
    """What is decided; the path says on which query, and under which id."""

    item_id: Id
    outcome: Outcome
    decided_at: Text
    """When it was decided, as `2026-01-31T12:00:00Z`: of several verdicts on an item the latest holds."""
    analyst: Id | None = None
    """In whose name, where a lead gives it in another's; by default the token's subject."""


class VerdictAnswer(JsonObject):
    """A verdict that Kafka has acknowledged."""

    verdict: VerdictRecord
    known: bool
    """Whether it was there before."""
    ranked: bool
    """Whether the ranking reflects it."""
    revision: Count | None = None
    """Of the newest ranking, where that reflects it."""


class RejectedLine(JsonObject):
    """A line that is no item. Lines count from 1."""

    line: Count
    error: ErrorRecord


class Ingested(JsonObject):
    """What became of a body of items."""

    accepted: Count
    rejected: tuple[RejectedLine, ...]


class ItemAnswer(JsonObject):
    """An item: who is on it, what else is known of it, and what it says."""

    item_id: Id
    collection: Id
    sender: Id | None = None
    recipients: tuple[Id, ...] | None = None
    participants: tuple[Id, ...] | None = None
    sent_at: str | None = None
    uri: str | None = None
    labels: dict[str, JsonValue] = Field(default_factory=dict)
    """Those that scopes may ask for."""
    contents: Literal["none", "here", "unread", "gone"] = "none"
    """Whether subject and text are here. `none`: there are none; `unread`: ask for the item; `gone` from Kafka."""
    subject: str | None = None
    text: str | None = None


class Belief(JsonObject):
    """What is believed of a participant: mean and sd of its rate (or of its relevance, with that model)."""

    participant: Id
    mean: float
    sd: float


class Beliefs(JsonObject):
    """Participants, those with the greatest mean first."""

    query_id: Id
    count: Count
    """How many there are in all."""
    participants: tuple[Belief, ...]


class PairBelief(JsonObject):
    """What is believed of a pair: mean and sd of the probability that its items are relevant."""

    participants: tuple[Id, Id]
    mean: float
    sd: float
    screened: float
    """An item on k pairs counts 1/k on each."""
    relevant: float


class PairBeliefs(JsonObject):
    """Pairs, those with the greatest mean first."""

    query_id: Id
    count: Count
    pairs: tuple[PairBelief, ...]


class Contact(JsonObject):
    """Somebody whom a participant writes to or hears from, and the pair that the two are."""

    participant: Id
    mean: float
    sd: float
    pair: PairBelief


class Neighbourhood(JsonObject):
    """A participant, and its contacts, those first whose pair has the greatest mean."""

    query_id: Id
    participant: Id
    mean: float
    sd: float
    contacts: tuple[Contact, ...]
    contacts_cut: Count
    """How many more there are."""


class Why(JsonObject):
    """Why an item is ranked where it is: its place in the ranking, its pairs, and what was said of it."""

    query_id: Id
    item: ItemAnswer
    ranked: RankedItemRecord | None = None
    """None where it is not in the published ranking."""
    pairs: tuple[PairBelief, ...]
    pairs_cut: Count
    verdicts: tuple[VerdictRecord, ...]
    """In the order in which they were decided: the last one holds."""


LeaseSeconds = Annotated[float, Field(ge=1, le=86_400)]


class ClaimBody(JsonObject, use_attribute_docstrings=True):
    """What is asked for: up to `count` items, for so long."""

    count: Annotated[int, Field(ge=1, le=100)] = 1
    seconds: LeaseSeconds = 600
    analyst: Id | None = None
    """For whom, where a lead asks for another; by default the token's subject."""
    known: tuple[Id, ...] | None = None
    """Leases, by id, that the caller knows of: others that the analyst has are answered before new ones."""


class ExtendBody(JsonObject):
    """For how long from now an item is to be kept."""

    seconds: LeaseSeconds = 600


class LeaseAnswer(JsonObject):
    """An item that an analyst has, until when, and what it was served at."""

    lease_id: Id
    query_id: Id
    item_id: Id
    analyst: Id
    at: str
    until: str
    rank: int | None = None
    score: float | None = None
    mean: float | None = None
    level: float | None = None
    by: str
    item: ItemAnswer | None = None
    """What is known of the item, where that was asked for (`with=text`)."""


class Leases(JsonObject):
    """Items that analysts have."""

    query_id: Id
    leases: tuple[LeaseAnswer, ...]


Wait = Annotated[float, Field(ge=0, le=30)]
"""Seconds."""
WAIT_SECONDS = 5.0
"""So long the worker is waited for where nobody says how long."""
