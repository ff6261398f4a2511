"""What queries begin as copies of is made beside those that work with the collection, and while that grows."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
from support.dense import TIGHT
from support.seeds import seeds

from haystream.collection.collection import Collection
from haystream.engines.local.inverse.precision import PrecisionAsItWas
from haystream.engines.local.inverse.prior_inverse import shared_precision
from haystream.events import Item, Outcome, Policy, Prior, Query, Verdict, Withdrawal
from haystream.query.state import QueryState
from haystream.ranking.prior_rankings import PriorRanking
from haystream.report import report

PEOPLE = 300


class Others:
    """A collection that grows, and a query on it that gets verdicts."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.collection = Collection("default")
        self.verdicts: list[Verdict] = []
        self.grow(2000)
        self.query = QueryState(Query("other"), self.collection, tolerance=TIGHT)
        self.query.finish()

    def grow(self, items: int, *, people: int = PEOPLE) -> None:
        """Add so many items between people, some of whom may be new."""
        for _ in range(items):
            number = len(self.collection)
            sender, recipient = self._rng.choice(people, 2, replace=False)
            self.collection.add(Item(f"i{number}", "default", f"p{sender}", (f"p{recipient}",)))

    def judge(self) -> None:
        """Give a verdict in the query, and do what is done when nobody waits."""
        number = len(self.verdicts)
        item = f"i{self._rng.integers(len(self.collection))}"
        outcome = Outcome.RELEVANT if self._rng.random() < 0.3 else Outcome.IRRELEVANT
        self.verdicts.append(Verdict(f"v{number}", "other", item, "ann", outcome, number))
        self.query.apply_verdict(self.verdicts[-1])
        self.query.finish()


def beside(others: Others, make: Callable[[], None]) -> None:
    """Others go on in the middle of it: in another thread, and what they do comes before it as well as after."""
    thread = threading.Thread(target=make)
    others.grow(20, people=2 * PEOPLE)
    others.judge()
    thread.start()
    while thread.is_alive():
        others.grow(3, people=2 * PEOPLE)
        others.collection.add(Withdrawal(f"i{len(others.collection) // 2}", "default"))
        others.judge()
    others.judge()


def agree(one: QueryState, other: QueryState) -> None:
    one.finish()
    other.finish()
    got, wanted = report(one), report(other)
    assert got.participants.keys() == wanted.participants.keys()
    for name, moments in got.participants.items():
        np.testing.assert_allclose(moments, wanted.participants[name], atol=1e-7)
    assert {item.item_id for item in got.items} == {item.item_id for item in wanted.items}
    assert [item.score for item in got.items] == pytest.approx([item.score for item in wanted.items], abs=1e-6)


def computed_at_once(others: Others) -> QueryState:
    """The other query, from its facts, computed as a whole."""
    fresh = QueryState(Query("other"), others.collection, tolerance=TIGHT)
    for verdict in others.verdicts:
        fresh.apply_verdict(verdict)
    return fresh


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("seed", seeds(3))
def test_it_is_what_it_would_be_if_nobody_else_were_there(
    seed: int, monkeypatch: pytest.MonkeyPatch, *, first: bool
) -> None:
    monkeypatch.setattr("haystream.query.originals.MOST_ITEMS", 10)
    others = Others(seed)
    others.grow(50)
    prior = Prior(mean=0.3) if first else Prior()  # the other query's is that of most queries
    settings = Query("q", prior=prior, policy=Policy("greedy"))
    query = QueryState(settings, others.collection, tolerance=TIGHT)
    kept = query.kept_original()
    assert kept is not None
    original = kept.begun()
    assert original is not None
    beside(others, lambda: original.make(settings.policy))
    kept.take(original)
    query.settle()
    alone = QueryState(settings, others.collection, tolerance=TIGHT)
    number = 0
    for number in range(5):
        verdict = Verdict(f"v{number}", "q", f"i{7 * number}", "ann", Outcome.RELEVANT, number)
        query.apply_verdict(verdict)
        alone.apply_verdict(verdict)
        query.settle()
    for many in range(number + 1, number + 6):  # so many that it is computed as a whole
        for each in (query, alone):
            each.apply_verdict(Verdict(f"v{many}", "q", f"i{11 * many}", "ann", Outcome.IRRELEVANT, many))
    assert alone.better_at_once(len(alone.verdicts))
    agree(query, alone)
    agree(others.query, computed_at_once(others))


def test_what_is_made_amid_growth_knows_that_it_is_made_of_estimates() -> None:
    others = Others(seed=1)
    precision = shared_precision(others.collection, Prior().correlation, TIGHT)
    assert not PrecisionAsItWas(precision, None).waiting
    others.grow(50)
    precision.grow()
    assert precision.waiting
    as_it_was = PrecisionAsItWas(precision, None)
    others.query.finish()
    assert not precision.waiting
    assert as_it_was.waiting


def test_nothing_is_made_where_one_is_there_or_none_is_wanted() -> None:
    others = Others(0)
    QueryState(Query("before"), others.collection, tolerance=TIGHT).settle()
    state = QueryState(Query("q"), others.collection, tolerance=TIGHT)
    empty = QueryState(Query("q"), Collection("default"), tolerance=TIGHT)
    for kept in (state.kept_original(), empty.kept_original()):
        assert kept is not None
        assert kept.begun() is None
    assert state.kept_original(10_000) is None
    dense = QueryState(Query("q", engine="reference"), others.collection, tolerance=TIGHT)
    assert dense.kept_original() is None


def test_the_first_ranking_of_a_query_is_made_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    others = Others(0)
    settings = Query("q", prior=Prior(mean=0.3))
    query = QueryState(settings, others.collection, tolerance=TIGHT)
    kept = query.kept_original()
    assert kept is not None
    original = kept.begun()
    assert original is not None
    original.make(settings.policy)
    kept.take(original)
    left_to_do: list[bool] = []
    make = PriorRanking.make

    def looked(ranking: PriorRanking) -> bool:
        left_to_do.append(ranking._made < ranking._rankings.sets)
        return make(ranking)

    monkeypatch.setattr(PriorRanking, "make", looked)
    query.settle()
    assert left_to_do == [False]
