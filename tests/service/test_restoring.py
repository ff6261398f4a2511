"""A query that an earlier version opened with settings that are out of range today."""

import re

import pytest

from haystream.collection import Collection
from haystream.errors import Code, QueryFailed
from haystream.events import Prior, Query
from haystream_service.worker.folding import restore

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
    with pytest.raises(QueryFailed) as stopped:
        restore(Query("q", prior=prior), [], [], Collection("default"), TOLERANCE)
    assert stopped.value.code is Code.OUT_OF_RANGE
    assert stopped.match("^out_of_range: ")
    assert re.search(named, stopped.value.detail)
