"""Gauges with a label of many values: some have a series of their own, and the others share one."""

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client import Gauge

OTHER = "other"
"""The label that stands for all that have no series of their own."""
LABELLED_COLLECTIONS = 20
"""So many have a series of their own: those that take most."""


def show_largest(gauge: Gauge, values: Mapping[str, float], *, limit: int) -> None:
    """Show the largest values by name, at most `limit` of them and no others; the rest add up to `other`."""
    gauge.clear()
    # One that is itself called "other" must not write over the sum of the others.
    largest = sorted(values.keys() - {OTHER}, key=lambda name: (-values[name], name))[:limit]
    for name in largest:
        gauge.labels(name).set(values[name])
    gauge.labels(OTHER).set(sum(value for name, value in values.items() if name not in largest))


@dataclass(frozen=True, slots=True)
class QueryNumbers:
    """What the per-query gauges show of one query."""

    screened: int
    found: int
    discrepancy: float
    drift: float


class QueryGauges:
    """The gauges with a `query` label: at most `limit` queries have their own series, the rest share `other`.

    First come, first served. A query that is forgotten frees its place for the next one that reports.
    """

    def __init__(self, screened: Gauge, found: Gauge, discrepancy: Gauge, drift: Gauge, *, limit: int) -> None:
        self._gauges = screened, found, discrepancy, drift
        self._limit = limit
        self._labelled: set[str] = set()
        self._others: dict[str, QueryNumbers] = {}
        others = self._unlabelled
        screened.labels(OTHER).set_function(lambda: sum(numbers.screened for numbers in others()))
        found.labels(OTHER).set_function(lambda: sum(numbers.found for numbers in others()))
        discrepancy.labels(OTHER).set_function(
            lambda: max((numbers.discrepancy for numbers in others()), default=0.0)
        )
        drift.labels(OTHER).set_function(lambda: max((numbers.drift for numbers in others()), default=0.0))

    def report(self, query_id: str, numbers: QueryNumbers) -> None:
        """Show the query's numbers from now on."""
        if query_id not in self._labelled:
            # A query that is itself called "other" must not write over the sum of the others.
            if len(self._labelled) >= self._limit or query_id == OTHER:
                self._others[query_id] = numbers
                return
            self._others.pop(query_id, None)
            self._labelled.add(query_id)
        values = numbers.screened, numbers.found, numbers.discrepancy, numbers.drift
        for gauge, value in zip(self._gauges, values, strict=True):
            gauge.labels(query_id).set(value)

    def forget(self, query_id: str) -> None:
        """Show the query no more: this worker does not own it any longer."""
        self._others.pop(query_id, None)
        if query_id in self._labelled:
            self._labelled.remove(query_id)
            for gauge in self._gauges:
                gauge.remove(query_id)

    def _unlabelled(self) -> list[QueryNumbers]:
        return list(self._others.values())  # a copy: a scrape may come from another thread
