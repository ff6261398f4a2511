"""The values of the six topics, as pydantic models. The JSON Schemas are generated from these."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import ConfigDict, Discriminator, Field, JsonValue, Tag

from haystream.errors import Code
from haystream.events import Action, Outcome, Prior, Status
from haystream.models.ranges import Ranges
from haystream.models.settings import MODEL_SETTINGS
from haystream_service.wire.fields import (
    Body,
    Concentration,
    Correlation,
    Count,
    Id,
    JsonObject,
    LabelKey,
    LabelValue,
    Probability,
    Rank,
    Seed,
    Share,
    Subject,
    Text,
    Top,
)

BY_NAME, BY_VALUE = "(name)", "(table)"
"""Which kind of `prior.conditional` is given; pydantic puts these into the path of an error."""

DEFAULT_MODEL = Prior().model

Beta = tuple[Concentration, Concentration]
TableName = Literal["table-1", "table-2"]


class ConditionalRecord(JsonObject):
    """[a, b] of P's beta for each pair of relevances; the first digit is of the id that sorts first."""

    z00: Beta = Field(alias="00")
    z01: Beta = Field(alias="01")
    z10: Beta = Field(alias="10")
    z11: Beta = Field(alias="11")


def _kind_of_conditional(value: Any) -> str:
    return BY_NAME if isinstance(value, str) else BY_VALUE


if TYPE_CHECKING:
    KnownModel = str
else:
    KnownModel = Literal[tuple(MODEL_SETTINGS)]


def _ranges_by_model() -> list[JsonValue]:
    """What the JSON Schema says of the models' ranges: for each, that if it is the one, then …"""
    return [_if_model(name, model.ranges) for name, model in MODEL_SETTINGS.items()]


def _if_model(name: str, ranges: Ranges) -> JsonValue:
    bounds: dict[str, JsonValue] = {}
    for field, (least, most) in ranges.items():
        number: JsonValue = {"minimum": least, "maximum": most}  # of null these say nothing
        match field:
            case "participants":
                bounds[field] = {"additionalProperties": number}
            case "conditional":
                beta: JsonValue = {"prefixItems": [number, number]}
                bounds[field] = {"properties": dict.fromkeys(("00", "01", "10", "11"), beta)}
            case _:
                bounds[field] = number
    named: dict[str, JsonValue] = {"properties": {"model": {"const": name}}}
    if name != DEFAULT_MODEL:
        named["required"] = ["model"]
    return {"if": named, "then": {"properties": bounds}}


class PriorRecord(JsonObject):
    """What is believed before any verdict. A number that is not given is the model's default.

    `weight`, `participant` and `edge` belong to the model `rates`; `conditional` to `relevance`. Numbers have to be
    in the ranges that the model declares (`ModelSettings.ranges`).
    """

    model_config = ConfigDict(json_schema_extra={"allOf": _ranges_by_model()})

    model: KnownModel = DEFAULT_MODEL
    mean: Probability | None = None
    correlation: Correlation | None = None
    conditional: Annotated[
        Annotated[TableName, Tag(BY_NAME)] | Annotated[ConditionalRecord, Tag(BY_VALUE)],
        Discriminator(_kind_of_conditional),
    ] = "table-2"
    participants: dict[Id, Probability] = Field(default_factory=dict)
    weight: Concentration | None = None
    participant: Concentration | None = None
    edge: Concentration | None = None


class PolicyRecord(JsonObject):
    """How edge posteriors become scores. `horizon` belongs to the two that look ahead."""

    name: Literal["look-ahead-by-set", "look-ahead", "greedy", "epsilon-greedy", "bayes-ucb", "thompson"] = (
        "look-ahead-by-set"
    )
    epsilon: Share = 0.1
    seed: Seed = 0
    horizon: Top = 20


class ScopeRecord(JsonObject):
    """Which items of its collection there are for a query: all that is given has to hold of an item.

    `sent`: from when, included, until when, excluded; either may be null. `with`: anybody of these is on it;
    `without`: nobody of these. `labels`: values that its labels have to have.
    """

    sent: tuple[Text | None, Text | None] | None = None
    anybody: tuple[Id, ...] = Field(default=(), alias="with")
    nobody: tuple[Id, ...] = Field(default=(), alias="without")
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict)


class QueryRecord(JsonObject):
    """A value of the topic `queries`, keyed by query_id."""

    query_id: Id
    collection: Id = "default"
    # Not all that the record has by default: `conditional` is refused where the model is `rates`.
    prior: PriorRecord = Field(PriorRecord(), json_schema_extra={"default": {"model": DEFAULT_MODEL}})
    policy: PolicyRecord = PolicyRecord()
    engine: Literal["local", "reference"] = "local"
    top: Top = 50
    status: Status = Status.OPEN
    scope: ScopeRecord | None = None


PEOPLE: Final = ("sender", "recipients", "participants")


def _who() -> list[JsonValue]:
    """What the JSON Schema says of an item's people, and of a withdrawal, which needs none."""
    nobody: JsonValue = {"anyOf": [{"required": [name]} for name in PEOPLE]}
    withdrawn: JsonValue = {"withdrawn": {"const": True}}
    return [
        {"required": ["sender", "recipients"]},
        {"required": ["participants"]},
        {"required": ["withdrawn"], "properties": withdrawn, "not": nobody},
    ]


class ItemRecord(JsonObject):
    """A value of the topic `items`, keyed by item_id: either `sender` and `recipients`, or `participants`.

    With `withdrawn` it needs neither.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": _who()})

    item_id: Id
    collection: Id = "default"
    sender: Id | None = None
    recipients: tuple[Id, ...] | None = None
    participants: tuple[Id, ...] | None = None
    sent_at: Text | None = None
    uri: Text | None = None
    labels: JsonValue = None
    subject: Subject | None = None
    text: Body | None = None
    withdrawn: bool = False


class VerdictRecord(JsonObject):
    """A value of the topic `verdicts`, keyed by query_id."""

    verdict_id: Id
    query_id: Id
    item_id: Id
    analyst: Id
    outcome: Outcome
    decided_at: Text


class LeaseRecord(JsonObject):
    """A value of the topic `leases`, keyed by query_id: something that happened to a lease.

    `rank`, `score`, `mean`, `level` and `by` say what the item was served at, and by what.
    """

    lease_id: Id
    query_id: Id
    item_id: Id
    analyst: Id
    action: Action
    at: Text
    until: Text
    rank: Rank | None = None
    score: float | None = None
    mean: float | None = None
    level: float | None = None
    by: Literal["ranking", "control"] = "ranking"


class EstimateRecord(JsonObject):
    """A mean and its standard deviation."""

    mean: float
    sd: float


class ShareRecord(JsonObject):
    """How much of an item's score a pair accounts for."""

    participants: tuple[Id, Id]
    share: float


class RankedItemRecord(JsonObject):
    """One item of a ranking; ranks count from 1."""

    item_id: Id
    rank: Annotated[int, Field(ge=1)]
    score: float
    mean: float
    sd: float
    participants: tuple[Id, ...]
    participants_cut: Count = 0
    """How many more there are than `participants` names."""
    because: tuple[ShareRecord, ...]
    sent_at: Text | None = None
    uri: Text | None = None


class NextItems(JsonObject):
    """A value of the topic `next-items`, keyed by query_id: what to read next."""

    query_id: Id
    revision: Count
    published_at: Text
    policy: str
    screened: Count
    found: Count
    expected_remaining: EstimateRecord
    discrepancy: float
    items: tuple[RankedItemRecord, ...]
    items_cut: Count = 0
    """How many more there are in the ranking than fit into the message."""


class SourceRecord(JsonObject):
    """Where a dead letter came from."""

    topic: str
    partition: Count
    offset: Count


class ErrorRecord(JsonObject):
    """Why an event was rejected."""

    code: Code
    detail: str


class DeadLetter(JsonObject):
    """A value of the topic `dead-letters`, keyed as its source was."""

    source: SourceRecord
    error: ErrorRecord
    key_base64: str | None = None
    key_bytes: Count = 0
    """The key's full length; `key_base64` may hold less."""
    payload_base64: str
    payload_bytes: Count = 0
    """The payload's full length; `payload_base64` may hold less."""
