"""Runs a plan's searches, in processes of their own, and keeps what is finished."""

import signal
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import numpy as np

from haystream_service.errors import UserError
from haystream_service.processes import pool
from haystream_service.study.models import MODELS
from haystream_service.study.network import Network
from haystream_service.study.plan import Plan, Task, policy, seed_of
from haystream_service.study.search import Run, search

PERCENTILES = (90, 95)
"""Of the edges' true rates (section 5.3.2): how many items were screened on edges above them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is kept of one search."""

    screened: int
    hits: tuple[int, ...]
    """The screenings, from 1, that found a relevant item."""
    edge_changes: int
    above: tuple[float, ...]
    """Items screened on edges above each of `PERCENTILES`; an item of k edges counts 1/k for each."""

    def found(self, at: int) -> int:
        """The relevant items it found in its first `at` screenings."""
        return bisect_right(self.hits, at)


@dataclass(frozen=True, slots=True)
class Searches:
    """All that a task needs beside its name."""

    networks: Mapping[str, Network]
    """By query."""
    steps: int
    seed: int

    def __call__(self, task: Task) -> Outcome:
        """Do it."""
        network = self.networks[task.query]
        model = MODELS[task.model.name](network, dict(task.model.options))
        seed = seed_of(self.seed, task.run)
        return outcome(network, search(network, model, policy(task.policy), steps=self.steps, seed=seed))


def outcome(network: Network, run: Run) -> Outcome:
    """What is kept of it."""
    rates = network.rates
    sizes = np.diff(network.set_start)
    above = []
    for level in thresholds(network):
        good = np.add.reduceat((rates > level)[network.set_edge].astype(np.float64), network.set_start[:-1]) / sizes
        above.append(float(good[run.choice].sum()))
    hits = tuple((np.flatnonzero(run.relevant) + 1).tolist())
    return Outcome(len(run.item), hits, run.edge_changes, tuple(above))


def thresholds(network: Network) -> tuple[float, ...]:
    """The `PERCENTILES` of the edges' true rates."""
    return tuple(np.percentile(network.rates, PERCENTILES).tolist())


def check(plan: Plan, searches: Searches) -> None:
    """Make every model once. Raises `UserError` where an extra is missing or an option's value cannot be."""
    network = next(iter(searches.networks.values()))
    for setting in plan.models:
        MODELS[setting.name](network, dict(setting.options))


def simulate(tasks: Sequence[Task], searches: Searches, *, processes: int) -> Iterator[tuple[Task, Outcome]]:
    """Outcomes as they come. A task's does not depend on the others, nor on the number of processes.

    Raises:
        UserError: a process came to an early end.
    """
    if processes == 1 or len(tasks) < 2:
        yield from ((task, searches(task)) for task in tasks)
        return
    for network in searches.networks.values():
        # What models made here have left for others on this network can go to no other process.
        network.collection.shared.clear()
    executor = pool(min(processes, len(tasks)), _prepare, searches)
    try:
        futures = {executor.submit(_search, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures.pop(future), future.result()
    except BrokenProcessPool:
        raise UserError("a process of the simulation came to an early end: too little memory, perhaps") from None
    finally:
        executor.shutdown(cancel_futures=True)


_searches: list[Searches] = []
"""What a process of the pool was given when it started."""


def _prepare(searches: Searches) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    _searches.append(searches)


def _search(task: Task) -> Outcome:
    return _searches[0](task)
