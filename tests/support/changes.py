"""Batches to be saved, made by hand."""

from typing import Any

import numpy as np

from haystream.events import Query
from haystream.models.common import Common
from haystream.posterior_tables import Changes, Rows
from haystream_service.store.base import Change, Position

COMMON = Common(base_rate=0.05, mean_shift=-0.05, variance=0.1, scale=0.0475)


def rows(index: list[int], first: float = 0.0) -> Rows:
    size = len(index) * 3
    values = np.arange(first, first + size, dtype=np.float64).reshape(len(index), 3)
    return Rows(np.array(index, dtype=np.uint32), values)


def tables(people: Rows = rows([]), edges: Rows = rows([]), discrepancy: float = 0.25) -> Changes:  # noqa: B008
    return Changes(people, edges, COMMON, discrepancy)


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
