"""Where a store keeps the rows of a table of which it has a few: each at a place of its own."""

import numpy as np

from haystream.memory.arrays import Ints, Longs, Switches
from haystream.memory.compiled import allocating, compiled, inlined

FREE, NOWHERE = -1, -1
"""Instead of a number, in a slot that nobody has; instead of a place."""

FEWEST_SLOTS = 64
"""Slots, to begin with: a power of two, as their number always is."""

MIXING_FACTOR = 0x9E3779B1
"""Odd, so that numbers that follow each other have slots of their own."""


GIVEN, BACK, TAKEN = 0, 1, 2
"""How many places there are; how many of them were given back; how many slots are taken."""


class Places:
    """The place of each row, by its number. A new row gets one that was given back, or the next one.

    A table of numbers with open slots, at most three quarters of which are taken: it takes 11 to 21 bytes a row.
    """

    def __init__(self) -> None:
        self._numbers, self._places = _slots(FEWEST_SLOTS)
        self._back = np.zeros(0, np.int32)
        self._counts = np.zeros(3, np.int64)

    def __len__(self) -> int:
        """How many places there are, with those that were given back."""
        return int(self._counts[GIVEN])

    def has(self, index: Ints) -> Switches:
        """Whether each of these rows has a place, shape (k,)."""
        return np.asarray(self.look(index) != NOWHERE)

    def look(self, index: Ints) -> Ints:
        """The places of these rows, shape (k,); NOWHERE of one without."""
        return look(self._numbers, self._places, index)

    def of(self, index: Ints) -> Ints:
        """The places of these rows, each named once, shape (k,)."""
        if 4 * (self._counts[TAKEN] + len(index)) > 3 * len(self._numbers):
            some = self._places != NOWHERE
            numbers, places = self._numbers[some], self._places[some]
            self._counts[TAKEN] = len(numbers)
            self._numbers, self._places = _slots(1 << (4 * (len(numbers) + len(index)) // 3).bit_length())
            put(self._numbers, self._places, numbers, places)
        return take(self._numbers, self._places, self._back, self._counts, index)

    def give_back(self, index: Ints) -> Ints:
        """The places of those of these rows that had one, and have none from now on."""
        room = int(self._counts[BACK]) + len(index)
        if room > len(self._back):
            self._back = np.append(self._back, np.empty(room - len(self._back), np.int32))
        return release(self._numbers, self._places, self._back, self._counts, index)


def _slots(count: int) -> tuple[Ints, Ints]:
    return np.full(count, FREE, np.int32), np.full(count, NOWHERE, np.int32)


@inlined
def slot_of(numbers: Ints, number: int) -> int:
    """Where the number is, or would be."""
    last = len(numbers) - 1
    slot = (number * MIXING_FACTOR) & last
    while numbers[slot] != FREE and numbers[slot] != number:
        slot = (slot + 1) & last
    return slot


@allocating
def look(numbers: Ints, places: Ints, index: Ints) -> Ints:
    """The places of these rows, shape (k,); NOWHERE of one without."""
    found = np.empty(len(index), np.int32)
    for i in range(len(index)):
        found[i] = places[slot_of(numbers, index[i])]
    return found


@allocating
def take(numbers: Ints, places: Ints, back: Ints, counts: Longs, index: Ints) -> Ints:
    """The places of these rows, shape (k,), which they get if they have none."""
    found = np.empty(len(index), np.int32)
    for i in range(len(index)):
        slot = slot_of(numbers, index[i])
        if numbers[slot] == FREE:
            numbers[slot] = index[i]
            counts[TAKEN] += 1
        if places[slot] == NOWHERE and counts[BACK] > 0:
            counts[BACK] -= 1
            places[slot] = back[counts[BACK]]
        elif places[slot] == NOWHERE:
            places[slot] = counts[GIVEN]
            counts[GIVEN] += 1
        found[i] = places[slot]
    return found


@allocating
def release(numbers: Ints, places: Ints, back: Ints, counts: Longs, index: Ints) -> Ints:
    """The places of those of these rows that had one, which they lose: those are put into `back`."""
    begin = counts[BACK]
    for number in index:
        slot = slot_of(numbers, number)
        if places[slot] != NOWHERE:
            back[counts[BACK]] = places[slot]
            counts[BACK] += 1
            places[slot] = NOWHERE
    return back[begin : counts[BACK]].copy()


@compiled
def put(numbers: Ints, places: Ints, index: Ints, place: Ints) -> None:
    """Say of these rows that they are there."""
    for i in range(len(index)):
        slot = slot_of(numbers, index[i])
        numbers[slot], places[slot] = index[i], place[i]
