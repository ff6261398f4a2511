"""What a query is told by at a glance, whether news concern it, is a bound of what it would compute."""

from dataclasses import replace

import numpy as np
import pytest
from support.seeds import seeds
from tests.core.test_concern import PEOPLE, STILL, TOP, Twins, World, judged, settings

from haystream.engines.local import LocalEngine
from haystream.events import Policy, Query
from haystream.models import DEFAULT_PRIORS
from haystream.query.concern import News
from haystream.query.state import QueryState

LISTED = {"p1": 0.5, "p2": 0.01, "p310": 0.6}


def local(state: QueryState) -> LocalEngine:
    assert isinstance(state.engine, LocalEngine)
    return state.engine


@pytest.mark.parametrize("listed", [{}, LISTED])
def test_a_new_pair_is_hoped_for_by_what_its_ends_means_are_above_the_others(listed: dict[str, float]) -> None:
    world = World(1)
    state = judged(world, settings("q", participants=listed), 30).late
    engine, readings = local(state), local(state).readings
    common, told = readings.rounded_common(), engine._columns.state.tolerances.told
    people = np.arange(PEOPLE, dtype=np.int32)
    mean, reach, _ = readings.given_common(people)
    lift = mean + common.mean_shift * reach - common.mean_shift - state.settings.prior.mean
    assert (lift > told).sum() > 3
    expected = common.base_rate + np.where(lift > told, lift, 0.0)
    np.testing.assert_allclose([engine.ahead.mean_at_most([u]) for u in people.tolist()], expected, atol=1e-12)
    both = engine.ahead.mean_at_most([0, 1]) - engine.ahead.mean_at_most([0])
    assert both == pytest.approx(expected[1] - common.base_rate)
    world.item("p310", "nobody yet")  # of whom the engine has no rows
    ends = world.collection.graph.ends(world.collection.graph.edges - 1)
    above = listed["p310"] - state.settings.prior.mean if listed else 0.0
    assert engine.ahead.mean_at_most(ends) == pytest.approx(common.base_rate + above)


@pytest.mark.parametrize("model", ["rates", "relevance"])
@pytest.mark.parametrize("horizon", [1, 4, 30])
def test_what_is_plain_of_sets_is_a_bound_of_their_scores(model: str, horizon: int) -> None:
    world = World(2)
    query = replace(settings("q"), prior=DEFAULT_PRIORS[model], policy=Policy(STILL[0], horizon=horizon))
    state = judged(world, query, 25).late
    queue, engine, known = state.queue, local(state), world.collection.graph.edges
    for _ in range(25):
        world.on_known_pair()
        world.item(*world.some(2, PEOPLE + 40))
        world.item("p3", f"new{len(world.items)}")
    sets = tuple(range(len(world.collection.sets)))
    others, own = queue.prospects.not_own(sets, known)
    assert sorted([*others, *own]) == list(sets)
    assert len(own) > 20
    score = queue.prospects.score_ahead(engine.ahead, np.array(sets, np.int32), len(world.items) - 600)
    plain = 0
    for which in others:
        edges = world.collection.sets.edges(which)
        ends = {end for edge in edges if edge >= known for end in world.collection.graph.ends(edge)}
        bound = queue.prospects.most_by_prior(which, engine.ahead.mean_at_most(sorted(ends)))
        assert score[which] <= bound + 1e-9
        plain += bound < 1.0
    assert plain > 20 or model == "relevance"
    for which in own:
        above = score[which] - 1e-6
        assert not queue.prospects.stays_below(which, above)


def test_queries_say_the_same_whether_or_not_others_were_asked_before() -> None:
    """What is computed once for all of a kind holds for each of them, and for no other kind."""
    world = World(3)
    busy = [world.collection.graph.names(edge) for edge in range(25)]
    for number in range(200):  # sets of many items, whose score depends on the horizon
        world.item(*busy[number % 25])
    policies = [*map(Policy, STILL), Policy(STILL[0], horizon=3)]
    priors: list[dict[str, object]] = [{}, {"mean": 0.02}, {"participants": LISTED}]
    queries = [replace(settings("q", **prior), policy=policy) for prior in priors for policy in policies]
    states = [QueryState(replace(query, top=top), world.collection) for query in queries for top in (5, 12, 40)]
    verdicts = [world.verdict("q", number) for number in range(3)]
    said: set[bool] = set()
    for number in range(60):
        for state in states:
            state.ranking()
            if number == 30:  # the same ones, so that a kind's queries have one common mean before and after
                for verdict in verdicts:
                    state.apply_verdict(verdict)
                state.ranking()
            state.finish()
        world.item(*busy[number % 25]) if number % 3 == 0 else world.any_item()
        seen = [state._attention._seen for state in states]
        together = {n: states[n].concerned() for n in world.rng.permutation(len(states)).tolist()}
        for n, state in enumerate(states):
            state._attention._seen = seen[n]
            world.collection.shared.pop(News, None)
            assert state.concerned() == together[n]
            said.add(together[n])
    assert said == {True, False}


def strangers(world: World, number: int) -> None:
    """A new pair of two whom nobody knows."""
    world.item(f"new{number}", f"newer{number}")


@pytest.mark.parametrize("policy", STILL)
@pytest.mark.parametrize("seed", seeds(3))
def test_a_pair_far_from_all_data_that_is_no_concern_leaves_the_first_items_as_they_are(
    policy: str, seed: int
) -> None:
    world, waited = World(seed), 0
    prior = [{}, {"mean": 0.02}, {"participants": {**LISTED, "new3": 0.7}}][seed]
    twins = [judged(world, settings(f"q{n}", policy, **prior), 10 + 10 * n) for n in range(3)]
    twins.append(Twins.on(world.collection, replace(settings("wide", policy, **prior), top=30)))
    for number in range(12):
        strangers(world, number)
        for each in twins:
            if each.could_wait():
                waited += 1
                each.look()
    assert waited > 10


def test_queries_of_one_kind_have_one_number_and_others_another() -> None:
    world = World(4)
    query = Query("a", top=TOP)

    def kind(query: Query) -> int | None:
        return QueryState(query, world.collection)._attention._kind(query)

    same = [query, replace(query, top=3), replace(query, prior=replace(query.prior, participants=LISTED))]
    assert len({kind(each) for each in same}) == 1
    others = [replace(query, policy=Policy("greedy")), replace(query, prior=replace(query.prior, mean=0.3))]
    assert len({kind(each) for each in [query, *others]}) == 3
    assert kind(replace(query, policy=Policy("thompson"))) is None
