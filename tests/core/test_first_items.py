"""Who leads a queue is remembered until that may have changed."""

from itertools import islice

import numpy as np
import pytest

from haystream.events import Event, Item, Outcome, Policy, Query, Verdict, Withdrawal
from haystream.fold import State, step

EVENTS, PEOPLE, AT_FIRST, TOP = 250, 60, 400, 7


def random_event(rng: np.random.Generator, number: int) -> Event:
    """A new item, a verdict on one, or one that is taken back."""
    kind, some = rng.choice(["item", "verdict", "withdrawal"], p=[0.5, 0.45, 0.05]), f"i{rng.integers(AT_FIRST)}"
    if kind == "item":
        sender, recipient = rng.choice(PEOPLE, 2, replace=False)
        return Item(f"new{number}", "default", f"p{sender}", (f"p{recipient}",))
    if kind == "withdrawal":
        return Withdrawal(some, "default")
    outcome = rng.choice(np.array([Outcome.RELEVANT, Outcome.IRRELEVANT, Outcome.RETRACTED, Outcome.SKIPPED]))
    return Verdict(f"v{number}", "q", some, "ann", Outcome(outcome), number)


@pytest.mark.parametrize("policy", ["look-ahead", "greedy", "epsilon-greedy", "bayes-ucb"])
@pytest.mark.parametrize("seed", range(3))
def test_the_first_items_are_those_of_the_queue_whatever_came(policy: str, seed: int) -> None:
    rng, state = np.random.default_rng(seed), State()
    for number in range(AT_FIRST):
        sender, recipient = rng.choice(PEOPLE, 2, replace=False)
        step(state, Item(f"i{number}", "default", f"p{sender}", (f"p{recipient}",)))
    step(state, Query("q", policy=Policy(policy)))
    query, kept = state.queries["q"], 0
    before = query.queue.first(TOP)
    for number in range(EVENTS):
        step(state, random_event(rng, number))
        if rng.random() < 0.1:
            item = f"i{rng.integers(AT_FIRST)}"
            query.hold(item) or query.release(item)
        query.settle()
        most = int(rng.choice([TOP, 3, 30]))
        assert list(query.queue.first(most)) == list(islice(query.queue.items(most), most))
        kept += query.queue.first(TOP) == before
        before = query.queue.first(TOP)
    assert kept > 0
