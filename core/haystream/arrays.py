"""The arrays that kernels work on: names for their types, and columns that grow at one end at amortised cost."""

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Flags = NDArray[np.uint8]

_T = TypeVar("_T", bound=np.generic)


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
            grown = np.full(max(size, 2 * len(self.data)), self.fill, self.data.dtype)
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

    def view(self) -> NDArray[_T]:
        """The entries in use, without a copy."""
        return self.data[: self.size]
