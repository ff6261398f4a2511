"""What finished simulations found, and by how much one setting found more than another: run by run.

Run r has the same seed, so the same order of items, under every setting: what is left of chance in a difference of
two settings is less than in either total.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haystream.ranking.policies import POLICIES
from haystream_service.study.journal import finished_in
from haystream_service.study.models import MODELS
from haystream_service.study.plan import Pair, Setting
from haystream_service.study.report import geometric_mean

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and one standard error of it, over runs."""

    value: float
    se: float

    def __str__(self) -> str:
        return format(self)

    def __format__(self, sign: str) -> str:
        """`+`: a sign before what is positive. As many digits as the error has to say."""
        decimals = 1 if self.se >= 0.195 else 2
        return f"{self.value:{sign}.{decimals}f} ± {self.se:.{decimals}f}".replace("-", "−")


@dataclass(frozen=True, slots=True)
class Study:
    """What a folder's searches found."""

    name: str
    found: dict[Pair, dict[int, Floats]]
    """By setting and run: relevant items found for each query, shape (queries,)."""

    def total(self, pair: Pair) -> Estimate:
        """Found. Over several queries their geometric mean, which is of found + 1, less the 1."""
        runs = self.found[pair]
        return _estimate([runs], sorted(runs))

    def less(self, pair: Pair, other: Pair) -> Estimate:
        """Found by one less what the other found, over the runs that both have."""
        both = [self.found[pair], self.found[other]]
        return _estimate(both, sorted(both[0].keys() & both[1].keys()))

    @property
    def queries(self) -> int:
        """How many there are."""
        return len(next(iter(next(iter(self.found.values())).values())))

    def ratio(self, pair: Pair, other: Pair) -> Estimate:
        """Geometric mean over queries of (found + 1) of one over that of the other, and its error over queries.

        What other queries would give, where `less` says what other orders of the items would.
        """
        one, two = (np.log1p(np.mean(list(self.found[which].values()), axis=0)) for which in (pair, other))
        mean = float(np.exp((one - two).mean()))
        return Estimate(mean, mean * float((one - two).std(ddof=1)) / float(np.sqrt(self.queries)))

    def rows(self) -> list[Setting]:
        """The models: each at its defaults, where it was searched with them, else with all its options."""
        plain = {model.name for model, _ in self.found if not model.options}
        shown = {model for model, _ in self.found if not model.options or model.name not in plain}
        return sorted(shown, key=lambda model: (list(MODELS).index(model.name), model.options))

    def policies(self, model: Setting) -> list[Setting]:
        """Those that it was searched with, at their defaults."""
        return [policy for policy in map(Setting, POLICIES) if (model, policy) in self.found]

    def best(self, model: Setting) -> Pair:
        """The model with that one of its policies that found most."""
        return max(((model, policy) for policy in self.policies(model)), key=lambda pair: self.total(pair).value)


def read_study(folder: Path, *, at: int | None = None) -> Study:
    """What the searches of a folder's journal found, or found in their first `at` screenings.

    A run that lacks queries is left out. Raises `UserError`.
    """
    finished = finished_in(folder)
    queries = sorted({task.query for task in finished})
    hits = {task: len(outcome.hits) if at is None else outcome.found(at) for task, outcome in finished.items()}
    found: defaultdict[Pair, dict[int, Floats]] = defaultdict(dict)
    for task in hits:
        if task.query == queries[0]:
            every = [hits.get(task._replace(query=query)) for query in queries]
            if None not in every:
                found[task.model, task.policy][task.run] = np.array(every, dtype=np.float64)
    return Study(folder.name, dict(found))


def _estimate(founds: Sequence[dict[int, Floats]], runs: Sequence[int]) -> Estimate:
    """The first's value, less the second's if there is one; its error by leaving each run out in turn.

    Of a mean that is the usual standard error; of a geometric mean over queries there is no other.
    """
    arrays = [np.array([found[run] for run in runs]) for found in founds]

    def value(kept: NDArray[np.bool_]) -> float:
        values = [geometric_mean(array[kept].mean(axis=0)) for array in arrays]
        return values[0] - sum(values[1:])

    count = len(runs)
    without = np.array([value(np.arange(count) != left_out) for left_out in range(count)] if count > 1 else [0.0])
    se = float(np.sqrt((count - 1) * without.var()))
    return Estimate(value(np.ones(count, dtype=np.bool_)), se)
