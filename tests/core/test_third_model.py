"""A third model is a class, its settings and a line for each: this file has both, and `register` is the lines."""

from collections.abc import Iterator
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dense import CLOSE, Floats
from support.histories import facts, fold, item, verdict

from haystream.collection.graph import Graph
from haystream.errors import Code, Rejected
from haystream.events import Event, Outcome, Prior, Query
from haystream.fold import State, step
from haystream.memory.arrays import Ints
from haystream.models.base import Ends, Posteriors, Priors
from haystream.models.common import Common
from haystream.models.ranges import OF_ALL_MODELS, Range
from haystream.models.rates_dense import LinearMoments
from haystream.models.registry import MODELS
from haystream.models.settings import MODEL_SETTINGS, ModelSettings
from haystream.query.state import QueryState
from haystream.report import report

SETTINGS = ModelSettings(
    defaults=Prior(model="unequal", mean=0.2, correlation=0.7, weight=4.0),
    own_fields=("weight", "participant", "edge"),
    ranges={
        **OF_ALL_MODELS,
        "weight": Range(0.1, 1e4),
        "participant": Range(0.5, 1e4),
        "edge": Range(0.1, 1e4),
    },
)


class Unequal:
    """Rates of which that of the id that sorts first counts three times as much: P = ¾ R_u + ¼ R_v + η."""

    correlation_weight = 0.0

    def __init__(self, prior: Prior) -> None:
        self._prior = prior
        self.common_weight = prior.weight
        self.prior_scale = prior.mean * (1.0 - prior.mean)
        self.largest_scale = prior.participant**-0.5

    def scale(self, mean: Floats, inverse_diagonal: Floats) -> Floats:
        return 1.0 / np.sqrt(self._prior.participant * inverse_diagonal)

    def priors(
        self, tail: Ints, head: Ints, which: Ints, mean: Floats, scale: Floats, inverse_edge: Floats
    ) -> Priors:
        u, v, k = tail[which], head[which], len(which)
        residual, bound = np.full(k, 1.0 / self._prior.edge), np.zeros(k, np.uint8)
        return Priors(
            0.75 * mean[u] + 0.25 * mean[v], np.ones(k), 0.75 * scale[u], 0.25 * scale[v], residual, bound
        )

    def posteriors(self, ends: Ends, n: Floats, y: Floats, common: Common) -> Posteriors:
        part = self._prior.edge / (self._prior.edge + n)
        free = np.clip(0.75 * ends.mean_tail + 0.25 * ends.mean_head, 0.001, 0.999)
        mean = part * free + y / (self._prior.edge + n)
        varies = (9 * ends.variance_tail + ends.variance_head + 6 * ends.covariance) / 16
        variance = mean * (1 - mean) / (1 + self._prior.edge + n) + part**2 * np.maximum(varies, 0)
        return Posteriors(mean, variance, part * (0.75 * ends.reach_tail + 0.25 * ends.reach_head))

    def moments(self, graph: Graph) -> LinearMoments:
        return LinearMoments(graph, self._prior, on_tail=0.75)


@pytest.fixture(autouse=True, scope="module")
def register() -> Iterator[None]:
    with mock.patch.dict(MODELS, unequal=Unequal), mock.patch.dict(MODEL_SETTINGS, unequal=SETTINGS):
        yield


def opened(engine: str, history: list[Event]) -> QueryState:
    query = Query("q", prior=SETTINGS.defaults, engine="local" if engine == "local" else "reference")
    return fold([query, *history]).queries["q"]


@given(facts(), st.sets(st.integers(0, 13)))
def test_both_engines_agree_on_it_after_any_history(history: list[Event], held: set[int]) -> None:
    queries = [opened(engine, history) for engine in ("local", "reference")]
    for query in queries:
        for number in sorted(held):
            query.hold(f"i{number}")
    one, other = map(report, queries)
    for of_one, of_other in zip(one.participants.values(), other.participants.values(), strict=True):
        np.testing.assert_allclose(of_one, of_other, atol=CLOSE)
    for edge, same in zip(one.edges, other.edges, strict=True):
        assert edge.participants == same.participants
        np.testing.assert_allclose((edge.mean, edge.variance), (same.mean, same.variance), atol=CLOSE)
    numbers = [
        (r.base_rate, r.discrepancy, r.expected_remaining.mean, r.expected_remaining.sd) for r in (one, other)
    ]
    np.testing.assert_allclose(*numbers, rtol=1e-7, atol=CLOSE)
    assert {i.item_id for i in one.items} == {i.item_id for i in other.items}
    np.testing.assert_allclose([i.score for i in one.items], [i.score for i in other.items], atol=CLOSE)


@given(facts(), st.data())
def test_both_engines_name_the_same_shares(history: list[Event], data: st.DataObject) -> None:
    queries = [opened(engine, history) for engine in ("local", "reference")]
    for query in queries:
        query.finish()
    edge = data.draw(st.integers(0, queries[0].collection.graph.edges - 1))
    one, other = (dict(query.engine.readings.shares([edge])) for query in queries)
    for screened in one.keys() | other.keys():
        assert one.get(screened, 0.0) == pytest.approx(other.get(screened, 0.0), abs=CLOSE)


@pytest.mark.parametrize("engine", ["local", "reference"])
def test_its_ranking_follows_it_and_says_why(engine: str) -> None:
    """What a and b did counts for a more than for b."""
    pairs = ("a", "b"), ("b", "d"), ("a", "c"), ("x", "y")
    history: list[Event] = [*(item(u + v, u, v) for u, v in pairs), verdict(0, "ab", Outcome.RELEVANT)]
    ranking = opened(engine, history).ranking()
    assert [each.item_id for each in ranking.items] == ["ac", "bd", "xy"]
    assert [tuple(share.participants for share in each.because) for each in ranking.items] == [
        (("a", "b"),),
        (("a", "b"),),
        (),
    ]
    assert ranking.expected_remaining.mean > 3 * SETTINGS.defaults.mean


def test_a_model_without_the_line_is_refused() -> None:
    state = State()
    step(state, item("i", "a", "b"))
    with pytest.raises(Rejected) as error:
        step(state, Query("q", prior=Prior(model="fourth")))
    assert error.value.code == Code.UNSUPPORTED
    assert not state.queries
