"""The arrays that kernels work on: names for their types, and columns that grow at one end at amortised cost."""

from copy import copy
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haystream.memory.compiled import allocating, compiled, inlined, viewing

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Flags = NDArray[np.uint8]
Switches = NDArray[np.bool_]

_T = TypeVar("_T", bound=np.generic)

SPARE = 8
"""Arrays that are too short get an eighth more than is needed: spare room is memory of every query."""


def room_for(size: int) -> int:
    """How long an array is made that is too short for so many entries."""
    return 16 + size + size // SPARE


def union(*parts: Ints) -> Ints:
    """What is in any of the parts, each once and ascending, shape (k,)."""
    together = np.concatenate([np.zeros(0, np.int32), *parts])
    together.sort()
    first = np.ones(len(together), np.bool_)
    np.not_equal(together[1:], together[:-1], out=first[1:])  # of thousands np.unique takes ten times as long
    return together[first]


class Growing(Generic[_T]):
    """A numpy array with spare room behind it.

    `data` may be longer than `size`: kernels take `data`, readers take `view()`. New entries hold `fill`.
    Growing reallocates, so keep the `Growing` itself, never a slice of it, across `resize`.
    """

    __slots__ = ("data", "fill", "size")

    def __init__(self, dtype: type[_T], *, fill: float = 0) -> None:
        self.fill = fill
        self.size = 0
        self.data: NDArray[_T] = np.full(16, fill, dtype=dtype)

    def resize(self, size: int) -> None:
        """Make room for `size` entries; never shrinks."""
        if size > len(self.data):
            grown = np.zeros(room_for(size), self.data.dtype)
            if self.fill:  # zeros take no memory before they are written to
                grown[self.size :] = self.fill
            grown[: self.size] = self.data[: self.size]
            self.data = grown
        self.size = max(self.size, size)

    def append(self, value: float) -> None:
        """Add one entry."""
        size = self.size
        if size == len(self.data):
            self.resize(size + 1)
        self.data[size] = value
        self.size = size + 1

    def extend(self, values: ArrayLike) -> None:
        """Add entries, shape (k,): at a small part of what k calls of `append` cost."""
        some = np.asarray(values, self.data.dtype)
        begin = self.size
        self.resize(begin + len(some))
        self.data[begin : self.size] = some

    def as_now(self) -> "Growing[_T]":
        """The entries in use, on the same memory: what is added does not reach this one, what is written does."""
        now = copy(self)
        now.data = self.view()
        return now

    def view(self) -> NDArray[_T]:
        """The entries in use, without a copy."""
        return self.data[: self.size]


Bits = NDArray[np.uint8]
"""Yes or no for each of some numbers, eight of them a byte, the first by the least bit."""


def bits(numbers: int) -> Bits:
    """No for each of so many numbers."""
    return np.zeros(numbers // 8 + 1, np.uint8)


@inlined
def bit_of(some: Bits, number: int) -> int:
    """1 where yes is said of the number, else 0."""
    return (some[number >> 3] >> (number & 7)) & 1  # type: ignore[no-any-return]


@inlined
def put_bit(some: Bits, number: int, yes: int) -> None:
    """Say 1 or 0, where that is new: memory that is written to is one's own from then on."""
    if bit_of(some, number) != yes:
        some[number >> 3] ^= 1 << (number & 7)


def members_by_bit(some: Bits) -> Ints:
    """The numbers with yes, ascending."""
    return np.flatnonzero(np.unpackbits(some, bitorder="little")).astype(np.int32)


class Marked(NamedTuple):
    """A set of numbers below some bound, in the order in which they came."""

    members: Ints
    """Shape (bound,), of which the first `size[0]` are in use."""
    flags: Flags
    """Two bits a number, shape (bound / 4 + 1,): 1 for those that are in, or more (`mark_as`)."""
    size: Longs
    """Shape (1,)."""


def marked(bound: int, members: Marked | None = None) -> Marked:
    """An empty set of numbers below `bound`; or one with the members of another, which may have had less room."""
    larger = Marked(np.zeros(bound, np.int32), np.zeros(bound // 4 + 1, np.uint8), np.zeros(1, np.int64))
    if members is not None:
        larger.members[: len(members.members)], larger.flags[: len(members.flags)], larger.size[:] = members
    return larger


@inlined
def flag_of(numbers: Marked, number: int) -> int:
    """The flag of a number, or 0."""
    return (numbers.flags[number >> 2] >> (2 * (number & 3))) & 3  # type: ignore[no-any-return]


@inlined
def _put_flag(numbers: Marked, number: int, flag: int) -> None:
    shift = 2 * (number & 3)
    numbers.flags[number >> 2] = (numbers.flags[number >> 2] & ~(3 << shift)) | (flag << shift)


@compiled
def mark(numbers: Marked, number: int) -> bool:
    """Put a number in; False if it is in already."""
    if flag_of(numbers, number) != 0:
        return False
    _put_flag(numbers, number, 1)
    numbers.members[numbers.size[0]] = number
    numbers.size[0] += 1
    return True


@compiled
def mark_as(numbers: Marked, number: int, flag: int) -> None:
    """Put a number in with a flag of its own, 2 or 3; or, if it is in already, give it that."""
    mark(numbers, number)
    _put_flag(numbers, number, flag)


@compiled
def change_flags(numbers: Marked, which: Ints, flag: int) -> None:
    """Give those of these numbers another flag that are in."""
    for number in which:
        if flag_of(numbers, number) != 0:
            _put_flag(numbers, number, flag)


@compiled
def mark_all(numbers: Marked, which: Ints) -> None:
    """Put all of these in."""
    for number in which:
        mark(numbers, number)


@compiled
def mark_all_as(numbers: Marked, which: Ints, flag: int) -> None:
    """Put all of these in with a flag of their own (`mark_as`)."""
    for number in which:
        mark_as(numbers, number, flag)


@viewing
def members_of(numbers: Marked) -> Ints:
    """The members in the order in which they came, shape (k,): a view, good until the next change."""
    return numbers.members[: numbers.size[0]]


@compiled
def unmark_all(numbers: Marked) -> None:
    """Empty the set, at the cost of its members."""
    unmark_last(numbers, 0)


@compiled
def unmark_last(numbers: Marked, begin: int) -> None:
    """Take out all that came after the first `begin`."""
    for number in numbers.members[begin : numbers.size[0]]:
        _put_flag(numbers, number, 0)
    numbers.size[0] = begin


def take_all(numbers: Marked) -> Ints:
    """Empty the set; return its members in the order in which they came."""
    return take_last(numbers, int(numbers.size[0]))


def take_last(numbers: Marked, most: int) -> Ints:
    """Take out up to `most` of those that came last, and return them."""
    count = int(numbers.size[0])
    begin = max(count - most, 0)
    taken = numbers.members[begin:count].copy()
    unmark_last(numbers, begin)
    return taken


@allocating
def among(numbers: Ints, some: Ints) -> Switches:
    """Which of a few numbers, each named once, are among some, shape (len(numbers),)."""
    order, found = np.argsort(numbers), np.zeros(len(numbers), np.bool_)
    ordered = numbers[order]
    for one in some:
        at = np.searchsorted(ordered, one)
        if at < len(ordered) and ordered[at] == one:
            found[order[at]] = True
    return found


@compiled
def put_largest(values: Floats, begin: int, end: int, rows: Ints | Longs) -> int:
    """Put into `rows` which of values[begin:end] are the largest by size, largest first, as many as fit; return how
    many. Zeros, and what is not finite, are left out."""
    count = 0
    for row in range(begin, end):
        size = abs(values[row])
        if size == 0.0 or not np.isfinite(size):
            continue
        at = count
        while at > 0 and abs(values[rows[at - 1]]) < size:
            at -= 1
        if at == len(rows):
            continue
        count = min(count + 1, len(rows))
        for below in range(count - 1, at, -1):
            rows[below] = rows[below - 1]
        rows[at] = row
    return count
