"""Many analysts on one query at the same time: what they find, beside what one of them would have found.

Each takes the best item that nobody has, reads for some seconds of simulated time, says what it is, and takes the
next. What one reads is chosen before the verdicts on what the others read are known: that is what working together
costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haystream.collection.collection import Collection
from haystream.events import Outcome, Query, Verdict
from haystream.query.state import QueryState
from haystream_service.sources import Source

QUERY = "q"


class Team(NamedTuple):
    """Who searches."""

    analysts: int
    counted: bool
    """Whether a query counts what they have as screened (its variances do), or only offers it to nobody else."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one search found: the relevant items among the first 1, 2, … verdicts, shape (screenings,)."""

    curve: NDArray[np.int64]


def search(source: Source, team: Team, *, screenings: int, reading: tuple[float, float], seed: int) -> Found:
    """One search of so many verdicts. `seed` decides ties between items, and how long reading takes.

    `reading`: the least and the most seconds that an analyst takes for an item, drawn uniformly.
    """
    collection = Collection("bench", seed=seed)
    for each in source:
        collection.add(each)
    state = QueryState(Query(QUERY, collection="bench"), collection)
    rng, ids = np.random.default_rng([seed, 4]), collection.item_ids
    taken: set[int] = set()
    """Items that somebody has and the query does not know of."""
    busy: list[tuple[float, int, int]] = []
    """When an analyst has read, in seconds, who, and what."""

    def take(analyst: int, now: float) -> None:
        state.settle()
        offered = (item for item, _, _ in state.queue.items(len(taken) + 1) if item not in taken)
        item = next(offered, None)
        if item is None:
            return
        if team.counted:
            state.hold(ids[item])
        else:
            taken.add(item)
        heappush(busy, (now + rng.uniform(*reading), analyst, item))

    for analyst in range(team.analysts):
        take(analyst, 0.0)
    relevant: list[bool] = []
    while busy and len(relevant) < screenings:
        now, analyst, item = heappop(busy)
        relevant.append(source.truth(ids[item]))
        outcome = Outcome.RELEVANT if relevant[-1] else Outcome.IRRELEVANT
        number = len(relevant)
        state.apply_verdict(Verdict(f"v{number}", QUERY, ids[item], f"a{analyst}", outcome, number))
        state.release(ids[item])
        taken.discard(item)
        take(analyst, now)
    return Found(np.cumsum(relevant, dtype=np.int64))


def teams(analysts: Sequence[int]) -> list[Team]:
    """One analyst alone, then each number with and without counting what they have."""
    more = sorted(set(analysts) - {1})
    return [Team(1, counted=True), *(Team(n, counted) for n in more for counted in (True, False))]


def shares(alone: Sequence[Found], together: Sequence[Found], marks: Sequence[int]) -> list[tuple[float, float]]:
    """After each number of screenings: found together over found alone, summed over runs, and its standard error.

    The error is of the mean of the differences run by run, as a part of what is found alone.
    """
    found = []
    for mark in marks:
        one, many = (
            np.array([run.curve[min(mark, len(run.curve)) - 1] for run in runs]) for runs in (alone, together)
        )
        error = float((many - one).std(ddof=1) / np.sqrt(len(one))) if len(one) > 1 else 0.0
        found.append((float(many.sum() / one.sum()), error / float(one.mean())))
    return found
