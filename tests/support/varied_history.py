"""Prints the compiled loops that a long and varied history needs after `warm`, one a line: a process of its own."""

import sys
from dataclasses import replace
from unittest import mock

import numpy as np
from numba.core.registry import CPUDispatcher

from haystream.events import Item, Outcome, Policy, Query, Verdict, Withdrawal
from haystream.fold import State, step
from haystream.models import DEFAULT_PRIORS
from haystream.query.state import QueryState
from haystream.query.watchers import Watchers
from haystream.ranking import prior_rankings, set_ranking, unowned
from haystream.ranking.policies import POLICIES
from haystream.report import report
from haystream.warm import warm

PEOPLE, AT_FIRST, EVENTS = 150, 500, 150
small = (  # so that it goes the ways of a large graph, too
    mock.patch.multiple(set_ranking, CANDIDATES=6, LATE_AT_ONCE=11, THIN_OUT_EVERY=2, AT_ONCE=8),
    mock.patch.multiple(unowned, MADE_AT_ONCE=8),
    mock.patch.multiple(prior_rankings, MADE_AT_ONCE=8),
)


def compiled() -> dict[str, int]:
    """How many signatures each loop of the package has."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("haystream."):
            for loop in vars(module).values():
                if type(loop) is CPUDispatcher and loop.targetoptions.get("inline") != "always":
                    found[f"{loop.py_func.__module__}.{loop.py_func.__name__}"] = len(loop.overloads)
    return found


def main() -> None:
    """Warm up, and then live through everything."""
    warm()
    before = compiled()
    for patch in small:
        patch.start()
    rng, state = np.random.default_rng(0), State()
    people = [f"p{n}" for n in range(PEOPLE)]
    items: list[str] = []

    def item() -> None:
        several = 2 if rng.random() < 0.8 else int(rng.integers(3, 6))
        names = [str(name) for name in rng.choice(people, several, replace=False)]
        items.append(f"i{len(items)}")
        step(state, Item(items[-1], "default", names[0], tuple(names[1:])))

    for _ in range(AT_FIRST):
        item()
    settings = [
        Query(f"q{number}-{policy}", prior=prior, policy=Policy(policy))
        for number, prior in enumerate(DEFAULT_PRIORS.values())
        for policy in POLICIES
    ]
    for each in settings:
        step(state, each)
    for number in range(EVENTS):
        query = state.queries[settings[number % len(settings)].query_id]
        happen(state, query, number, str(rng.choice(items)), rng)
        for _ in range(int(rng.integers(0, 4))):
            item()
        if number % 10 == 9:
            step(state, Withdrawal(str(rng.choice(items)), "default"))
        for query_id in list(Watchers.of(query.collection).to_ask()):
            if query_id in state.queries and state.queries[query_id].concerned():
                state.queries[query_id].ranking()
    for query in state.queries.values():
        query.finish()
        while query.foresee():
            pass
        report(query)
        again = QueryState(query.settings, query.collection)
        for verdict in query.verdicts.values():
            again.apply_verdict(verdict)
        again.ranking()
    for name, count in sorted(compiled().items()):
        if count > before.get(name, 0):
            sys.stdout.write(f"{name}\n")


def happen(state: State, query: QueryState, number: int, which: str, rng: np.random.Generator) -> None:
    """Something happens to a query, and it is read, drained and tended."""
    offered = query.ranking().items
    chosen = rng.random()
    if offered and rng.random() < 0.5:
        which = offered[0].item_id
    if chosen < 0.6:
        outcome = (Outcome.RELEVANT, Outcome.IRRELEVANT, Outcome.RETRACTED)[int(rng.choice(3, p=[0.4, 0.5, 0.1]))]
        step(state, Verdict(f"v{number}", query.settings.query_id, which, "nobody", outcome, number))
    elif chosen < 0.8:
        query.hold(which)
    else:
        prior = query.settings.prior
        listed = {f"p{int(rng.integers(PEOPLE))}": 0.3}
        step(state, replace(query.settings, prior=replace(prior, participants=listed)))
    query.ranking()
    query.drain()
    query.tend(int(rng.integers(1, 60)))
    query.foresee()


if __name__ == "__main__":
    main()
