"""A query that an earlier version opened with settings that are out of range today."""

import re

import numpy as np
import pytest

from haystream.collection.collection import Collection
from haystream.errors import Code, QueryFailed
from haystream.events import Item, Outcome, Prior, Query, Verdict
from haystream.query.state import QueryState
from haystream.report import report
from haystream_service.worker.folding import JUDGED_AT_ONCE, restore
from haystream_service.worker.troubles import computing

TOLERANCE = 2e-5


@pytest.mark.parametrize(
    ("prior", "named"),
    [
        (Prior(weight=1e-20), r"^prior\.weight: should be from 0\.01 to 1000000\.0 .* got 1e-20$"),
        (Prior(participant=1e-300), r"^prior\.participant: "),
        (Prior(correlation=0.99999), r"^prior\.correlation: "),
        (Prior(participants={"ann": 1e-300}), r"^prior\.participants\['ann'\]: "),
    ],
)
def test_it_stops_with_the_reason(prior: Prior, named: str) -> None:
    with pytest.raises(QueryFailed) as stopped, computing():
        QueryState(Query("q", prior=prior), Collection("default"), tolerance=TOLERANCE)
    assert stopped.value.code is Code.OUT_OF_RANGE
    assert stopped.match("^out_of_range: ")
    assert re.search(named, stopped.value.detail)


def test_its_verdicts_are_taken_in_by_parts_and_the_collection_may_grow_between_them() -> None:
    collection = Collection("default")
    for number in range(12_000):
        collection.add(Item(f"i{number}", "default", f"p{number}", (f"p{number + 1}",)))
    verdicts = [Verdict(f"v{n}", "q", f"i{97 * n}", "ann", Outcome.RELEVANT, n) for n in range(14)]
    at_once = QueryState(Query("q"), collection, tolerance=TOLERANCE)
    for verdict in verdicts:
        at_once.apply_verdict(verdict)
    parts, state = 0, QueryState(Query("q"), collection, tolerance=TOLERANCE)
    for _ in restore(state, verdicts, []):
        collection.add(Item(f"new{parts}", "default", f"p{parts}", (f"p{900 + parts}",)))
        parts += 1
    assert parts == 1 + len(verdicts) // JUDGED_AT_ONCE
    whole, wanted = report(state), report(at_once)
    assert whole.participants.keys() == wanted.participants.keys()
    means = ([mean for mean, _ in each.participants.values()] for each in (whole, wanted))
    np.testing.assert_allclose(*means, atol=1e-4)
    assert [item.item_id for item in whole.items[:3]] == [item.item_id for item in wanted.items[:3]]
