"""How near each model and policy comes to the best of all in hindsight, by sort of query, as tables."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haystream_service.study.markdown import table
from haystream_service.study.plan import Pair, pair_label

Floats = NDArray[np.float64]

HALF = 0.5
"""Added to what is found, above and below: so that a search that finds nothing counts as little, and not as 0."""


@dataclass(frozen=True, slots=True)
class SurveyQuery:
    """What is searched for."""

    name: str
    sort: str
    relevant: int
    items: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What each pair found for each query."""

    pairs: tuple[Pair, ...]
    queries: tuple[SurveyQuery, ...]
    at: tuple[int, ...]
    """Screenings."""
    found: Floats
    """Mean over runs, shape (pairs, queries, at)."""

    @property
    def sorts(self) -> tuple[str, ...]:
        """The queries', in order."""
        return tuple(dict.fromkeys(query.sort for query in self.queries))

    def of_sort(self, sort: str) -> list[int]:
        """The places of its queries."""
        return [place for place, query in enumerate(self.queries) if query.sort == sort]

    def ratios(self, against: Sequence[Pair]) -> Floats:
        """Of what each pair found, to the most that any of `against` did: shape (pairs, queries, at)."""
        rows = [self.pairs.index(pair) for pair in against]
        return np.asarray((self.found + HALF) / (self.found[rows].max(axis=0) + HALF))


def by_sort(survey: Survey, against: Sequence[Pair]) -> str:
    """Pairs down, sorts across: the geometric mean over queries of the ratio, at each number of screenings."""
    logs = np.log(survey.ratios(against))
    means = [np.exp(logs[:, survey.of_sort(sort)].mean(axis=1)) for sort in survey.sorts]
    lines = [
        [pair_label(pair), *(" ".join(map(_short, of_sort[row].tolist())) for of_sort in means)]
        for row, pair in enumerate(survey.pairs)
    ]
    return table(["found, to the best", *(_described(survey, sort) for sort in survey.sorts)], lines)


BANDS = ((0.0, 0.005), (0.005, 0.01), (0.01, 0.06), (0.06, 1.0))
"""Shares of items that are relevant to a query, from and below."""


def by_share(survey: Survey, against: Sequence[Pair]) -> str:
    """Pairs down, bands of the relevant share across: as `by_sort`, over the queries of every sort."""
    logs = np.log(survey.ratios(against))
    shares = np.array([query.relevant / query.items for query in survey.queries])
    bands = {
        f"{100 * low:g} to {100 * high:g} % relevant ({of.sum()})": np.exp(logs[:, of].mean(axis=1))
        for low, high in BANDS
        if (of := (low <= shares) & (shares < high)).any()
    }
    lines = [
        [pair_label(pair), *(" ".join(map(_short, of_band[row].tolist())) for of_band in bands.values())]
        for row, pair in enumerate(survey.pairs)
    ]
    return table(["found, to the best", *bands], lines)


def worst(survey: Survey, sort: str, against: Sequence[Pair]) -> str:
    """Pairs down, screenings across: the least ratio of the sort's queries, and whose it is."""
    places = survey.of_sort(sort)
    ratios = survey.ratios(against)[:, places]
    least = ratios.argmin(axis=1)
    lines = [
        [
            pair_label(pair),
            *(
                f"{_short(ratios[row, query, column])} {survey.queries[places[query]].name}"
                for column, query in enumerate(least[row].tolist())
            ),
        ]
        for row, pair in enumerate(survey.pairs)
    ]
    return table([sort, *(f"{at:,}" for at in survey.at)], lines)


def _described(survey: Survey, sort: str) -> str:
    """With the number of its queries, and the share of items that is relevant to them."""
    queries = [survey.queries[place] for place in survey.of_sort(sort)]
    shares = sorted(100.0 * query.relevant / query.items for query in queries)
    span = f"{shares[0]:.2g}" if len(shares) == 1 else f"{shares[0]:.2g} to {shares[-1]:.2g}"
    return f"{sort} ({len(queries)}; {span} %)"


def _short(ratio: float) -> str:
    """Two decimals, without the 0 before them."""
    return f"{ratio:.2f}".removeprefix("0")
