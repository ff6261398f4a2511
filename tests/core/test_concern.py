"""A query may stay behind its collection as long as that changes none of what it offers first."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from support.seeds import seeds

from haystream.collection.collection import Collection
from haystream.events import (
    Action,
    Item,
    LeaseFact,
    ModelName,
    Outcome,
    Policy,
    Prior,
    Query,
    Status,
    Verdict,
    Withdrawal,
)
from haystream.models import DEFAULT_PRIORS
from haystream.query.concern import MOST_ENTRIES, MOST_PAIRS
from haystream.query.state import QueryState
from haystream.ranking.set_scores import RESOLUTION
from haystream.report import report

PEOPLE, AT_FIRST, TOP = 150, 600, 6
STILL = ("look-ahead-by-set", "look-ahead", "greedy")
"""Policies whose scores do not move by themselves."""


def settings(name: str, policy: str = STILL[0], **prior: object) -> Query:
    return Query(name, prior=replace(Prior(), **prior), policy=Policy(policy), top=TOP)


@dataclass
class Twins:
    """A query that follows only what concerns it, and one with the same facts that follows everything at once."""

    late: QueryState
    prompt: QueryState
    offered: list[str] = field(default_factory=list)
    """What the late one offered when it last looked."""

    @classmethod
    def on(cls, collection: Collection, query: Query, tolerance: float = 1e-6) -> "Twins":
        twins = cls(*(QueryState(query, collection, tolerance=tolerance) for _ in range(2)))
        twins.look()
        return twins

    def look(self) -> None:
        """Both are asked for their ranking, and then tended."""
        for query in (self.late, self.prompt):
            query.ranking()
            query.finish()
            while query.foresee():
                pass
        self.offered = first_items(self.late)

    def could_wait(self) -> bool:
        """Whether what came is no concern of the late one, which offers the same as before then; else both look."""
        if self.late.concerned():
            self.look()
            return False
        assert first_items(self.prompt) == self.offered
        return True

    def each(self, fact: Verdict | LeaseFact) -> None:
        for query in (self.late, self.prompt):
            query.apply_lease(fact) if isinstance(fact, LeaseFact) else query.apply_verdict(fact)


def first_items(query: QueryState) -> list[str]:
    return [item.item_id for item in query.ranking().items]


class World:
    """A collection, and what may come to it."""

    def __init__(self, seed: int, *, several: bool = True) -> None:
        self.rng = np.random.default_rng(seed)
        self.collection = Collection("default")
        self._several = several
        self.items: dict[str, Item] = {}
        for _ in range(AT_FIRST):
            self.item(*self.some(2))

    def some(self, count: int, people: int = PEOPLE) -> list[str]:
        return [f"p{n}" for n in self.rng.choice(people, count, replace=False)]

    def item(self, sender: str, *others: str) -> Item:
        made = Item(f"i{len(self.items)}", "default", sender, tuple(sorted(others)))
        self.items[made.item_id] = made
        self.collection.add(made)
        return made

    def on_known_pair(self) -> Item:
        return self.item(*self.collection.graph.names(int(self.rng.integers(self.collection.graph.edges))))

    def any_item(self) -> Item:
        if self.rng.random() < 0.5:
            return self.on_known_pair()
        return self.item(*self.some(4 if self._several and self.rng.random() < 0.2 else 2, PEOPLE + 40))

    def verdict(self, query: str, number: int, item: str | None = None) -> Verdict:
        outcome = Outcome.RELEVANT if self.rng.random() < 0.35 else Outcome.IRRELEVANT
        if self.rng.random() < 0.1:
            outcome = Outcome.RETRACTED
        of = item or f"i{self.rng.integers(len(self.items) + 5)}"  # which may not have come yet
        return Verdict(f"v{number}", query, of, "ann", outcome, number)


def judged(world: World, query: Query, verdicts: int) -> Twins:
    """Half of its verdicts are on what it offers first."""
    twins = Twins.on(world.collection, query)
    for number in range(verdicts):
        known = twins.offered[0] if number % 2 and twins.offered else f"i{world.rng.integers(AT_FIRST)}"
        twins.each(world.verdict(query.query_id, number, known))
        twins.look()
    return twins


PRIORS = [{}, {"mean": 0.02}, {"participants": {"p1": 0.5, "p2": 0.01, "p310": 0.6}}]


@pytest.mark.parametrize("policy", STILL)
@pytest.mark.parametrize("prior", PRIORS)
def test_items_on_known_pairs_that_are_no_concern_leave_the_first_items_as_they_are(
    policy: str, prior: dict[str, object]
) -> None:
    world, waited = World(len(prior)), 0
    twins = [judged(world, settings(f"q{n}", policy, **prior), 15 * n) for n in range(3)]
    for _ in range(60):
        if world.rng.random() < 0.15:
            world.collection.add(Withdrawal(f"i{world.rng.integers(len(world.items))}", "default"))
        else:
            world.on_known_pair()
        waited += sum(each.could_wait() for each in twins)
    assert waited > 50


@pytest.mark.parametrize("model", ["rates", "relevance"])
@pytest.mark.parametrize("policy", STILL)
@pytest.mark.parametrize("seed", seeds(2))
def test_whatever_comes_an_item_that_would_be_among_the_first_is_a_concern(
    model: ModelName, policy: str, seed: int
) -> None:
    world, waited = World(seed), 0
    query = replace(settings("q", policy), prior=DEFAULT_PRIORS[model])
    twins = [judged(world, query, 20), judged(world, replace(query, query_id="r"), 6)]
    for number in range(100, 180):
        come = world.any_item()
        if number % 15 == 0:
            for each in twins:
                each.each(world.verdict(each.late.settings.query_id, number))
                each.look()
            continue
        for each in twins:
            if each.late.concerned():
                each.look()
            else:
                waited += 1
                assert come.item_id not in first_items(each.prompt)
    assert waited > 10 or model == "relevance"


@pytest.mark.parametrize("seed", seeds(4))
def test_whoever_is_behind_comes_to_the_same_as_who_follows_at_once(seed: int) -> None:
    """Whenever it catches up, and whatever came meanwhile: verdicts, leases, withdrawals, other queries' work."""
    world = World(seed, several=seed % 2 == 0)
    twins = [judged(world, settings(f"q{n}", STILL[n % 3]), 8) for n in range(3)]
    for number in range(100, 190):
        if world.rng.random() < 0.1:
            world.collection.add(Withdrawal(f"i{world.rng.integers(len(world.items))}", "default"))
        else:
            world.any_item()
        for each in twins:
            each.prompt.settle()
            if world.rng.random() < 0.08:
                name = each.late.settings.query_id
                each.each(world.verdict(name, number))
                item = f"i{world.rng.integers(len(world.items))}"
                each.each(LeaseFact(f"l{number}", name, item, "bo", Action.CLAIMED, number, number + 60))
                each.late.settle()
            elif each.late.concerned():
                each.late.settle()
    for each in twins:
        each.look()
        assert each.late.lag == each.late.behind == 0
        one, other = report(each.late), report(each.prompt)
        assert (one.screened, one.found) == (other.screened, other.found)
        for name, moments in one.participants.items():
            np.testing.assert_allclose(moments, other.participants[name], atol=1e-5)
        scores = {item.item_id: item.score for item in other.items}
        assert {item.item_id: item.score for item in one.items} == pytest.approx(scores, abs=1e-5)
        late, prompt = each.late.ranking(), each.prompt.ranking()
        assert late.expected_remaining.mean == pytest.approx(prompt.expected_remaining.mean, rel=1e-3)
        assert late.expected_remaining.sd == pytest.approx(prompt.expected_remaining.sd, rel=1e-3)


def test_a_set_that_grows_until_it_is_worth_a_try_is_a_concern() -> None:
    """A very large set may be of one matter, and the larger it gets the more that is worth."""
    world, waited = World(3, several=False), 0
    for _ in range(30):
        world.item("a", "b")
    world.item("x", "y")
    twins = Twins.on(world.collection, settings("q"))
    for number in range(50):  # ten on what a and b write, the others on what others do
        outcome = Outcome.RELEVANT if number in (0, 4, 8, 20, 30, 40) else Outcome.IRRELEVANT
        twins.each(
            Verdict(f"v{number}", "q", f"i{AT_FIRST + number if number < 10 else number}", "ann", outcome, number)
        )
    twins.look()
    for _ in range(1500):
        come = world.item("x", "y")
        if twins.late.concerned():
            twins.look()
        else:
            waited += 1
            assert come.item_id not in first_items(twins.prompt)
    assert waited > 100
    assert {world.items[item].pairs() for item in twins.offered} == {(("x", "y"),)}


def test_an_item_that_ties_with_the_last_of_the_first_is_a_concern() -> None:
    world = World(0)
    tie = judged(world, settings("q", "greedy"), 15)
    last = tie.late.queue.first(TOP)[-1]
    edge = world.collection.sets.edges(last[1])[0]
    world.item(*world.collection.graph.names(edge))  # of the same set: the score of another item, to the last digit
    assert tie.late.concerned()
    assert last[2] == pytest.approx(tie.late.queue.first(TOP)[-1][2], abs=RESOLUTION)


def quiet(world: World, query: Query | None = None) -> QueryState:
    """A query that has been judged by, and a collection that has grown by what is no concern of it."""
    state = judged(world, query or settings("q"), 15).late
    while state.concerned() or not state.behind:
        state.ranking()
        world.on_known_pair()
    return state


def test_what_was_said_or_shown_of_an_item_makes_it_a_concern() -> None:
    world = World(1)
    state = quiet(world)
    assert state.behind
    assert not state.lag
    assert not state.concerned()  # it has been asked
    known = f"i{len(world.items)}"
    state.apply_verdict(Verdict("early", "q", known, "ann", Outcome.IRRELEVANT, 999))
    world.on_known_pair()
    assert state.lag == 1
    assert state.concerned()
    for of in (first_items(state)[0], known):
        state.ranking()
        world.collection.add(Withdrawal(of, "default"))
        assert state.concerned()
    state.settle()
    state.apply_lease(LeaseFact("l", "q", f"i{len(world.items)}", "bo", Action.CLAIMED, 1, 2))
    state.ranking()
    world.on_known_pair()
    assert state.concerned()


def test_a_new_pair_of_somebody_on_a_first_item_is_a_concern() -> None:
    world = World(2)
    state = quiet(world)
    shown = state.ranking().items[-1].participants[0]
    world.item(shown, "stranger")
    assert state.concerned()


def test_nobody_is_behind_by_much() -> None:
    world = World(3)
    state = quiet(world)
    state.ranking()
    for number in range(MOST_ENTRIES + 1):
        assert state.behind <= MOST_ENTRIES
        if state.concerned():
            break
        world.collection.add(replace(world.items["i0"], uri=f"mail:{number}"))
    state.ranking()
    for number in range(3 * MOST_PAIRS):
        world.item(f"new{number}", f"newer{number}")
        if state.concerned():
            break
    assert number <= MOST_PAIRS


def test_who_offers_less_than_he_might_or_cannot_say_is_concerned_by_anything() -> None:
    world = World(4)
    more = Query("more", top=10 * AT_FIRST)
    moving = [settings(name, name) for name in ("epsilon-greedy", "bayes-ucb", "thompson")]
    for query in (more, *moving):
        state = QueryState(query, world.collection)
        state.ranking()
        world.on_known_pair()
        assert state.concerned()
        assert not state.concerned() or state.lag == 1
        state.settle()
    small = Collection("default")
    for number in range(20):
        small.add(Item(f"i{number}", "default", f"p{number % 5}", (f"p{(number + 1) % 5}",)))
    dense = QueryState(replace(settings("q"), engine="reference"), small)
    dense.ranking()
    small.add(Item("more", "default", "p0", ("p1",)))
    assert dense.concerned()


def test_new_settings_are_looked_at_with_the_items_that_waited() -> None:
    world = World(5)
    state = quiet(world)
    state.apply_settings(replace(state.settings, top=3 * TOP))
    assert len(first_items(state)) == 3 * TOP
    assert not state.behind
    world.on_known_pair()
    state.apply_settings(replace(state.settings, policy=Policy("greedy")))
    assert state.concerned()  # nothing is known of who leads by that
    state.apply_settings(replace(state.settings, status=Status.PAUSED))
    state.settle()
    assert not state.behind
