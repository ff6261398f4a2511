"""Where models say that their engines are good, they are; elsewhere settings are refused."""

import math
from collections.abc import Iterator
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dense import dense_of
from support.histories import MODELS, facts, item, priors_in_range, verdict

from haystream.arrays import Floats
from haystream.errors import Code, Rejected
from haystream.events import Conditional, Event, ModelName, Outcome, Prior, Query
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.models import MODELS as KNOWN
from haystream.query_state import QueryState
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
    state, _ = step(State(), Query("q", prior=prior))
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


def ends_of_ranges() -> Iterator[Any]:
    """A default prior with one number at an end of its range."""
    for model, prior in DEFAULT_PRIORS.items():
        for name, allowed in KNOWN[model].ranges.items():
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
    state, _ = step(State(), Query("q", prior=prior))
    for name, (least, most) in KNOWN[model].ranges.items():
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
