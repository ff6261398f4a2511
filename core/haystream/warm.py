"""Have every inner loop compiled before the first event needs it."""

import numpy as np

from haystream.engines.local.inverse.precision import ONE_BY_ONE
from haystream.engines.local.inverse.prior_inverse import LARGELY_NEW
from haystream.events import Item, Outcome, Policy, Query, Verdict
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.ranking.own_sets import OwnSets
from haystream.ranking.tournament import TERMS, Tournament
from haystream.report import report

PEOPLE = 300
"""So many that what they have fills pages of memory, which can be given up (`QueryState.slim`)."""


def warm() -> None:
    """Fold a tiny history that goes through every compiled loop; takes seconds once, then milliseconds.

    The machine code is cached beside the sources (or where NUMBA_CACHE_DIR says), so a later process of the
    same installation only loads it.
    """
    for prior in DEFAULT_PRIORS.values():
        _fold(Query("warm", prior=prior, policy=Policy("bayes-ucb")))


def _fold(settings: Query) -> None:
    state = State()
    step(state, settings)
    people = [f"p{i}" for i in range(max(PEOPLE, LARGELY_NEW * (ONE_BY_ONE + 1)))]
    for i, person in enumerate(people[1:], start=1):
        step(state, Item(f"i{i}", "default", people[i // 2], (person,)))
    query = state.queries["warm"]
    query.settle()
    step(state, Item("unjudged", "default", people[3], (people[-1],)))  # while nothing is judged
    query.settle()
    step(state, Item("among", "default", None, tuple(people[1:6])))
    for i, item_id in enumerate(("i1", "i2", "i3", "among")):
        step(state, Verdict(f"v{i}", "warm", item_id, "nobody", Outcome.RELEVANT, i))
        query.ranking()
    for new in (1, ONE_BY_ONE + 1):  # edges that are let in one by one, and many at once
        for person in people[-new:]:
            step(state, Item(f"new{new}{person}", "default", people[new], (person,)))
        query.finish()
    query.slim()
    query.hold("i4")
    query.ranking()
    step(state, Verdict("v", "warm", "i5", "nobody", Outcome.RELEVANT, 0))  # while something is pending
    query.ranking()
    query.engine.readings.rounded_after(0)
    query.drain()
    report(query)
    # What is late, on a graph that is larger.
    Tournament().foreseen(0.0)
    Tournament().retire(np.zeros(TERMS), np.zeros(0, np.bool_))
    OwnSets(query.collection.sets, np.zeros(0, np.int64), np.zeros(0, np.uint64)).next(0, 1)
