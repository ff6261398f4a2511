"""How near means are to exact ones, over priors drawn from all that settings may be: a search for the worst."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from haystream.events import Conditional, Item, ModelName, Outcome, Prior, Query, Verdict
from haystream.fold import State, step
from haystream.models.ranges import CORRELATION, Range
from haystream.models.settings import MODEL_SETTINGS
from haystream.query.state import QueryState
from haystream.report import Report, report
from haystream.warm import warm

QUERY, EXACT = "search", 1e-12
"""The query, and the tolerance of what the engine is held against: itself. At that it is within 1e-9 of a dense
solve of the definition (tests/core/test_local_engine.py)."""
MOST_PEOPLE, MOST_EXTRA_PAIRS, MOST_VERDICTS, MOST_LISTED = 12, 8, 300, 3
ITEMS_ON_A_PAIR = (1, 1, 2, 3, 10, 50, 200)
NEAR_THE_END = 0.08
"""Of the range of a correlation; half of all are drawn from so much at either end of it."""


class History(NamedTuple):
    """A prior, and what is said under it: the first of `pairs` has the first item, and so on round and round."""

    prior: Prior
    pairs: list[tuple[int, int]]
    items: int
    verdicts: list[tuple[int, bool]]
    """Which item, and whether it is relevant."""


class Worst(NamedTuple):
    """The largest error of any mean so far, and of which history."""

    error: float
    number: int


NO_ERROR = Worst(0.0, -1)


def run(*, histories: int, first: int, seed: int, tolerance: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Where means differ most, by model, of histories that are each folded at both tolerances."""
    warm()
    results: list[dict[str, Any]] = []
    for model in MODEL_SETTINGS:
        say(f"{model}: {histories:,} histories")
        participant = pair = NO_ERROR
        for number in range(first, first + histories):
            people, edges = errors(drawn(model, seed, number), tolerance)
            participant = max(participant, Worst(people, number))
            pair = max(pair, Worst(edges, number))
        worst = drawn(model, seed, max(participant, pair).number)
        results.append(
            {
                "model": model,
                "histories": histories,
                "participant_error": participant.error,
                "participant_history": participant.number,
                "pair_error": pair.error,
                "pair_history": pair.number,
                "worst": as_json(worst),
            }
        )
    return {"tolerance": tolerance, "seed": seed, "first": first, "results": results}


def drawn(model: ModelName, seed: int, number: int) -> History:
    """The history of a number: the same whichever are drawn beside it."""
    rng = np.random.default_rng([seed, list(MODEL_SETTINGS).index(model), number])
    people = int(rng.integers(2, MOST_PEOPLE + 1))
    pairs = {(int(rng.integers(u)), u) for u in range(1, people)}  # everybody is on one
    for _ in range(int(rng.integers(MOST_EXTRA_PAIRS + 1))):
        u, v = sorted(rng.choice(people, 2, replace=False).tolist())
        pairs.add((u, v))
    among = sorted(pairs)
    items = int(rng.choice(ITEMS_ON_A_PAIR)) * len(among)
    judged = rng.permutation(items)[: int(rng.integers(1, min(items, MOST_VERDICTS) + 1))]
    relevant = rng.random(len(judged)) < rng.random()
    verdicts = list(zip(judged.tolist(), relevant.tolist(), strict=True))
    return History(_prior(model, people, rng), among, items, verdicts)


def _prior(model: ModelName, people: int, rng: np.random.Generator) -> Prior:
    numbers: dict[str, Any] = {}
    for name, within in MODEL_SETTINGS[model].ranges.items():
        match name:
            case "correlation":
                numbers[name] = _correlation(rng)
            case "conditional":
                a00, a01, a10, a11, b00, b01, b10, b11 = (_number(within, rng) for _ in range(8))
                numbers[name] = Conditional(a=(a00, a01, a10, a11), b=(b00, b01, b10, b11))
            case "participants":
                listed = rng.choice(people, min(int(rng.integers(MOST_LISTED + 1)), people), replace=False)
                numbers[name] = {f"p{u}": _number(within, rng) for u in sorted(listed.tolist())}
            case _:
                numbers[name] = _number(within, rng)
    return Prior(model=model, **numbers)


def _number(within: Range, rng: np.random.Generator) -> float:
    """A number of a positive range, drawn evenly on the scale of logarithms; if a probability, of log odds."""
    is_probability = within.most < 1.0
    low, high = ((math.log(x / (1.0 - x)) if is_probability else math.log(x)) for x in within)
    at = float(rng.uniform(low, high))
    value = 1.0 / (1.0 + math.exp(-at)) if is_probability else math.exp(at)
    return min(max(value, within.least), within.most)


def _correlation(rng: np.random.Generator) -> float:
    if rng.random() < 0.5:
        return float(rng.uniform(*CORRELATION))
    size = CORRELATION.most - NEAR_THE_END * float(rng.random())
    return size if rng.random() < 0.5 else -size


def errors(history: History, tolerance: float) -> tuple[float, float]:
    """The largest error of a participant's mean and of a pair's, at rest."""
    return difference(*(report(folded(history, each)) for each in (tolerance, EXACT)))


def folded(history: History, tolerance: float) -> QueryState:
    """A query that has taken in one verdict after the other."""
    state = State(tolerance=tolerance)
    for number in range(history.items):
        u, v = history.pairs[number % len(history.pairs)]
        step(state, Item(f"i{number}", "default", f"p{u}", (f"p{v}",)))
    step(state, Query(QUERY, prior=history.prior))
    query = state.queries[QUERY]
    for number, (item, is_relevant) in enumerate(history.verdicts):
        outcome = Outcome.RELEVANT if is_relevant else Outcome.IRRELEVANT
        step(state, Verdict(f"v{number}", QUERY, f"i{item}", "search", outcome, number))
        query.settle()
    return query


def difference(got: Report, exact: Report) -> tuple[float, float]:
    """Between reports of the same people and pairs, the largest of participants' means and of pairs'."""
    people = [abs(got.participants[who][0] - mean) for who, (mean, _) in exact.participants.items()]
    pairs = [abs(one.mean - other.mean) for one, other in zip(got.edges, exact.edges, strict=True)]
    return max(people, default=0.0), max(pairs, default=0.0)


def as_json(history: History) -> dict[str, Any]:
    """What is needed to try the history again."""
    prior = history.prior
    numbers = {name: getattr(prior, name) for name in MODEL_SETTINGS[prior.model].ranges}
    if "conditional" in numbers:
        numbers["conditional"] = {"a": list(prior.conditional.a), "b": list(prior.conditional.b)}
    return {
        "prior": {"model": prior.model, **numbers, "participants": dict(prior.participants)},
        "pairs": [list(pair) for pair in history.pairs],
        "items": history.items,
        "verdicts": [[item, is_relevant] for item, is_relevant in history.verdicts],
    }
