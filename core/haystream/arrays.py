"""The arrays that kernels work on: names for their types, and columns that grow at one end at amortised cost."""

from copy import copy
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haystream.compiled import compiled, inlined

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Flags = NDArray[np.uint8]
Switches = NDArray[np.bool_]

_T = TypeVar("_T", bound=np.generic)

SPARE = 8
"""Arrays that are too short get an eighth more than is needed: spare room is memory of every query."""


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
            grown = np.zeros(16 + size + size // SPARE, self.data.dtype)
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


class Marked(NamedTuple):
    """A set of numbers below some bound, in the order in which they came."""

    members: Ints
    """Shape (bound,), of which the first `size[0]` are in use."""
    flags: Flags
    """Shape (bound,): 1 for those that are in, or more where somebody has put more there."""
    size: Longs
    """Shape (1,)."""


def marked(bound: int, members: Marked | None = None) -> Marked:
    """An empty set of numbers below `bound`; or one with the members of another, which may have had less room."""
    larger = Marked(np.zeros(bound, np.int32), np.zeros(bound, np.uint8), np.zeros(1, np.int64))
    if members is not None:
        known = len(members.flags)
        larger.members[:known], larger.flags[:known], larger.size[:] = members
    return larger


@compiled
def mark(numbers: Marked, number: int) -> bool:
    """Put a number in; False if it is in already."""
    if numbers.flags[number] != 0:
        return False
    numbers.flags[number] = 1
    numbers.members[numbers.size[0]] = number
    numbers.size[0] += 1
    return True


@compiled
def mark_as(numbers: Marked, number: int, flag: int) -> None:
    """Put a number in with a flag of its own, more than 1; or, if it is in already, give it that."""
    mark(numbers, number)
    numbers.flags[number] = flag


@compiled
def mark_all(numbers: Marked, which: Ints) -> None:
    """Put all of these in."""
    for number in which:
        mark(numbers, number)


@inlined
def members_of(numbers: Marked) -> Ints:
    """The members in the order in which they came, shape (k,): a view, good until the next change."""
    return numbers.members[: numbers.size[0]]


@compiled
def unmark_all(numbers: Marked) -> None:
    """Empty the set, at the cost of its members."""
    for number in members_of(numbers):
        numbers.flags[number] = 0
    numbers.size[0] = 0


def take_all(numbers: Marked) -> Ints:
    """Empty the set; return its members in the order in which they came."""
    return take_last(numbers, int(numbers.size[0]))


def take_last(numbers: Marked, most: int) -> Ints:
    """Take out up to `most` of those that came last, and return them."""
    count = int(numbers.size[0])
    begin = max(count - most, 0)
    taken = numbers.members[begin:count].copy()
    numbers.flags[taken] = 0
    numbers.size[0] = begin
    return taken
