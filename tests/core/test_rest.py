"""A query keeps no score of most of its own sets: it offers the same as one that keeps them all."""

from unittest import mock

import numpy as np
import pytest
from support.seeds import seeds

from haystream.collection.collection import Collection
from haystream.events import Action, Item, LeaseFact, Outcome, Policy, Prior, Query, Verdict, Withdrawal
from haystream.models import DEFAULT_PRIORS
from haystream.query import state as query_state
from haystream.query.state import QueryState
from haystream.ranking import set_ranking
from haystream.ranking.ranked import Ranking
from haystream.ranking.set_scores import RESOLUTION

PEOPLE, AT_FIRST, EVENTS, TOP = 120, 600, 120, 3
TIGHT = 1e-9
CANDIDATES = 6
few = mock.patch.multiple(set_ranking, CANDIDATES=CANDIDATES, LATE_AT_ONCE=11, THIN_OUT_EVERY=2)


class Twins:
    """A query that keeps a few entries, and one with the same facts that has one for each set of its own."""

    def __init__(self, seed: int, settings: Query) -> None:
        self.rng = np.random.default_rng(seed)
        self.collection = Collection("default")
        self.items: list[str] = []
        for _ in range(AT_FIRST):
            self.item()
        self.sparing, self.whole = (QueryState(settings, self.collection, tolerance=TIGHT) for _ in range(2))
        with few:
            self.sparing.ranking()
        self.whole.ranking()
        self.held: dict[str, str] = {}
        self.told: dict[str, Outcome] = {}
        self.facts = 0
        self.rested = 0

    def item(self) -> None:
        if self.items and self.rng.random() < 0.5:
            names = self.collection.graph.names(int(self.rng.integers(self.collection.graph.edges)))
        else:
            several = 2 if self.rng.random() < 0.7 else int(self.rng.integers(3, 6))
            names = tuple(f"p{n}" for n in self.rng.choice(PEOPLE, several, replace=False))
        self.items.append(f"i{len(self.items)}")
        self.collection.add(Item(self.items[-1], "default", names[0], tuple(sorted(names[1:]))))

    def happen(self) -> None:
        """Something does: mostly a verdict, on what is offered or on anything."""
        self.facts += 1
        offered = [item.item_id for item in self.whole.ranking().items]
        chosen = self.rng.random()
        which = offered[0] if offered and self.rng.random() < 0.4 else str(self.rng.choice(self.items))
        if chosen < 0.1:
            self.item()
        elif chosen < 0.15:
            self.collection.add(Withdrawal(which, "default"))
        elif chosen < 0.3:
            self.lease(which)
        else:
            outcome = self.rng.choice([Outcome.RELEVANT, Outcome.IRRELEVANT, Outcome.IRRELEVANT, Outcome.RETRACTED])
            fact = Verdict(f"v{self.facts}", "q", which, "ann", Outcome(outcome), self.facts)
            self.sparing.apply_verdict(fact)
            self.whole.apply_verdict(fact)

    def lease(self, item: str) -> None:
        """Somebody claims an item, or gives another back."""
        if self.held and self.rng.random() < 0.7:
            item, lease = self.held.popitem()
            action = Action.RELEASED
        else:
            lease, action = f"l{self.facts}", Action.CLAIMED
            self.held[item] = lease
        fact = LeaseFact(lease, "q", item, "bob", action, self.facts, self.facts + 1000)
        self.sparing.apply_lease(fact)
        self.whole.apply_lease(fact)

    def look(self, query: QueryState, *, rests: bool) -> Ranking:
        ranking = query.ranking()
        if rests:
            query.finish()
            query.drain()
            ranking = query.ranking()
        return ranking

    def agree(self) -> None:
        rests = bool(self.rng.random() < 0.3)
        with few:
            sparing = self.look(self.sparing, rests=rests)
            own, late = self.sparing.queue._ranking.own, self.sparing.queue.late
            self.rested = max(self.rested, own.count - own.uncounted_entries - own._number.size)
        whole = self.look(self.whole, rests=rests)
        assert [item.item_id for item in sparing.items] == [item.item_id for item in whole.items]
        scores = ([item.score for item in ranking.items] for ranking in (sparing, whole))
        np.testing.assert_allclose(*scores, atol=2 * RESOLUTION)
        some, all_ = sparing.expected_remaining, whole.expected_remaining
        share = 0.05 if late else 1e-7
        np.testing.assert_allclose([some.mean, some.sd], [all_.mean, all_.sd], rtol=share)

    def agree_on_everything(self) -> None:
        with few:
            self.sparing.finish()
            sparing = list(self.sparing.queue.items())
            assert self.sparing.queue.remaining(self.sparing.engine).mean == pytest.approx(
                self.whole.queue.remaining(self.whole.engine).mean, rel=1e-7
            )
        self.whole.finish()
        whole = list(self.whole.queue.items())
        assert {item: which for item, which, _ in sparing} == {item: which for item, which, _ in whole}
        of_whole = {item: score for item, _, score in whole}
        np.testing.assert_allclose(
            [score for *_, score in sparing], [of_whole[item] for item, *_ in sparing], atol=2 * RESOLUTION
        )
        assert [score for *_, score in sparing] == sorted((score for *_, score in sparing), reverse=True)


SETTINGS = [
    Query("q", top=TOP),
    Query("q", top=TOP, prior=Prior(mean=0.3, correlation=0.5), policy=Policy("greedy")),
    Query("q", top=TOP, policy=Policy("look-ahead")),
    Query("q", top=TOP, prior=DEFAULT_PRIORS["relevance"]),
    Query("q", top=TOP, prior=Prior(participants={"p1": 0.4, "p3": 0.02})),
]


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("query", SETTINGS)
def test_a_query_that_keeps_few_entries_offers_the_same(query: Query, seed: int) -> None:
    twins = Twins(seed, query)
    for _ in range(EVENTS):
        twins.happen()
        twins.agree()
    assert twins.rested > 50
    twins.agree_on_everything()
    for _ in range(5):  # and goes on from there
        twins.happen()
        twins.agree()


@pytest.mark.parametrize("query", SETTINGS)
def test_a_query_that_moves_much_before_its_first_ranking_has_room_for_few_entries(query: Query) -> None:
    twins, judged = Twins(7, query), 12
    state = QueryState(query, twins.collection, tolerance=TIGHT)
    for number, item in enumerate(twins.rng.choice(twins.items, judged, replace=False)):
        outcome = twins.rng.choice([Outcome.RELEVANT, Outcome.IRRELEVANT])
        state.apply_verdict(Verdict(f"v{number}", "q", str(item), "ann", Outcome(outcome), number))
    with few, mock.patch.object(query_state, "EDGES_PER_VERDICT", 0):  # it begins as the prior
        state.ranking()
    own = state.queue._ranking.own
    assert own.count > 300
    assert own.entries <= judged + 3 * CANDIDATES
