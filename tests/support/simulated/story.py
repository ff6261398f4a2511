"""What is produced in one run: settings, items and verdicts, bad ones and repeated ones among them. More is said of
some items later, and some are withdrawn."""

from dataclasses import dataclass, replace
from math import log10
from random import Random

from haystream.events import (
    Action,
    Item,
    ItemFact,
    LeaseFact,
    Outcome,
    Policy,
    Prior,
    Query,
    Status,
    Verdict,
    Withdrawal,
)
from haystream.models import DEFAULT_PRIORS
from haystream.models.ranges import Range
from haystream.models.settings import MODEL_SETTINGS
from haystream.ranking.policies import POLICIES
from haystream.scope import Scope, scope
from haystream_service.wire import encode_item, encode_lease, encode_query, encode_verdict

DECIDED = 1_700_000_000_000_000
ODD = (" ", "a b", "{q}", "%7B", "}:{", "ä–ö", "日本", "🐴", "'\"\\", "*?[", "-", "0", "NaN", "null", "x" * 512)
"""Ids that are legal and seldom thought of."""
NO_NUMBERS = {"participants", "conditional"}
"""Of a model's ranges, those of settings that are no single number."""


@dataclass(frozen=True, slots=True)
class Said:
    """A record to be produced."""

    topic: str
    key: bytes | None
    value: bytes | None


def story(rng: Random, *, contradictions: bool = True) -> list[Said]:
    """Records in the order in which they are produced; with `contradictions`, some say something else of what
    earlier ones have said, and are refused.
    """
    size = rng.choice((0.3, 0.3, 0.3, 1.0))  # short ones find as much in a third of the time
    people = _ids(rng, "p", rng.randint(4, 14))
    collections = _ids(rng, "c", rng.choice((1, 1, 1, 2)))
    scopes = None, _scope(rng, people)
    queries = [
        Query(name, collection=rng.choice(collections), scope=rng.choice(scopes))
        for name in _ids(rng, "q", rng.choice((1, 2, 2, 3)))
    ]
    names = _ids(rng, "i", rng.randint(3, int(25 * size)))
    items = [_described(rng, _item(rng, name, people, rng.choice(collections))) for name in names]
    said: list[Said] = []
    for query in queries:
        settings = replace(
            query, prior=_prior(rng, people), policy=_policy(rng), top=rng.choice((1, 5, 50, 10_000))
        )
        said.append(_query(settings))
        if rng.random() < 0.5:
            said.append(_query(replace(settings, status=rng.choice(list(Status)))))
            other = rng.choice(scopes)  # a query keeps its own
            said.append(_query(replace(settings, scope=other if contradictions else settings.scope, top=7)))
            last = replace(settings, prior=replace(settings.prior, participants=_watched(rng, people)))
            ends = rng.choice((Status.OPEN, Status.OPEN, Status.PAUSED, Status.CLOSED))
            said.append(_query(replace(last, status=ends)))
    facts = [_said_of_item(item) for item in items]
    facts += [_said_of_item(_more(rng, rng.choice(items))) for _ in range(rng.randrange(6))]
    facts += [_verdict(_judged(rng, n, queries, items)) for n in range(rng.randint(0, int(40 * size)))]
    facts += [_lease(_leased(rng, queries, items, contradictions)) for _ in range(rng.randint(0, int(30 * size)))]
    facts += [rng.choice(facts) for _ in range(rng.randrange(8))]  # a producer that does not know whether it has
    facts += [_bad(rng, rng.choice(facts), contradictions) for _ in range(rng.randrange(4))]
    rng.shuffle(facts)
    if rng.random() < 0.5:
        return said + facts
    # Queries that are opened, and settings that change, while verdicts come.
    places = sorted(rng.randrange(len(facts) + 1) for _ in said)
    for place, record in reversed(list(zip(places, said, strict=True))):
        facts.insert(place, record)
    return facts


def _ids(rng: Random, letter: str, count: int) -> list[str]:
    names = [f"{letter}{n}" for n in range(count)]
    if rng.random() < 0.2:
        names[rng.randrange(count)] = rng.choice(ODD)
    return names


def _item(rng: Random, name: str, people: list[str], collection: str) -> Item:
    count = min(len(people), rng.choice((2, 2, 2, 2, 3, 4, len(people))))
    first, *others = rng.sample(people, count)
    if rng.random() < 0.8:
        return Item(name, collection, first, tuple(sorted(others)))
    return Item(name, collection, None, tuple(sorted({first, *others})))


def _scope(rng: Random, people: list[str]) -> Scope | None:
    """What asks for something that some items have."""
    return scope(
        since=rng.choice((None, None, 1, 2)),
        before=rng.choice((None, None, None, 3)),
        anybody=rng.choice(([], [], rng.sample(people, len(people) // 2))),
        nobody=rng.choice(([], [], rng.sample(people, 1))),
        labels=rng.choice(((), (), (("a", "2"),))),
    )


def _more(rng: Random, item: Item) -> ItemFact:
    """What else is said of an item: that it is withdrawn, with its people or without, or details."""
    if rng.random() < 0.3:
        return Withdrawal(item.item_id, item.collection)
    return replace(_described(rng, item), withdrawn=rng.random() < 0.3)


def _described(rng: Random, item: Item) -> Item:
    """The item with other details, or without."""
    told = replace(item, sent_at=rng.choice((None, 1, 2, 3)), uri=rng.choice((None, "mail:1", "mail:2")))
    return replace(told, labels=rng.choice(((), (("a", "1"),), (("a", "2"),), (("a", "2"),))))


def _judged(rng: Random, number: int, queries: list[Query], items: list[Item]) -> Verdict:
    """A verdict, now and then on an item that never comes, or decided when another was."""
    item_id = rng.choice(items).item_id if rng.random() < 0.95 else "nowhere"
    at = DECIDED + rng.randrange(20)
    return Verdict(f"v{number}", rng.choice(queries).query_id, item_id, "kim", rng.choice(list(Outcome)), at)


def _leased(rng: Random, queries: list[Query], items: list[Item], contradictions: bool) -> LeaseFact:
    """Something that happens to one of a few leases, now and then with another analyst than before."""
    which = rng.randrange(12)
    item_id, query_id = items[which % len(items)].item_id, queries[which % len(queries)].query_id
    analyst = "zoe" if contradictions and rng.random() < 0.05 else "kim"
    at, until = (DECIDED + rng.randrange(20) for _ in range(2))
    return LeaseFact(f"l{which}", query_id, item_id, analyst, rng.choice(list(Action)), at, until)


def _prior(rng: Random, people: list[str]) -> Prior:
    if rng.random() < 0.25:
        return _extreme(rng, people)
    if rng.random() < 0.3:
        return replace(DEFAULT_PRIORS["relevance"], mean=rng.choice((0.1, 0.25, 0.4)))
    defaults = DEFAULT_PRIORS["rates"]
    if rng.random() < 0.5:
        return replace(defaults, participants=_watched(rng, people))
    return replace(
        defaults,
        mean=rng.uniform(0.01, 0.6),
        correlation=rng.uniform(0.0, 0.9),
        weight=rng.uniform(0.5, 20.0),
        participant=rng.uniform(0.5, 20.0),
        edge=rng.uniform(0.5, 20.0),
    )


def _extreme(rng: Random, people: list[str]) -> Prior:
    """From the whole of what a model takes, its ends above all."""
    model = rng.choice(sorted(MODEL_SETTINGS))
    ranges = MODEL_SETTINGS[model].ranges
    own = {name: _number(rng, allowed) for name, allowed in ranges.items() if name not in NO_NUMBERS}
    watched = {name: _number(rng, ranges["participants"]) for name in _watched(rng, people)}
    return replace(DEFAULT_PRIORS[model], **own, participants=watched)  # type: ignore[arg-type]


def _number(rng: Random, allowed: Range) -> float:
    inside = rng.uniform(allowed.least, allowed.most)
    if allowed.least > 0.0:
        exponent = rng.uniform(log10(allowed.least), log10(allowed.most))
        inside = min(max(10.0**exponent, allowed.least), allowed.most)
    return rng.choice((allowed.least, inside, inside, allowed.most))


def _watched(rng: Random, people: list[str]) -> dict[str, float]:
    return {name: rng.uniform(0.1, 0.5) for name in rng.sample(people, rng.randrange(3))}


def _policy(rng: Random) -> Policy:
    return Policy(rng.choice(sorted(POLICIES)), seed=rng.randrange(5))


def _bad(rng: Random, like: Said, contradictions: bool) -> Said:
    """A record that is refused, or refused if the one that it is like came first."""
    dice = rng.randrange(3)
    if dice == 0 or like.value is None:
        return Said(like.topic, like.key, b"{")
    if dice == 1:
        return Said(like.topic, like.key, b"[]")
    # Other content under a known id.
    others = ((b'"analyst":"kim"', b'"analyst":"zoe"'), (b'"sender":"', b'"sender":"else'))
    for old, new in others if contradictions else ():
        if old in like.value:
            return Said(like.topic, like.key, like.value.replace(old, new))
    return Said(like.topic, like.key, b'{"item_id":1}')


def _query(query: Query) -> Said:
    return Said("queries", query.query_id.encode(), encode_query(query))


def _said_of_item(item: ItemFact) -> Said:
    return Said("items", item.item_id.encode(), encode_item(item))


def _verdict(verdict: Verdict) -> Said:
    return Said("verdicts", verdict.query_id.encode(), encode_verdict(verdict))


def _lease(fact: LeaseFact) -> Said:
    return Said("leases", fact.query_id.encode(), encode_lease(fact))
