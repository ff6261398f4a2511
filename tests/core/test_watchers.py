"""Whom a collection does not ask is whoever would say that what came is no concern of his."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from gc import collect

import numpy as np
import pytest
from support.seeds import seeds
from tests.core.test_concern import STILL, World, settings

from haystream.collection.collection import Collection
from haystream.engines.local import LocalEngine
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE
from haystream.events import (
    Action,
    Event,
    Item,
    LeaseFact,
    Outcome,
    Policy,
    Query,
    Status,
    Verdict,
    Withdrawal,
)
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.query.concern import MOST_ENTRIES
from haystream.query.state import QueryState
from haystream.query.watchers import HEIGHT, LEAST_ALIKE, Watchers
from haystream.ranking.unreached import HIGH, Unreached, at_most
from haystream.scope import scope

PEOPLE, AT_FIRST = 600, 1200
CLAIM = LeaseFact("l", "q", "i3", "bo", Action.CLAIMED, 1, 60)


@dataclass
class Pairs:
    """Queries, each with a twin: one is asked only if the collection says so, the other always."""

    seed: int
    state: State = field(default_factory=State)
    twins: State = field(default_factory=State)
    """Apart, so that each settles with all others where its twin does, and is to the last bit as that one."""
    items: dict[str, Item] = field(default_factory=dict)
    said: int = 0
    spared: int = 0
    """How often a query was not asked."""
    concerned: int = 0
    spoken: int = 0
    """How often one was asked, and not concerned."""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        for _ in range(AT_FIRST):
            self.item(*self.some(2))

    # ---- what may happen ----

    def some(self, count: int, people: int = PEOPLE) -> list[str]:
        return [f"p{n}" for n in self.rng.choice(people, count, replace=False)]

    def item(self, sender: str, *others: str, **more: object) -> None:
        made = Item(f"i{len(self.items)}", "default", sender, tuple(sorted(others)), **more)  # type: ignore[arg-type]
        self.items[made.item_id] = made
        self.both(made)

    def any_id(self, ahead: int = 5) -> str:
        return f"i{self.rng.integers(len(self.items) + ahead)}"

    def grow(self) -> None:
        kind = self.rng.random()
        if kind < 0.35:
            known = self.items[self.any_id(0)]
            self.item(str(known.sender), *known.participants)
        elif kind < 0.45:
            self.both(Withdrawal(self.any_id(), "default"))
        elif kind < 0.5:
            self.both(replace(self.items[self.any_id(0)], uri=f"mail:{self.rng.integers(1000)}"))
        elif kind < 0.6:
            self.item(f"new{len(self.items)}", f"newer{len(self.items)}")
        elif kind < 0.7:
            self.item(*self.some(4, PEOPLE + 100))
        elif kind < 0.75:
            self.item(*self.some(2), labels=(("kind", "odd"),))
        else:
            self.item(*self.some(2, PEOPLE + 100))

    def open(self, query: Query) -> None:
        self.both(query)
        self.look(query.query_id)

    def close(self, name: str) -> None:
        self.both(replace(self.state.queries[name].settings, status=Status.DELETED))

    def names(self) -> list[str]:
        return list(self.state.queries)

    def both(self, event: Event) -> None:
        step(self.state, event)
        step(self.twins, event)

    def verdict(self, name: str, item: str) -> None:
        self.said += 1
        outcome = Outcome.RELEVANT if self.rng.random() < 0.35 else Outcome.IRRELEVANT
        outcome = Outcome.RETRACTED if self.rng.random() < 0.1 else outcome
        self.both(Verdict(f"v{self.said}", name, item, "ann", outcome, self.said))

    def lease(self, name: str, item: str) -> None:
        self.said += 1
        fact = LeaseFact(f"l{self.said}", name, item, "bo", Action.CLAIMED, self.said, self.said + 60)
        self.both(fact)
        if self.rng.random() < 0.5:
            self.both(replace(fact, action=Action.RELEASED, at=self.said + 1))

    def look(self, name: str, *, tended: bool = True) -> None:
        for query in (self.state.queries[name], self.twins.queries[name]):
            query.ranking()
            if tended:
                query.finish()
                while query.foresee():
                    pass
                query.drain()

    # ---- what is held to ----

    def check(self, *, looks: float = 1.0) -> None:
        """Whoever is concerned is asked; some of those that are look."""
        queries = self.state.queries
        concerned = {name for name in self.names() if self.twins.queries[name].concerned()}
        asked = {name for of in self.state.collections.values() for name in Watchers.of(of).to_ask()}
        assert concerned <= asked
        for name in self.names():
            if name in asked:
                assert queries[name].concerned() == (name in concerned)
            assert (queries[name].lag > 0) == (name in concerned)
            if queries[name]._attention._watcher.rests:
                self.check_heights(queries[name])
            self.spared += name not in asked
            self.spoken += name in asked - concerned
        self.concerned += len(concerned)
        for name in sorted(concerned):
            if self.rng.random() < looks:
                self.look(name, tended=self.rng.random() < 0.8)

    def check_heights(self, query: QueryState) -> None:
        """Of everybody it is known how high he stands in the query now."""
        engine, watchers, settings = query.engine, Watchers.of(query.collection), query.settings
        assert isinstance(engine, LocalEngine)
        base_rate = engine.readings.rounded_common().base_rate
        unreached = Unreached(settings.prior, settings.policy, base_rate, 1.0, self.state.tolerance)
        everyone = np.arange(query._size.participants, dtype=np.int32)
        heights = unreached.heights(*engine.told(everyone, np.zeros(0, np.int32))[:2])
        known = watchers._people[everyone, query._attention._watcher.begin()] & HEIGHT
        assert (heights <= known + 1).all()  # what is left to the prior since (`Engine.leave`) is off by the least


def queries() -> list[Query]:
    """Of several kinds."""
    listed = {"p1": 0.5, "p2": 0.01, "p640": 0.6, "new1215": 0.7}
    odd = scope(labels=[("kind", "odd")])
    made = [
        *(settings(f"plain{n}") for n in range(6)),
        *(settings(f"{policy}{n}", policy) for policy in STILL[1:] for n in range(2)),
        settings("low", mean=0.02),
        settings("listed", participants=listed),
        settings("edges-listed", "look-ahead", participants=listed),
        settings("thompson", "thompson"),
        replace(settings("short"), policy=Policy(STILL[0], horizon=2)),
        replace(settings("relevance"), prior=DEFAULT_PRIORS["relevance"]),
        replace(settings("odd"), scope=odd, top=2),
        replace(settings("calm"), scope=scope(nobody=["p3", "p4"])),
    ]
    return [*made, *(replace(query, query_id=f"wide-{query.query_id}", top=40) for query in made[:8])]


@pytest.mark.parametrize("seed", seeds(3))
def test_whoever_is_concerned_is_asked_whatever_happens(seed: int) -> None:
    pairs = Pairs(seed)
    rng = pairs.rng
    for _ in range(8):
        pairs.item(*pairs.some(2), labels=(("kind", "odd"),))
    for query in queries():
        pairs.open(query)
        first = [item.item_id for item in pairs.state.queries[query.query_id].ranking().items]
        for number in range(int(rng.integers(12))):
            pairs.verdict(query.query_id, first[number % len(first)] if first and number % 2 else pairs.any_id())
        pairs.look(query.query_id)
    for number in range(120):
        for _ in range(1 if rng.random() < 0.9 else int(rng.integers(30))):
            pairs.grow()
        name = str(rng.choice(pairs.names()))
        match int(rng.integers(14)):
            case 0 | 1:
                pairs.verdict(name, pairs.any_id())
                pairs.look(name, tended=rng.random() < 0.7)
            case 2:
                pairs.verdict(name, pairs.any_id())  # and it does not settle
            case 3 | 4:
                pairs.lease(name, pairs.any_id())
                pairs.look(name)
            case 5:
                prior = replace(pairs.state.queries[name].settings.prior, participants={f"p{number}": 0.4})
                pairs.both(replace(pairs.state.queries[name].settings, prior=prior))
                pairs.look(name)
            case 6:
                pairs.both(replace(pairs.state.queries[name].settings, top=int(rng.integers(1, 30))))
            case 7:
                policy = Policy(str(rng.choice([*STILL, "thompson"])))
                pairs.both(replace(pairs.state.queries[name].settings, policy=policy))
                pairs.look(name)
            case 8:
                pairs.close(name)
            case 9:
                pairs.open(settings(f"late{number}", str(rng.choice(STILL))))
            case 10:
                pairs.look(name)
        pairs.check(looks=0.8)
    assert pairs.concerned > 100
    assert pairs.spared > 500


@pytest.mark.parametrize("policy", [*map(Policy, STILL), Policy(STILL[0], horizon=3)])
def test_what_a_set_without_verdicts_scores_at_most_is_a_bound_and_near_what_it_scores(
    policy: Policy,
) -> None:
    pairs = Pairs(5)
    for number in range(400):  # some sets of many items
        pairs.item(f"b{number % 7}", f"c{number % 3}")
    pairs.open(replace(settings("q"), policy=policy))
    query, collection = pairs.state.queries["q"], pairs.state.collection("default")
    near = 0
    for number in range(30):
        pairs.verdict("q", pairs.any_id(0))
        pairs.look("q")
        engine, queue = query.engine, query.queue
        assert isinstance(engine, LocalEngine)
        common = engine.readings.rounded_common()
        variance = at_most(common.variance)
        unreached = Unreached(query.settings.prior, policy, common.base_rate, variance, DEFAULT_TOLERANCE)
        everyone = np.arange(len(collection.graph), dtype=np.int32)
        height = unreached.heights(*engine.told(everyone, np.zeros(0, np.int32))[:2]).astype(np.int64)
        sets = range(len(collection.sets))
        score = queue.prospects.score_ahead(engine.ahead, np.array(sets, np.int32), number)
        for which, scored in zip(sets, score.tolist(), strict=True):
            edges = collection.sets.edges(which)
            if engine.readings.counts(np.array(edges, np.int32))[0].any():
                continue
            ends = [height[list(collection.graph.ends(edge))] for edge in edges]
            if max(map(max, ends)) < HIGH:
                most = float(unreached.most(collection.items_left(which))[max(map(sum, ends))])
                assert scored <= most
                near += most < 1.25 * scored
    assert near > 1000 or policy.name == "look-ahead"


def resting(collection: Collection, query: Query) -> QueryState:
    """A query that has done all there is to do."""
    state = QueryState(query, collection)
    rest(state)
    assert Watchers.of(collection).to_ask() == []
    return state


def rest(state: QueryState) -> None:
    state.ranking()
    state.finish()
    while state.foresee():
        pass


def grown(world: World, *, quietly: QueryState) -> None:
    """Items come that are no concern of the query, and it has been asked about them where it had to be."""
    while True:
        world.on_known_pair()
        if quietly.settings.query_id not in Watchers.of(world.collection).to_ask() or not quietly.concerned():
            return
        rest(quietly)


@pytest.mark.parametrize("fact", [Verdict("v", "q", "i3", "ann", Outcome.RELEVANT, 1), CLAIM])
def test_who_has_been_told_of_anything_is_asked_until_it_has_settled(fact: Verdict | LeaseFact) -> None:
    world = World(1)
    state = resting(world.collection, settings("q"))
    grown(world, quietly=state)
    assert state.behind
    assert not state.lag
    state.apply_verdict(fact) if isinstance(fact, Verdict) else state.apply_lease(fact)
    for _ in range(5):
        world.item("new", "newer")
        assert Watchers.of(world.collection).to_ask() == ["q"]
        state.concerned()
        assert not state._attention._watcher.rests
    rest(state)
    assert Watchers.of(world.collection).to_ask() == []


def test_who_is_behind_by_much_is_asked() -> None:
    world = World(2)
    state, watchers = resting(world.collection, settings("q")), Watchers.of(world.collection)
    for number in range(MOST_ENTRIES):
        world.collection.add(replace(world.items["i0"], uri=f"mail:{number}"))
        assert watchers.to_ask() == []
    assert not state.lag
    world.collection.add(replace(world.items["i0"], uri="mail:"))
    assert watchers.to_ask() == ["q"]
    assert state.concerned()
    rest(state)
    world.collection.add_all(
        [replace(world.items["i0"], uri=f"again:{number}") for number in range(MOST_ENTRIES + 1)]
    )
    assert watchers.to_ask() == ["q"]


def test_everybody_is_asked_where_the_collection_has_to_be_made_afresh() -> None:
    odd, rng = scope(labels=[("kind", "odd")]), np.random.default_rng(0)
    collection = Collection("default", odd)
    items = [
        Item(f"i{n}", "default", *(f"p{u}" for u in rng.choice(60, 1)), (f"q{n % 50}",), labels=(("kind", "odd"),))
        for n in range(300)
    ]
    collection.add_all(items)
    state = resting(collection, replace(settings("q"), scope=odd))
    shown = {item.item_id for item in state.ranking().items}
    rest(state)
    gone = next(item for item in items if item.item_id not in shown)
    collection.add(replace(gone, labels=()))
    assert collection.outgrown
    assert Watchers.of(collection).to_ask() == ["q"]


def test_an_item_on_an_edge_of_a_set_that_others_lift_has_whom_scores_edges_asked() -> None:
    """Of two sets that score the same, one is among the first; the other's edge that gets an item is far below."""
    world = World(3)
    for n in range(4):
        world.item("c", f"d{n}")
        world.item("c", f"d{n}")
    for n in range(2):
        world.item(f"b{n}", f"a{n}", "c")
    begun = len(world.items) - 10
    query = replace(settings("q", "greedy"), top=400)
    probe = QueryState(query, world.collection)
    verdicts = [Verdict(f"v{n}", "q", f"i{begun + 2 * n}", "ann", Outcome.RELEVANT, n) for n in range(4)]
    for verdict in verdicts:
        probe.apply_verdict(verdict)
    order = [item.item_id for item in probe.ranking().items]
    first, other = sorted(order.index(f"i{begun + 8 + n}") for n in range(2))
    state = QueryState(replace(query, top=first + 1), world.collection)
    for verdict in verdicts:
        state.apply_verdict(verdict)
    rest(state)
    probe.settle()
    assert Watchers.of(world.collection).to_ask().count("q") <= 1  # the probe, which has not rested
    del probe
    which = int(order[other].removeprefix("i")) - begun - 8
    world.item(f"b{which}", f"a{which}")
    assert Watchers.of(world.collection).to_ask() == ["q"]
    assert state.concerned()


def test_the_columns_of_queries_that_are_closed_are_used_again_and_remember_nothing() -> None:
    world = World(4)
    watchers = Watchers.of(world.collection)
    for number in range(20):
        state = resting(world.collection, settings(f"q{number}", participants={"nobody": 0.4}))
        state.apply_verdict(Verdict(f"v{number}", f"q{number}", f"later{number}", "ann", Outcome.RELEVANT, 1))
        rest(state)
        del state
        collect()
        assert watchers.to_ask() == []
    assert watchers.bar.size == 1
    assert not watchers._people.any()
    assert not watchers._items
    assert not watchers._names


def test_what_no_query_scores_by_any_more_is_forgotten() -> None:
    world = World(4)
    watchers = Watchers.of(world.collection)
    stays = resting(world.collection, settings("stays"))
    most = watchers._most_with(3)[watchers._alike.data[0]]
    for number in range(2 * LEAST_ALIKE):
        state = resting(world.collection, settings(f"q{number}", mean=0.05 + 0.001 * number))
        del state
        collect()
        watchers.to_ask()
    assert len(watchers._unreached) <= LEAST_ALIKE
    assert len(watchers._number) == len(watchers._unreached)
    np.testing.assert_array_equal(watchers._most_with(3)[watchers._alike.data[0]], most)
    world.item("far", "away")
    assert Watchers.of(world.collection).to_ask() == []
    assert not stays.concerned()


def test_settings_that_no_query_has_any_more_are_forgotten() -> None:
    """However often a query gets others: numbers to score by, and people on its watch-list who never come."""
    world = World(5)
    watchers, state = Watchers.of(world.collection), resting(world.collection, settings("q"))
    for number in range(3 * LEAST_ALIKE):
        policy, listed = Policy(horizon=1 + number), {f"nobody{number}": 0.4, "p1": 0.2, "always": 0.3}
        prior = replace(state.settings.prior, participants=listed)
        state.apply_settings(replace(state.settings, prior=prior, policy=policy))
        rest(state)
        assert watchers.to_ask() == []
    collect()
    assert watchers._names.keys() == {f"nobody{number}", "always"}
    shared = list(world.collection.shared.values())
    within = [known for of in shared for known in of.values() if isinstance(known, Mapping)]
    assert max(map(len, shared + within)) <= LEAST_ALIKE + 1
    same = QueryState(replace(state.settings, query_id="same"), world.collection)
    assert same._attention._kind(same.settings) is state._attention._kind(state.settings)
