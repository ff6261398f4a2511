"""Which sets are a query's own, and which of these have no entry."""

import numpy as np
import pytest
from support.seeds import seeds

from haystream.collection.item_sets import ItemSets
from haystream.memory.arrays import Bits, Ints
from haystream.ranking.own_sets import OwnSets, next_bits, put_bits

SETS = 3000


def bits_of(numbers: Ints) -> Bits:
    bits = np.zeros(SETS // 8 + 1, np.uint8)
    put_bits(bits, numbers, np.empty(len(numbers), np.int32))
    return bits


@pytest.mark.parametrize("seed", seeds(20))
@pytest.mark.parametrize("members", [0, 1, 3, 40, 2000])
def test_the_numbers_of_a_set_of_bits_are_found_in_order_from_anywhere(members: int, seed: int) -> None:
    rng = np.random.default_rng([seed, members])
    numbers = np.sort(rng.choice(SETS, members, replace=False)).astype(np.int32)
    begin, end = sorted(rng.choice(SETS + 1, 2, replace=False).tolist())
    wanted = numbers[(numbers >= begin) & (numbers < end)]
    bits, found = bits_of(numbers), np.empty(int(rng.integers(1, 50)), np.int32)
    got: list[int] = []
    at = begin
    while at < end:
        count, at = next_bits(bits, at, end, found)
        got += found[:count].tolist()
    assert at == end
    assert got == wanted.tolist()


@pytest.mark.parametrize("seed", seeds(10))
def test_own_sets_without_an_entry_are_told_of_once(seed: int) -> None:
    rng, sets = np.random.default_rng(seed), ItemSets()
    sets.intern(range(SETS), [1] * SETS)
    own = OwnSets(sets, np.ones(SETS, np.int64), np.zeros(SETS, np.uint64))
    mine = np.sort(rng.choice(SETS, 900, replace=False)).astype(np.int32)
    own.own(mine)
    entered = np.sort(rng.choice(mine, 300, replace=False))
    own.enter(entered)
    rest = np.setdiff1d(mine, entered)
    assert own.without_entry(known=rest[:5]).tolist() == rest.tolist()
    some = rng.permutation(rest)
    assert own.without_entry(known=some).tolist() == some.tolist()
    at = own.places(entered)
    assert own.numbers(at, rest).tolist() == [*entered.tolist(), *rest.tolist()]
    assert own.counts(at, rest).left.tolist() == [1] * len(mine)
