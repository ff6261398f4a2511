"""A tuple that is held is to compiled loops what the tuple itself is."""

from gc import collect
from typing import NamedTuple

import numpy as np

from haystream.memory.arrays import Floats, Ints
from haystream.memory.compiled import allocating, compiled
from haystream.memory.held import held


class Part(NamedTuple):
    column: Floats
    rows: Floats


class Whole(NamedTuple):
    part: Part
    which: Ints
    factor: float


def whole(size: int) -> Whole:
    rows = np.arange(2.0 * size).reshape(size, 2)
    return Whole(Part(rows[:, 1], rows), np.arange(size, dtype=np.int32), 3.0)


@compiled
def add_up(of: Whole, times: float) -> float:
    part, total = of.part, 0.0
    for i in of.which:
        total += times * of.factor * (part.column[i] + part.rows[i, 0])
        part.rows[i, 0] = 0.0
    return total


@compiled
def add_up_by_another(of: Whole) -> float:
    return add_up(of, 1.0)


@allocating
def column_of(of: Whole) -> Floats:
    return of.part.column * of.factor


def test_a_loop_reads_and_writes_the_arrays_of_what_is_held() -> None:
    plain, other = whole(5), whole(5)
    kept = held(other)
    for _ in range(2):
        assert add_up(kept, 2.0) == add_up(plain, 2.0)
        np.testing.assert_array_equal(other.part.rows, plain.part.rows)
    assert add_up_by_another(kept) == add_up(plain, 1.0) > 0.0
    np.testing.assert_array_equal(column_of(kept), column_of(plain))


def test_its_members_are_those_of_the_tuple() -> None:
    plain = whole(3)
    kept = held(plain)
    assert kept.part is plain.part
    assert kept.factor == 3.0
    changed = held(kept._replace(factor=1.0))
    assert add_up(changed, 1.0) == 15.0
    assert kept.factor == 3.0


def test_its_arrays_are_there_for_as_long_as_it_is() -> None:
    kept = [held(whole(1000)) for _ in range(50)]
    collect()
    [np.full((1000, 2), np.nan) for _ in range(200)]
    assert {add_up(each, 1.0) for each in kept} == {3.0 * 1999 * 1000}


def test_arrays_of_another_kind_are_another_tuple() -> None:
    loose, tight = whole(4), whole(4)
    tight = tight._replace(part=Part(np.ascontiguousarray(tight.part.column), tight.part.rows))
    assert add_up(held(tight), 1.0) == add_up(held(loose), 1.0)
    none = Whole(Part(np.zeros(0), np.zeros((0, 2))), np.zeros(0, np.int32), 1.0)
    assert add_up(held(none), 1.0) == 0.0
