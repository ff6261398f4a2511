"""Where models say that their engines are good, they are; elsewhere settings are refused."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dense import dense_of
from support.histories import MODELS, facts, item, priors_in_range, verdict

from haystream.errors import Code, Rejected
from haystream.events import Conditional, Event, ModelName, Outcome, Prior, Query
from haystream.fold import State, step
from haystream.memory.arrays import Floats
from haystream.models import DEFAULT_PRIORS
from haystream.models.registry import MODELS as KNOWN
from haystream.models.settings import MODEL_SETTINGS
from haystream.query.state import QueryState
from haystream.report import report

PROMISED = 1e-4
"""Every mean is within this of the dense solve, at the engine's default tolerance."""
OUTCOMES = {
    "all irrelevant": [Outcome.IRRELEVANT],
    "all relevant": [Outcome.RELEVANT],
    "both": [Outcome.RELEVANT, Outcome.IRRELEVANT],
}


def numbers_of(value: Any) -> Iterator[float]:
    """Every float in a report, wherever it stands."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        yield from numbers_of(list(value.values()))
    elif isinstance(value, list | tuple):
        for member in value:
            yield from numbers_of(member)


def played(prior: Prior, history: list[Event]) -> QueryState:
    state = State()
    step(state, Query("q", prior=prior))
    query = state.queries["q"]
    for event in history:
        step(state, event)
        query.ranking()
    query.finish()
    return query


def assert_good(query: QueryState) -> None:
    got, expected = report(query), dense_of(query)
    assert all(map(math.isfinite, numbers_of(astuple(got))))
    assert all(map(math.isfinite, numbers_of(astuple(query.ranking()))))
    people: Floats = np.array([mean for mean, _ in got.participants.values()])
    np.testing.assert_allclose(people, expected.mean, atol=PROMISED)
    np.testing.assert_allclose([edge.mean for edge in got.edges], expected.edge_mean, atol=PROMISED)


def test_every_model_says_where_it_is_good() -> None:
    assert list(MODEL_SETTINGS) == list(KNOWN)


@pytest.mark.parametrize("model", MODELS)
@given(st.data())
def test_means_are_as_good_as_promised_over_the_whole_of_the_ranges(model: ModelName, data: st.DataObject) -> None:
    assert_good(played(data.draw(priors_in_range(model)), data.draw(facts())))


def test_means_are_as_good_as_promised_where_many_follow_each_other_closely() -> None:
    """With δ near 1 an error of Q⁻¹ counts for more, and so it does in a table whose rows differ as these do."""
    table = Conditional(a=(41.0, 1.0, 1.0, 0.125), b=(1.0, 947.0, 429.0, 21.0))
    prior = Prior(model="relevance", mean=0.875, correlation=0.96875, conditional=table)
    together = [("p0", "p1"), ("p0", "p2"), *4 * [("p0", "p1")], ("p0", "p1", "p3", "p4"), *3 * [("p0", "p1")]]
    history: list[Event] = [item(f"i{k}", *people) for k, people in enumerate(together)]
    history += [verdict(k, f"i{k}", Outcome.RELEVANT) for k in range(2)]
    assert_good(played(prior, history))


def table(mean: float, correlation: float, a: Sequence[float], b: Sequence[float], **listed: float) -> Prior:
    conditional = Conditional(a=tuple(a), b=tuple(b))
    return Prior(
        model="relevance", mean=mean, correlation=correlation, conditional=conditional, participants=listed
    )


PATH, STAR, RING = [(0, 1), (1, 2)], [(0, 1), (0, 2), (0, 3)], [(0, 1), (1, 2), (2, 3), (3, 0)]
DELICATE: dict[str, tuple[Prior, list[tuple[int, int]], int, str]] = {
    "an item is relevant where both ends are not": (
        table(0.5, 0.875, (1.0, 0.25, 1.0, 0.125), (24.0, 2.0, 1.0, 21.0)),
        [(0, 1)],
        3,
        "r",
    ),
    "two who are almost surely alike": (
        table(0.25, -0.9, (369.0, 0.5, 0.11, 732.0), (0.49, 159.0, 460.0, 0.14)),
        PATH,
        3,
        "iir",
    ),
    "two who are almost surely not": (
        table(0.25, -0.5, (1.9, 810.0, 152.0, 0.12), (86.0, 0.47, 0.44, 119.0)),
        [(0, 1)],
        6,
        "iiiri",
    ),
    "a prior that is nearly at its bound": (
        table(0.75, -0.9, (0.375, 0.23, 18.7, 40.1), (0.215, 80.0, 0.21, 0.22)),
        STAR,
        2,
        "ir",
    ),
    "two of a watch-list": (
        table(0.489, 0.561, (0.449, 0.1, 8.13, 0.292), (461.0, 425.0, 0.409, 4.26), p0=0.0426, p1=0.772),
        STAR,
        1,
        "iri",
    ),
    "rates that follow each other closely": (
        Prior(mean=2e-6, correlation=-0.98, weight=7.8, participant=0.67, edge=0.085),
        RING,
        2,
        "riirr",
    ),
    "rates of which an edge is the sum": (
        Prior(mean=5e-6, correlation=-0.15, weight=1e3, participant=2.0, edge=784.0),
        [(0, 1)],
        200,
        99 * "ri",
    ),
    "rates of which several edges are": (
        Prior(mean=2e-4, correlation=-0.19, weight=1e4, participant=0.5, edge=7e3),
        PATH,
        200,
        150 * "ri",
    ),
}
"""Priors where what is approximated counts for much more than at the defaults: edges whose prior follows the
correlation of their ends, or whose weight holds these together. With pairs, items of each, and verdicts in turn."""


@pytest.mark.parametrize(("prior", "pairs", "each", "said"), DELICATE.values(), ids=DELICATE)
def test_means_are_as_good_as_promised_where_errors_count_for_most(
    prior: Prior, pairs: list[tuple[int, int]], each: int, said: str
) -> None:
    history: list[Event] = [
        item(f"i{k}", *(f"p{u}" for u in pairs[k % len(pairs)])) for k in range(each * len(pairs))
    ]
    outcomes = {"r": Outcome.RELEVANT, "i": Outcome.IRRELEVANT}
    history += [verdict(k, f"i{k}", outcomes[letter]) for k, letter in enumerate(said)]
    assert_good(played(prior, history))


def ends_of_ranges() -> Iterator[Any]:
    """A default prior with one number at an end of its range."""
    for model, prior in DEFAULT_PRIORS.items():
        for name, allowed in MODEL_SETTINGS[model].ranges.items():
            for end in allowed:
                value: Any = end
                if name == "participants":
                    value = {"p1": end, "p2": sum(allowed) - end}
                if name == "conditional":
                    value = replace(prior.conditional, a=(*prior.conditional.a[:3], end))
                yield pytest.param(replace(prior, **{name: value}), id=f"{model}-{name}-{end:g}")


@pytest.mark.parametrize("outcomes", OUTCOMES)
@pytest.mark.parametrize("prior", list(ends_of_ranges()))
def test_either_end_of_every_range_is_good_after_many_verdicts(prior: Prior, outcomes: str) -> None:
    rng = np.random.default_rng(3)
    pairs = [rng.choice(12, 2, replace=False) for _ in range(40)]
    history: list[Event] = [item(f"i{k}", f"p{u}", f"p{v}") for k, (u, v) in enumerate(pairs)]
    said = OUTCOMES[outcomes]
    history += [verdict(k, f"i{k}", said[k % len(said)]) for k in range(30)]
    assert_good(played(prior, history))


@pytest.mark.parametrize("model", MODELS)
def test_just_outside_of_a_range_settings_are_refused_and_the_old_ones_stand(model: ModelName) -> None:
    prior = DEFAULT_PRIORS[model]
    state = State()
    step(state, Query("q", prior=prior))
    for name, (least, most) in MODEL_SETTINGS[model].ranges.items():
        for number in (math.nextafter(least, -math.inf), math.nextafter(most, math.inf)):
            value: Any = number
            if name == "participants":
                value = {"p1": 0.5, "p2": number}
            if name == "conditional":
                value = replace(prior.conditional, b=(number, *prior.conditional.b[1:]))
            outside = replace(prior, **{name: value})
            for query_id in ("q", "new"):
                with pytest.raises(Rejected, match=rf"prior\.{name}") as refused:
                    step(state, Query(query_id, prior=outside))
                assert refused.value.code is Code.OUT_OF_RANGE
    assert state.queries.keys() == {"q"}
    assert state.queries["q"].settings.prior == prior


def test_what_is_no_setting_of_the_model_is_not_looked_at() -> None:
    step(State(), Query("q", prior=replace(DEFAULT_PRIORS["relevance"], weight=1e-20)))
