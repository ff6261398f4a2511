"""The rates model: its base rate against the printed formulas, edge posteriors, what scores are made with."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dense import TIGHT, Floats, dense_of, precision
from support.histories import facts, fold, histories, item, line, verdict

from haystream.engines.local import LocalEngine
from haystream.engines.local.readings.telling import told_at
from haystream.errors import Code, Rejected
from haystream.events import Covariance, Event, Outcome, Query
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.models.base import Ends, Posteriors
from haystream.models.common import Common, learned, rounded
from haystream.models.rates import Rates
from haystream.query.state import QueryState

RATES = DEFAULT_PRIORS["rates"]
MODEL = Rates(RATES)


def printed_base_rate(query: QueryState) -> float:
    """docs/method.md, "Why the linear form", line by line: Λ, X, O and m, from the counts."""
    prior, graph = query.settings.prior, query.collection.graph
    ends, m = np.array(graph.pairs), len(graph)
    n, y, _ = query.engine.readings.counts(np.arange(graph.edges, dtype=np.int32))
    inverse = np.linalg.inv(precision(query.settings, ends, m))
    S = 1 / np.sqrt(np.diag(inverse))
    g = prior.edge * n / (prior.edge + n)
    offset = np.array([prior.participants.get(p, prior.mean) - prior.mean for p in graph.participants])
    average = np.divide(y, n, out=np.zeros(len(n)), where=n > 0) - offset[ends].mean(axis=1)
    lam = prior.participant * np.linalg.inv(inverse * np.outer(S, S))
    at_x, at_o = np.zeros(m), np.zeros(m)
    for e, (u, v) in enumerate(ends):
        lam[np.ix_([u, v], [u, v])] += g[e] / 4
        at_x[[u, v]] += g[e] * average[e] / 2
        at_o[[u, v]] += g[e] / 2
    X, reached = np.linalg.solve(lam, at_x), np.linalg.solve(lam, at_o)
    above = prior.weight * prior.mean + g @ (average - X[ends].mean(axis=1))
    return float(above / (prior.weight + g @ (1 - reached[ends].mean(axis=1))))


@given(histories(models=("rates",)))
def test_the_learned_base_rate_is_the_printed_one_after_any_history(history: list[Event]) -> None:
    state = State(tolerance=TIGHT)
    for number, event in enumerate(history):
        step(state, event)
        if number % 3 == 0 and "q" in state.queries:
            state.queries["q"].finish()
    query = state.queries["q"]
    query.finish()
    learnt = query.settings.prior.mean + query.engine.readings.common().mean_shift
    assert learnt == pytest.approx(printed_base_rate(query), abs=1e-9)


@given(st.data())
def test_the_order_of_facts_does_not_move_what_scores_are_made_with(data: st.DataObject) -> None:
    events: list[Event] = [Query("q", prior=RATES), *data.draw(facts())]
    again = State(tolerance=TIGHT)
    for number, event in enumerate(data.draw(st.permutations(events))):
        step(again, event)
        if number % 4 == 0 and "q" in again.queries:
            again.queries["q"].finish()
    one, other = fold(events).queries["q"], again.queries["q"]
    readings = []
    for query in (one, other):
        query.finish()
        graph = query.collection.graph
        order = sorted(range(graph.edges), key=graph.names)
        readings.append(np.column_stack(query.engine.readings.scoring(np.array(order, dtype=np.int32))))
    np.testing.assert_allclose(*readings, atol=1e-9)


def ends(tail: float, head: float, *, variance: float = 0.01, reach: float = 0.5) -> Ends:
    columns = (tail, head, variance, variance, 0.5 * variance, reach, reach)
    return Ends(*(np.array([column]) for column in columns))


def read(given_ends: Ends, n: float, y: float, common: Common) -> Posteriors:
    return MODEL.posteriors(given_ends, np.array([n]), np.array([y]), common)


def at(base: float) -> Common:
    return Common(base_rate=base, mean_shift=base - 0.1, variance=0.1, scale=base * (1 - base))


rate = st.floats(-0.5, 1.5)


@given(rate, rate, st.floats(0, 0.3), st.floats(0, 50), st.floats(0, 1), st.floats(1e-6, 1 - 1e-6))
def test_an_edge_posterior_is_that_of_a_beta(
    tail: float, head: float, variance: float, n: float, part: float, base: float
) -> None:
    mean, spread, _ = read(ends(tail, head, variance=variance), n, part * n, at(base))
    assert 0 < mean[0] < 1
    assert 0 < spread[0] < mean[0] * (1 - mean[0])


def test_an_edge_posterior_by_hand() -> None:
    """κ = 3, m_e = (0.2 + 0.4)/2 = 0.3, n = 2, y = 1: M = (0.9 + 1)/5 = 0.38.

    Var(m_e) = (0.01 + 0.01 + 2·0.005)/4 = 0.0075, σ² = 0.2·0.8: 1/K = 1/5 + 0.6²·0.0075/0.16 = 0.216875.
    """
    mean, variance, slope = read(ends(0.2, 0.4), 2, 1, at(0.2))
    np.testing.assert_allclose([mean[0], slope[0]], [0.38, 0.6 * 0.5])
    np.testing.assert_allclose(variance[0], 0.38 * 0.62 / (1 / 0.216875 + 1))


def test_below_the_floor_the_better_of_two_stays_the_better() -> None:
    means = [read(ends(r, r), 0, 0, at(0.1)).mean[0] for r in (-2.0, -0.5, -0.4, -0.01, 0.0, 0.0099, 0.0101, 0.2)]
    assert np.all(np.diff(means) > 0)
    assert means[0] > 0.0098
    high = [read(ends(r, r), 0, 0, at(0.1)).mean[0] for r in (0.5, 0.9, 0.95, 1.2, 3.0)]
    assert np.all(np.diff(high) > 0)
    assert high[-1] < 1


@given(rate, rate, st.floats(0, 20))
def test_the_slope_is_the_derivative_in_the_shift(tail: float, head: float, n: float) -> None:
    step_size, reach = 1e-6, 0.5
    before, after = ends(tail, head), ends(tail + step_size * reach, head + step_size * reach)
    one, other = read(before, n, 0, at(0.1)), read(after, n, 0, at(0.1 + step_size))
    kinked = any(abs(r - kink) < 1e-5 for r in (tail, head) for kink in (0, 1))
    middle = (np.clip(tail, 0, 1) + np.clip(head, 0, 1)) / 2
    if kinked or abs(middle - 0.01) < 1e-5 or abs(middle - 0.91) < 1e-5:
        return
    # Beyond the floor the slope leaves out what tells ties apart: a hundredth.
    assert (other.mean - one.mean)[0] / step_size == pytest.approx(one.slope[0], abs=2e-3)


def test_scores_are_made_at_most_a_quarter_of_an_octave_off() -> None:
    for shift in np.linspace(-0.099, 0.8, 200):
        exact = learned(0.1, 2.0, float(shift), 0.013)
        near = rounded(exact, 0.1, 2.0, own=0.25)
        assert abs(np.log2(odds(near.base_rate) / odds(exact.base_rate))) <= 1 / 4 + 1e-12
        assert near.mean_shift == near.base_rate - 0.1
    untouched = learned(0.1, 2.0, 0.0, 0.5)
    assert rounded(untouched, 0.1, 2.0, own=0.25) == untouched


@given(st.floats(0.01, 1e4), st.floats(0, 1), st.floats(0.01, 1e4), st.floats(0, 20), st.floats(0, 1))
def test_a_score_varies_by_at_most_a_quarter_of_an_octave_too_much(
    weight: float, left: float, edge: float, n: float, reach: float
) -> None:
    """By the spread 1/K of its beta, however much is known of the edge, and of its ends beside what all share."""
    model = Rates(replace(RATES, weight=weight, edge=edge))
    exact = learned(0.1, weight, 0.0, left / weight)
    near = rounded(exact, 0.1, weight, own=1 / edge)

    def spread(common: Common) -> float:
        varies = np.array([common.scale * common.variance * reach * reach])
        at_both = Ends(*np.full((2, 1), 0.2), *[varies] * 3, *np.full((2, 1), reach))
        mean, variance, _ = (
            column.item() for column in model.posteriors(at_both, np.array([n]), np.zeros(1), common)
        )
        return variance / (mean * (1 - mean) - variance)

    assert near.variance >= 0
    assert abs(np.log2(spread(near) / spread(exact))) <= 1 / 4 + 1e-9


def test_what_all_share_becomes_exact_takes_few_steps() -> None:
    taken = {rounded(learned(0.1, 2.0, 0.0, 1 / (2 + n)), 0.1, 2.0, own=0.25).variance for n in range(10_000)}
    assert len(taken) == 4  # log2(0.75 / 0.25) octaves, in halves


def test_what_readers_are_told_is_compared_at_no_less_than_the_variance_that_they_read_at() -> None:
    engine = fold([Query("q", prior=RATES), *line(60)]).queries["q"].engine
    assert isinstance(engine, LocalEngine)
    less = 0
    for number in range(40):
        engine.record(4 * (number % 10), screened=1.0)
        engine.settle()
        exact, near = engine.readings.known_common().variance, engine.readings.rounded_common().variance
        assert told_at(engine._columns, engine.readings).variance >= max(exact, near)
        less += near < exact
    assert 0 < less < 40


def odds(p: float) -> float:
    return p / (1 - p)


def test_settle_names_every_edge_when_what_scores_are_made_with_moves() -> None:
    state = fold([Query("q", prior=RATES), *line(60), item("far", "x", "y")])
    query = state.queries["q"]
    query.finish()
    engine, edges = query.engine, query.collection.graph.edges
    everything = np.arange(edges, dtype=np.int32)
    before, named_all = engine.readings.scoring(everything)[0], 0
    for number in range(40):
        engine.record(4 * (number % 10), screened=1.0)
        common = engine.readings.rounded_common()
        named = (
            everything
            if (moved := engine.settle()) and engine.readings.rounded_common() != common
            else moved.scores
        )
        after = engine.readings.scoring(everything)[0]
        still = np.setdiff1d(everything, named)
        np.testing.assert_allclose(after[still], before[still], atol=1e-10)
        named_all += len(named) == edges
        before = after
    assert 0 < named_all < 40
    assert before[-1] < 0.1  # nothing links that edge to the data but the common mean


def test_a_watch_list_that_the_data_contradict_leaves_a_base_rate() -> None:
    """Offsets of 0.8 taken off items that are all irrelevant ask for a negative rate."""
    watched = replace(RATES, participants={f"p{i:03d}": 0.9 for i in range(13)})
    events: list[Event] = [Query("q", prior=watched), *line(12)]
    events += [verdict(k, f"i{k}", Outcome.IRRELEVANT) for k in range(12)]
    query = fold(events).queries["q"]
    query.finish()
    common = query.engine.readings.common()
    assert RATES.mean + common.mean_shift < 0 < common.base_rate
    everything = np.arange(12, dtype=np.int32)
    for mean, variance in (query.engine.readings.edges(everything), query.engine.readings.scoring(everything)[:2]):
        assert np.all((mean > 0) & (mean < 1) & (variance > 0))
    expected: Floats = dense_of(query).edge_mean
    np.testing.assert_allclose(query.engine.readings.edges(everything)[0], expected, atol=1e-9)


@pytest.mark.parametrize(("level", "outcome"), [(0.9, Outcome.IRRELEVANT), (0.01, Outcome.RELEVANT)])
def test_what_is_expected_to_remain_is_the_sum_of_means_though_the_data_contradict_a_watch_list(
    level: float, outcome: Outcome
) -> None:
    """With items of several people, some of them handed out, and pairs that neither the data nor the list reach."""
    rng, prior = np.random.default_rng(3), replace(RATES, mean=0.3, participants={f"p{k}": level for k in range(8)})
    mails = [[f"p{k}" for k in rng.choice(60, int(rng.integers(2, 5)), replace=False)] for _ in range(300)]
    mails += [[f"x{2 * k}", f"x{2 * k + 1}"] for k in range(100)]
    state = State()
    step(state, Query("q", prior=prior))
    for number, people in enumerate(mails):
        step(state, item(f"i{number}", *people, sender=people[0]))
    query = state.queries["q"]
    judged = [number for number, people in enumerate(mails) if not prior.participants.keys().isdisjoint(people)]
    for number in judged[:20]:
        query.hold(query.ranking().items[-1].item_id)
        step(state, verdict(number, f"i{number}", outcome))
        left, readings = query.ranking().expected_remaining, query.engine.readings
        everywhere = np.arange(query.collection.graph.edges, dtype=np.int32)
        expected = float(readings.counts(everywhere)[2] @ readings.edges(everywhere)[0])
        learnt = readings.concentration_slope() * readings.concentration()[0]
        assert left.mean == pytest.approx(expected + learnt, rel=0.01)
    common = query.engine.readings.common()
    assert abs(prior.mean + common.mean_shift - common.base_rate) > 0.05  # no line goes as far
    assert query.queue.owned < len(query.collection.sets)


def test_rates_have_no_explicit_covariance() -> None:
    prior = replace(RATES, covariance=Covariance(("a",), ((0.1,),)))
    with pytest.raises(Rejected) as error:
        step(State(), Query("q", prior=prior))
    assert error.value.code == Code.UNSUPPORTED
