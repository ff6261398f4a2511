"""The common mean's reference is taken before a verdict asks for it: then it takes none, and reads the same."""

from unittest import mock

import numpy as np
import pytest
from support.seeds import seeds

from haystream.engines.local import LocalEngine
from haystream.engines.local import engine as local_engine
from haystream.engines.local.changes.next_reference import COVERED_SHIFT, next_reference
from haystream.engines.local.changes.refer import refer
from haystream.engines.local.readings.readings import ShiftsAfter
from haystream.engines.local.solves.budget import COMMON_SHIFT, PROMISE
from haystream.events import Item, Outcome, Query, Verdict
from haystream.fold import State, step
from haystream.query.state import QueryState

ITEMS, PEOPLE, VERDICTS = 900, 700, 40


def begun() -> tuple[State, QueryState]:
    """A query on a sparse network, and its state."""
    rng, state = np.random.default_rng(0), State()
    for number in range(ITEMS):
        sender, recipient = rng.choice(PEOPLE, 2, replace=False)
        step(state, Item(f"i{number}", "default", f"p{sender}", (f"p{recipient}",)))
    step(state, Query("q"))
    return state, state.queries["q"]


def local(query: QueryState) -> LocalEngine:
    assert isinstance(query.engine, LocalEngine)
    return query.engine


def test_a_reference_that_will_do_is_kept() -> None:
    after = ShiftsAfter(irrelevant=-0.01, relevant=0.02, chance=0.1, variance=0.1)
    assert next_reference(0.0, 0.0, after) == 0.0
    assert next_reference(0.3, 0.3, None) == 0.3


@pytest.mark.parametrize("now", [-0.3, 0.0, 0.4])
def test_a_new_one_is_right_whatever_the_verdict_says_if_there_is_such_a_one(now: float) -> None:
    after = ShiftsAfter(irrelevant=now - 0.005, relevant=now + 0.03, chance=0.1, variance=0.1)
    new = next_reference(now, now, after)
    assert new != now
    assert max(abs(shift - new) for shift in (now, after.irrelevant, after.relevant)) <= COVERED_SHIFT
    assert next_reference(new, now, after) == new


@pytest.mark.parametrize(("chance", "likely"), [(0.2, -0.03), (0.8, 0.04)])
def test_else_it_is_right_for_the_likelier_verdict(chance: float, likely: float) -> None:
    after = ShiftsAfter(irrelevant=-0.03, relevant=0.04, chance=chance, variance=0.1)
    new = next_reference(0.0, 0.0, after)
    assert max(abs(new), abs(likely - new)) <= COVERED_SHIFT
    assert next_reference(new, 0.0, after) == new


def test_where_no_reference_is_right_it_stays_and_the_verdict_takes_one() -> None:
    assert next_reference(0.0, 0.0, ShiftsAfter(-0.2, 0.3, 0.1, 0.1)) == 0.0


@pytest.mark.parametrize("seed", seeds(3))
def test_whoever_foresees_reads_the_same_and_less_often_waits_for_a_reference(seed: int) -> None:
    rng, taken = np.random.default_rng(seed), {"q": 0, "other": 0}
    (state, query), (other_state, other) = begun(), begun()
    for number in range(VERDICTS):
        query.finish()
        other.finish()
        while query.foresee():
            pass
        shift = local(query).readings.known_common().mean_shift
        assert abs(shift - local(query).readings.reference) <= COMMON_SHIFT
        item = query.ranking().items[0].item_id if rng.random() < 0.7 else f"i{rng.integers(ITEMS)}"
        outcome = Outcome.RELEVANT if rng.random() < 0.2 else Outcome.IRRELEVANT
        news = Verdict(f"v{number}", "q", item, "ann", outcome, number)
        for name, of, each in (("q", state, query), ("other", other_state, other)):
            with mock.patch.object(local_engine, "refer", wraps=refer) as refers:
                step(of, news)
                each.ranking()
                taken[name] += refers.call_count
        everyone = np.arange(len(query.collection.graph), dtype=np.int32)
        read = (local(each).readings.participants(everyone) for each in (query, other))
        for mine, its in zip(*read, strict=True):
            np.testing.assert_allclose(mine, its, atol=PROMISE)
        assert local(query).readings.discrepancy() == pytest.approx(local(other).readings.discrepancy(), abs=1e-4)
    assert taken["q"] < taken["other"]
    assert taken["other"] >= 5


def test_what_was_told_before_a_reference_is_looked_at_again_by_tend() -> None:
    state, query = begun()
    for number in range(VERDICTS):
        query.finish()
        edge = query.collection.sets.edges(query.queue.first(1)[0][1])[0]
        if query.engine.foresee(edge):
            break
        item = query.ranking().items[0].item_id
        step(state, Verdict(f"v{number}", "q", item, "ann", Outcome.IRRELEVANT, number))
    else:
        raise AssertionError("no verdict would have taken another reference")
    assert query.engine.waiting
    assert query.engine.untold > 0
    assert query.foresee()
    query.finish()
    assert not query.engine.waiting
    assert not query.engine.foresee(edge)
