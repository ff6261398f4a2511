"""The kinds of event that a query's state is folded from, as plain values.

Everything here is already validated: the wire models (service) build these and refuse the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations
from types import MappingProxyType
from typing import ClassVar, Final, Literal, NamedTuple

from haystream.scope import Scope

Pair = tuple[str, str]
"""An unordered pair of participants, the id that sorts first first."""

NO_OVERRIDES: Mapping[str, float] = MappingProxyType({})


Labels = tuple[tuple[str, str], ...]
"""Keys with values as canonical JSON (`"a"`, `3`, `true`), sorted by key. Of equal values the texts are equal."""

MOST_LABELS = 64
"""Labels that are known of one item: those whose keys sort first."""


class RecordPlace(NamedTuple):
    """Where a part of an item's content lies that is not kept here. Places sort by digest first."""

    digest: str
    """Of the content: two places with one digest hold the same."""
    partition: int
    offset: int


# Frozen, one takes several times as long to make, and a start makes millions: that fields are final mypy sees to.
@dataclass(slots=True, unsafe_hash=True)
class Item:
    """A message between people. With a sender it lies on (sender, recipient) pairs, else on all pairs.

    `participants` holds the distinct participants, sorted, for an item without roles; for one with roles
    `sender` is set and `participants` holds the distinct recipients other than the sender, sorted.
    The two tuples are canonical: two items with equal fields are the same item. `sent_at` is in microseconds since
    the Unix epoch. An item that is `withdrawn` was taken back for good: nobody reads it, no verdict on it counts.
    """

    item_id: Final[str]
    collection: Final[str]
    sender: Final[str | None]
    participants: Final[tuple[str, ...]]
    sent_at: Final[int | None] = None
    uri: Final[str | None] = None
    labels: Final[Labels] = ()
    subject_at: Final[RecordPlace | None] = None
    text_at: Final[RecordPlace | None] = None
    withdrawn: Final[bool] = False

    def pairs(self) -> tuple[Pair, ...]:
        """The edges that the item lies on, sorted."""
        if self.sender is None:
            return tuple(combinations(self.participants, 2))
        s = self.sender
        if len(self.participants) == 1:  # as most are, and a cold start asks millions
            (r,) = self.participants
            return ((s, r) if s < r else (r, s),)
        return tuple(sorted((s, r) if s < r else (r, s) for r in self.participants))

    def people(self) -> tuple[str, ...]:
        """Everyone on the item, the sender first if there is one."""
        return self.participants if self.sender is None else (self.sender, *self.participants)


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """That an item was taken back, for good: all that is known of an item that may not have come yet."""

    item_id: str
    collection: str
    withdrawn: ClassVar[bool] = True


ItemFact = Item | Withdrawal
"""What a record says of an item."""


class Outcome(StrEnum):
    """What an analyst said of an item."""

    RELEVANT = "relevant"
    IRRELEVANT = "irrelevant"
    SKIPPED = "skipped"
    RETRACTED = "retracted"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An analyst's word on an item, for one query.

    `decided_at` is in microseconds since the Unix epoch. Of several verdicts on an item the latest by
    (decided_at, verdict_id) holds, whatever order they arrive in.
    """

    verdict_id: str
    query_id: str
    item_id: str
    analyst: str
    outcome: Outcome
    decided_at: int


class Action(StrEnum):
    """What happened to a lease."""

    CLAIMED = "claimed"
    EXTENDED = "extended"
    RELEASED = "released"
    EXPIRED = "expired"

    @property
    def ends(self) -> bool:
        """Whether the lease is over then."""
        return self in (Action.RELEASED, Action.EXPIRED)


@dataclass(frozen=True, slots=True)
class LeaseFact:
    """Something that happened to a lease: an item that an analyst has been handed, for a while.

    `at` (when it happened) and `until` (when the lease ends unless it is extended) are in microseconds since the
    Unix epoch. `rank`, `score`, `mean` and `level` are what the item was served at, `by` what served it: they are
    said for whoever reads the facts later, and change nothing.
    """

    lease_id: str
    query_id: str
    item_id: str
    analyst: str
    action: Action
    at: int
    until: int
    rank: int | None = None
    score: float | None = None
    mean: float | None = None
    level: float | None = None
    by: str = "ranking"


@dataclass(frozen=True, slots=True)
class Conditional:
    """P | Z_u, Z_v ~ Beta(a, b), for (z_u, z_v) = 00, 01, 10, 11; the first digit is the id that sorts first."""

    a: tuple[float, float, float, float]
    b: tuple[float, float, float, float]


TABLE_1 = Conditional(a=(1, 1, 1, 1), b=(9, 4, 4, 1))
"""The paper's prior conditional 1 (Table 1b)."""
TABLE_2 = Conditional(a=(1, 1, 1, 9), b=(9, 4, 4, 1))
"""The paper's prior conditional 2 (Table 1c): the default of `relevance`."""


@dataclass(frozen=True, slots=True)
class Covariance:
    """An explicit prior covariance of Z, for named participants (shape (m, m), rows as tuples)."""

    participants: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]


ModelName = str
"""A name in `haystream.models.registry.MODELS`; a query that names another is refused."""


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed before any verdict: docs/method.md for `rates`, sections 4.1 and 5.2.2 for `relevance`.

    The defaults are those of `rates`; `haystream.models.DEFAULT_PRIORS` has each model's own.
    `mean` is E[Z], or E[M], of everyone but those in `participants` (the watch-list). `correlation` is the δ of
    Σ = B Q⁻¹ B. `weight` (k), `participant` (κₐ) and `edge` (κ) are the concentrations of `rates`: of the common
    mean, of participants around it, of edges around theirs. `conditional` belongs to `relevance`, and so does
    `covariance`, which, where given, replaces Σ; it cannot be said over the wire.
    """

    model: ModelName = "rates"
    mean: float = 0.1
    correlation: float = 0.9
    conditional: Conditional = TABLE_2
    weight: float = 2.0
    participant: float = 3.0
    edge: float = 3.0
    participants: Mapping[str, float] = field(default_factory=lambda: NO_OVERRIDES)
    covariance: Covariance | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """How edge posteriors become scores. `epsilon`, `seed` and `horizon` matter to the policies that use them."""

    name: str = "look-ahead-by-set"
    epsilon: float = 0.1
    seed: int = 0
    horizon: int = 20


class Status(StrEnum):
    """Open: ranked and published. Paused and closed: verdicts still count, nothing is offered for reading.

    Deleted: nothing is left of the query but that, for good.
    """

    OPEN = "open"
    PAUSED = "paused"
    CLOSED = "closed"
    DELETED = "deleted"


class View(NamedTuple):
    """What a query ranks: of a collection, the items in a scope. Queries with one view share its graph."""

    collection: str
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A query's settings. The latest record for a query_id holds; its collection and its scope never change."""

    query_id: str
    collection: str = "default"
    prior: Prior = field(default_factory=Prior)
    policy: Policy = field(default_factory=Policy)
    engine: Literal["local", "reference"] = "local"
    top: int = 50
    status: Status = Status.OPEN
    scope: Scope | None = None
    """Which items of the collection there are for it; None: all."""

    @property
    def view(self) -> View:
        """What it ranks: that never changes."""
        return View(self.collection, self.scope)


Event = Query | ItemFact | Verdict | LeaseFact
