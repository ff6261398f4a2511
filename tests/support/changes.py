"""Batches to be saved, made by hand."""

from typing import Any

import numpy as np

from haystream.events import Query
from haystream.models.common import Common
from haystream.posterior.rows import Changes, Rows, Size
from haystream_service.store.base import Change, Position

COMMON = Common(base_rate=0.05, mean_shift=-0.05, variance=0.1, scale=0.0475)


def rows(index: list[int], first: float = 0.0, *, place: list[int] | None = None) -> Rows:
    """Rows of those numbers, which lie in this order unless said otherwise."""
    size = len(index) * 3
    values = np.arange(first, first + size, dtype=np.float64).reshape(len(index), 3)
    places = np.arange(len(index)) if place is None else place
    return Rows(np.array(index, dtype=np.uint32), values, np.array(places, dtype=np.int32))


def tables(
    people: Rows = rows([]),  # noqa: B008
    edges: Rows = rows([]),  # noqa: B008
    discrepancy: float = 0.25,
    *,
    size: Size = Size(9, 8),  # noqa: B008
    whole: bool = False,
) -> Changes:
    return Changes(people, edges, size, COMMON, discrepancy, whole)


def change(query_id: str = "q", *, expected: int = 0, revision: int = 10, **parts: Any) -> Change:
    whole: dict[str, Any] = {
        "partition": 3,
        "position": Position(5, 7, 2),
        "touched": 1_700_000_000_000,
        "settings": Query(query_id),
        "verdicts": [],
        "ranking": b'{"revision":%d}' % revision,
        "tables": tables(),
    }
    return Change(query_id=query_id, expected=expected, revision=revision, **(whole | parts))
