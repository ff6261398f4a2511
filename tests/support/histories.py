"""Histories of events: made by hand, and by hypothesis."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from haystream.events import (
    Conditional,
    Event,
    Item,
    ItemFact,
    ModelName,
    Outcome,
    Policy,
    Prior,
    Query,
    Verdict,
    Withdrawal,
)
from haystream.fold import State, step
from haystream.models.ranges import Range
from haystream.models.settings import MODEL_SETTINGS

ASYMMETRIC = Conditional(a=(1.0, 1.5, 0.7, 6.0), b=(9.0, 3.0, 6.0, 1.2))
"""Where 01 and 10 differ, a swapped endpoint shows."""


def item(item_id: str, *people: str, sender: str | None = None, collection: str = "default") -> Item:
    others = tuple(sorted(set(people) - {sender}))
    return Item(item_id, collection, sender, others)


def verdict(number: int, item_id: str, outcome: Outcome, *, at: int | None = None, query_id: str = "q") -> Verdict:
    return Verdict(f"v{number}", query_id, item_id, "ann", outcome, number if at is None else at)


def fold(events: list[Event], *, tolerance: float = 1e-12) -> State:
    state = State(tolerance=tolerance)
    for event in events:
        step(state, event)
    return state


@dataclass(frozen=True)
class Handed:
    """An item is handed to an analyst of the query "q", or comes back."""

    item_id: str
    back: bool = False


def play(state: State, happening: Event | Handed) -> None:
    """Fold an event in, or tell the query, if it is there, who has what."""
    if not isinstance(happening, Handed):
        step(state, happening)
    elif "q" in state.queries:
        query = state.queries["q"]
        (query.release if happening.back else query.hold)(happening.item_id)


def line(length: int) -> list[Item]:
    names = [f"p{i:03d}" for i in range(length + 1)]
    return [item(f"i{k}", v, sender=u) for k, (u, v) in enumerate(pairwise(names))]


names = st.integers(0, 11).map(lambda i: f"p{i:02d}")


@st.composite
def items(draw: st.DrawFn, number: int) -> Item:
    people = draw(st.lists(names, min_size=2, max_size=5, unique=True))
    sender = people[0] if draw(st.booleans()) else None
    return item(f"i{number}", *people, sender=sender)


@st.composite
def more_of(draw: st.DrawFn, said: Item) -> ItemFact:
    """Another record of an item: that it is withdrawn, or when it was sent and where it is."""
    told = replace(
        said,
        sent_at=draw(st.none() | st.integers(0, 2)),
        uri=draw(st.none() | st.sampled_from(["mail:1", "mail:2"])),
        withdrawn=draw(st.booleans()),
    )
    return draw(st.sampled_from([told, Withdrawal(said.item_id, said.collection)]))


MODELS: tuple[ModelName, ...] = ("rates", "relevance")


@st.composite
def priors(draw: st.DrawFn, *, models: tuple[ModelName, ...] = MODELS) -> Prior:
    """For relevance: priors whose covariances two binary variables can have, or nearly (docs/method.md)."""
    # Between 0 and 1e-3 growth may leave covariances, which are about as small, off by 1 % of themselves (8e-9 at
    # 6e-5): far below any tolerance that is used, and above what these tests ask at theirs.
    correlation = draw(st.one_of(st.just(0.0), st.floats(1e-3, 0.85)))
    if draw(st.sampled_from(models)) == "rates":
        concentration = st.floats(0.5, 8.0)
        return Prior(
            model="rates",
            mean=draw(st.floats(0.01, 0.6)),
            correlation=correlation,
            weight=draw(concentration),
            participant=draw(concentration),
            edge=draw(concentration),
            participants=draw(st.dictionaries(names, st.floats(0.01, 0.9), max_size=3)),
        )
    mean = draw(st.floats(0.1, 0.6))
    return Prior(
        model="relevance",
        mean=mean,
        correlation=correlation,
        conditional=draw(st.sampled_from([ASYMMETRIC, Conditional(a=(1, 1, 1, 9), b=(9, 4, 4, 1))])),
        participants=draw(st.dictionaries(names, st.floats(0.8 * mean, min(1.2 * mean, 0.9)), max_size=3)),
    )


def numbers_in(allowed: Range) -> st.SearchStrategy[float]:
    """Over the whole of it: of a range over several orders of magnitude, each order as likely."""
    inside = st.floats(allowed.least, allowed.most)
    if allowed.least <= 0.0:
        return inside
    exponents = st.floats(math.log10(allowed.least), math.log10(allowed.most))
    logarithmic = exponents.map(lambda e: min(max(10.0**e, allowed.least), allowed.most))
    return st.one_of(inside, logarithmic, st.sampled_from([allowed.least, allowed.most]))


def priors_in_range(
    model: ModelName, *, people: st.SearchStrategy[str] = names, most_watched: int = 3
) -> st.SearchStrategy[Prior]:
    """Any prior that the model takes."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name, allowed in MODEL_SETTINGS[model].ranges.items():
        number = numbers_in(allowed)
        match name:
            case "participants":
                fields[name] = st.dictionaries(people, number, max_size=most_watched)
            case "conditional":
                four = st.tuples(*[number] * 4)
                fields[name] = st.builds(Conditional, a=four, b=four)
            case _:
                fields[name] = number
    return st.builds(Prior, model=st.just(model), **fields)


@st.composite
def queries(
    draw: st.DrawFn, *, policies: tuple[str, ...] = ("greedy",), models: tuple[ModelName, ...] = MODELS
) -> Query:
    """Of any of the models and the policies."""
    policy = Policy(draw(st.sampled_from(policies)), seed=draw(st.integers(0, 5)))
    return Query("q", prior=draw(priors(models=models)), policy=policy)


@st.composite
def facts(draw: st.DrawFn, *, most_items: int = 14, most_verdicts: int = 20) -> list[Event]:
    """Items and verdicts, in an order in which verdicts may precede their items, growth comes late, and an
    item may be judged several times, retracted and judged again. More may be said of items later, and they may be
    withdrawn."""
    count = draw(st.integers(2, most_items))
    history: list[Event] = [draw(items(k)) for k in range(count)]
    history += [draw(more_of(said)) for said in history if isinstance(said, Item) and not draw(st.integers(0, 4))]
    history += [
        verdict(
            number,
            f"i{draw(st.integers(0, count - 1))}",
            draw(st.sampled_from(Outcome)),
            at=draw(st.integers(0, 5)),
        )
        for number in range(draw(st.integers(0, most_verdicts)))
    ]
    return draw(st.permutations(history))


@st.composite
def histories(draw: st.DrawFn, *, models: tuple[ModelName, ...] = MODELS) -> list[Event]:
    """A query's opening somewhere among its facts, perhaps with a watch-list edit later."""
    query = draw(queries(models=models))
    history = draw(facts())
    place = draw(st.integers(0, len(history)))
    history.insert(place, query)
    if draw(st.booleans()):
        edited = replace(query, prior=replace(query.prior, participants={"p03": query.prior.mean * 1.1}))
        history.insert(draw(st.integers(place + 1, len(history))), edited)
    return history


@st.composite
def histories_with_pending(draw: st.DrawFn, *, models: tuple[ModelName, ...] = MODELS) -> list[Event | Handed]:
    """With items handed out and some of them given back, before and after they are known and have verdicts."""
    happenings: list[Event | Handed] = [*draw(histories(models=models))]
    for _ in range(draw(st.integers(1, 12))):
        handed = Handed(f"i{draw(st.integers(0, 13))}", back=draw(st.sampled_from([False, False, True])))
        happenings.insert(draw(st.integers(0, len(happenings))), handed)
    return happenings
