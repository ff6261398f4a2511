"""About how much memory a collection takes, with what its queries share: for operators, who ask which one it is."""

import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from haystream.collection.collection import Collection
from haystream.engines.local.inverse.prior_inverse import GraphPrecision
from haystream.memory.arrays import Growing
from haystream.query.originals import Original

SAMPLE_OBJECTS = 64
"""Of many Python objects of a kind, so many are looked at."""

NUMBER_BYTES = sys.getsizeof(1 << 20)
"""Bytes of a number that Python keeps as an object."""


def bytes_of(collection: Collection) -> int:
    """The bytes of its items, its graph and its sets, and of what queries share; none of what queries differ in.

    Arrays count as they are; of Python's objects, which are most of it, a sample tells what one takes. This takes
    a tenth of a millisecond.
    """
    graph, sets, members, details = collection.graph, collection.sets, collection.members, collection.details
    known = [
        sum(map(_arrays, (collection, graph, sets, sets.links, members, members.chains, details))),
        _list(collection.item_ids),
        _list(graph.participants),
        *(_numbers(by) for by in (collection._index, graph._index, collection.withdrawals)),
        *(_numbers(by) + len(by) * _mean(by) for by in (graph._edge, sets._number)),
        sys.getsizeof(sets._alone),
        *(sys.getsizeof(members._ordered), len(members._ordered) * _mean(members._ordered.values())),
    ]
    shared = collection.shared
    known += map(_arrays, list(shared.get(GraphPrecision, {}).values()))
    known += (original.nbytes + _arrays(original.rankings) for original in list(shared.get(Original, {}).values()))
    return int(sum(known))


def _arrays(of: object) -> int:
    """Bytes of the arrays that are an object's own attributes, or in tuples that are."""
    return sum(map(_bytes, vars(of).values()))


def _bytes(of: object) -> int:
    if isinstance(of, tuple):
        return sum(map(_bytes, of))
    data = of.data if isinstance(of, Growing) else of
    return data.nbytes if isinstance(data, np.ndarray) else 0


def _list(objects: Sequence[Any]) -> float:
    """Bytes of a list with what is in it."""
    return sys.getsizeof(objects) + len(objects) * _mean(objects[:: max(1, len(objects) // SAMPLE_OBJECTS)])


def _numbers(by: dict[Any, int]) -> float:
    """Bytes of a dictionary of numbers, but for its keys."""
    return sys.getsizeof(by) + len(by) * NUMBER_BYTES


def _mean(objects: Iterable[Any]) -> float:
    """Bytes of an object in the mean, of the first ones. The numbers in it are those in dictionaries."""
    sizes = [sys.getsizeof(each) for each in islice(objects, SAMPLE_OBJECTS)]
    return sum(sizes) / max(1, len(sizes))
