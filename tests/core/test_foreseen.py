"""What a step of the common mean asks for is made before the verdict that takes it, and changes nothing."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pytest
from support.late import late_sets
from support.seeds import seeds

from haystream.engines.local import LocalEngine
from haystream.engines.local.solves.budget import PROMISE
from haystream.events import Action, Event, Item, LeaseFact, Outcome, Policy, Prior, Query, Verdict, Withdrawal
from haystream.fold import State, step
from haystream.memory.arrays import Ints
from haystream.query.state import QueryState
from haystream.ranking.foreseen import MOST_FORESEEN, Foreseen
from haystream.ranking.set_ranking import SetRanking

ITEMS, PEOPLE, EVENTS, FIRST = 1200, 900, 80, 5

late = partial(late_sets, candidates=800)

SETTINGS = [
    Query("q", top=FIRST),
    Query("q", top=FIRST, policy=Policy("greedy")),
    Query("q", top=FIRST, prior=Prior(mean=0.3, correlation=0.5)),
]


def items() -> Iterator[Item]:
    rng = np.random.default_rng(0)
    for number in range(ITEMS):
        several = rng.choice([2, 2, 2, 3])
        sender, *recipients = rng.choice(PEOPLE, several, replace=False)
        yield Item(f"i{number}", "default", f"p{sender}", tuple(sorted(f"p{each}" for each in recipients)))


def begun(settings: Query) -> tuple[State, QueryState]:
    """A query on many items, and its state."""
    state = State()
    for each in items():
        step(state, each)
    step(state, settings)
    return state, state.queries["q"]


def event(number: int, offered: str, rng: np.random.Generator) -> Event:
    """Mostly a verdict, on what is offered first or on anything."""
    which = offered if rng.random() < 0.5 else f"i{rng.integers(ITEMS)}"
    chosen = rng.random()
    if chosen < 0.05:
        return Item(f"i{ITEMS + number}", "default", f"p{number % PEOPLE}", (f"p{(number + 1) % PEOPLE}",))
    if chosen < 0.1:
        return Withdrawal(which, "default")
    if chosen < 0.15:
        return LeaseFact(f"l{number}", "q", which, "bob", Action.CLAIMED, number, number + 1000)
    if chosen < 0.2:
        return LeaseFact(f"l{rng.integers(1 + number)}", "q", which, "bob", Action.RELEASED, number, number + 1000)
    outcome = Outcome.RELEVANT if rng.random() < 0.4 else Outcome.IRRELEVANT
    return Verdict(f"v{number}", "q", which, "ann", outcome, number)


def scored(query: QueryState) -> dict[int, tuple[float, ...]]:
    """The score and the terms of each set that is in the tournament."""
    ranking = query.queue._ranking
    at = np.flatnonzero(ranking._scores[: ranking.own.entries] > -np.inf).astype(np.int32)
    columns = np.column_stack([ranking._scores[at], ranking._tournament.places.terms[at]])
    return dict(zip(ranking.own.numbers(at).tolist(), map(tuple, columns.tolist()), strict=True))


class Taken:
    """How many sets were taken as foreseen."""

    def __init__(self) -> None:
        self.sets = 0
        self._take = SetRanking._take_foreseen

    def __call__(self, ranking: SetRanking, foreseen: Foreseen, due: Ints) -> Ints:
        again = self._take(ranking, foreseen, due)
        self.sets += len(np.setdiff1d(foreseen.at, again))
        return again


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("settings", SETTINGS)
def test_whoever_foresees_scores_the_same(settings: Query, seed: int) -> None:
    rng, taken = np.random.default_rng(seed), Taken()
    (state, query), (other_state, other) = begun(settings), begun(settings)
    same_reference = mock.patch.object(LocalEngine, "foresee", return_value=False)
    with late(), same_reference, mock.patch.object(SetRanking, "_take_foreseen", lambda *given: taken(*given)):
        for number in range(EVENTS):
            offered = query.ranking().items[0].item_id
            if rng.random() < 0.8:
                query.finish()
                other.finish()
                while query.foresee():
                    pass
            for again in range(2 if rng.random() < 0.1 else 1):
                news = event(2 * number + again, offered, rng)
                step(state, news)
                step(other_state, news)
            here, there = query.ranking(), other.ranking()
            mine, its = scored(query), scored(other)
            assert len(mine.keys() & its.keys()) > min(len(mine), len(its)) // 2
            assert all(mine[which] == its[which] for which in mine.keys() & its.keys())
            assert [item.item_id for item in here.items] == [item.item_id for item in there.items]
            for one, same in zip(here.items, there.items, strict=True):
                mine_of, its_of = dict(one.because), dict(same.because)
                for pair in mine_of.keys() | its_of.keys():  # what moves no mean as much is not heard of
                    assert abs(mine_of.get(pair, 0.0) - its_of.get(pair, 0.0)) < 8 * PROMISE
            one, same = here.expected_remaining, there.expected_remaining
            # The ranking by the prior is made here, and there it may be late: that is an estimate.
            np.testing.assert_allclose([one.mean, one.sd], [same.mean, same.sd], rtol=0.002)
    assert taken.sets > 100
    query.finish()
    other.finish()
    assert list(query.queue.items()) == list(other.queue.items())


def foreseeing() -> QueryState:
    """A query that has foreseen where the next verdict leads."""
    state, query = begun(SETTINGS[0])
    for number in range(4):
        step(state, Verdict(f"v{number}", "q", query.ranking().items[0].item_id, "ann", Outcome.IRRELEVANT, number))
        query.finish()
        while query.foresee():
            pass
        if query.queue._ranking._foreseen:
            return query
    raise AssertionError("no verdict would have moved the common mean")


def test_it_foresees_where_either_verdict_leads_and_no_more() -> None:
    with late():
        query = foreseeing()
        assert 1 <= len(query.queue._ranking._foreseen) <= MOST_FORESEEN
        assert not query.foresee()


def test_what_is_foreseen_is_dropped_where_scores_are_made_anew_or_memory_is_given_up() -> None:
    with late():
        query = foreseeing()
        query.apply_settings(replace(query.settings, policy=Policy("greedy")))
        assert not query.queue._ranking._foreseen
        query = foreseeing()
        query.slim()
        assert not query.queue._ranking._foreseen
