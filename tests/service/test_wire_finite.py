"""A number that JSON cannot say is refused where it is written, and not published as null."""

import math
from dataclasses import replace

import pytest
from support.changes import tables

from haystream.errors import QueryFailed
from haystream.events import Prior, Query
from haystream.models.common import Common
from haystream.ranking.ranked import Estimate, RankedItem, Ranking, Share
from haystream_service.store.facts import encode_shared, read_shared
from haystream_service.wire import decode_ranking, encode_query, encode_ranking

ITEM = RankedItem("null", 1, 0.5, 0.5, 0.1, ("ann", "null"), (Share(("ann", "null"), 0.25),))
RANKING = Ranking("greedy", 2, 1, Estimate(3.0, 0.5), 1.5, (ITEM,))

NOT_FINITE = [math.nan, math.inf, -math.inf]


def encode(ranking: Ranking) -> bytes:
    return encode_ranking("null", ranking, revision=1, published_at=0)


def test_somebody_may_be_called_null() -> None:
    assert decode_ranking(encode(RANKING)).items[0].participants == ("ann", "null")


@pytest.mark.parametrize("number", NOT_FINITE)
def test_a_ranking_names_the_number_that_is_not_finite(number: float) -> None:
    second = ITEM._replace(item_id="b", rank=2, because=(Share(("a", "b"), number),))
    for ranking, place in (
        (replace(RANKING, discrepancy=number), "discrepancy"),
        (replace(RANKING, expected_remaining=Estimate(1.0, number)), r"expected_remaining\.sd"),
        (replace(RANKING, items=(ITEM._replace(score=number),)), r"items\[0\]\.score"),
        (replace(RANKING, items=(ITEM, second)), r"items\[1\]\.because\[0\]\.share"),
    ):
        with pytest.raises(QueryFailed, match=f": {place} is not a finite number$"):
            encode(ranking)


@pytest.mark.parametrize("number", NOT_FINITE)
def test_settings_too(number: float) -> None:
    with pytest.raises(ValueError, match=r"^prior\.mean is not"):
        encode_query(Query("q", prior=Prior(mean=number)))


@pytest.mark.parametrize("number", NOT_FINITE)
def test_what_the_tables_share_too(number: float) -> None:
    told = tables(discrepancy=0.5)
    assert read_shared(encode_shared(told)) == (told.common, 0.5)
    with pytest.raises(ValueError, match=r"^base_rate is not"):
        encode_shared(replace(told, common=Common(base_rate=number)))
