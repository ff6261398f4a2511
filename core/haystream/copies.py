"""Many copies of large arrays, each of which takes memory only where it is written to.

A template holds the arrays in memory that has no address of its own (a memfd). A copy maps that memory privately,
so that the system makes a page of it the copy's own when the copy first writes there. Where there is no memfd (it
is Linux's, and a sandbox may forbid it) a copy is a copy. All this is memory: nothing of it outlives the process.
"""

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, Generic, TypeVar, cast
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_T = TypeVar("_T")

LINE = 64
"""Bytes: arrays begin at a line of the cache."""

_sizes: dict[int, int] = {}
"""Bytes of what templates and copies have, by memfd."""

FAILED = ctypes.c_void_p(-1).value
"""What mmap(2) returns where it could not."""


class Template(Generic[_T]):
    """A tree of tuples as it was, with arrays at its leaves, to make copies of."""

    def __init__(self, tree: _T) -> None:
        arrays = list(_leaves(tree))
        self._tree = tree = cast(_T, _with_leaves(tree, lambda array: np.empty(0, array.dtype)))
        self._like = [(array.shape, array.dtype) for array in arrays]
        sizes = [-(-array.nbytes // LINE) * LINE for array in arrays]
        self._begin: list[int] = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).tolist()
        self._arrays: list[Array] = []
        """The arrays themselves, where there is no memfd."""
        self._memory = _memory_without_address(self._begin[-1])
        if self._memory is None:
            self._arrays = [array.copy() for array in arrays]
            return
        for here, array in zip(self._views(self._memory, mmap.MAP_SHARED), arrays, strict=True):
            here[...] = array

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self._begin[-1]

    def copy(self) -> _T:
        """The tree with arrays of its own, which may be written to."""
        if self._memory is None:
            arrays = iter([array.copy() for array in self._arrays])
        else:
            arrays = iter(self._views(self._memory, mmap.MAP_PRIVATE))
        return cast(_T, _with_leaves(self._tree, lambda _: next(arrays)))

    def _views(self, of: "_Memory", flags: int) -> list[Array]:
        # Python's own `mmap` keeps a file descriptor for every mapping: there may be thousands.
        length, libc = self._begin[-1], ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
        libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        address = libc.mmap(None, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, of.number, 0)
        if address is None or address == FAILED:
            raise MemoryError(f"mmap of {length:,} bytes: {os.strerror(ctypes.get_errno())}")
        memory: Any = (ctypes.c_byte * length).from_address(address)
        unmap = finalize(memory, _unmap, address, length, of)
        unmap.atexit = False  # another thread may still be at work there
        return [
            np.frombuffer(memory, dtype, count=prod(shape), offset=begin).reshape(shape)
            for (shape, dtype), begin in zip(self._like, self._begin, strict=False)
        ]


def zeros_as_needed(*shape: int) -> NDArray[np.float64]:
    """Zeros, which take memory only as far as they are written to, by the page."""
    memory = mmap.mmap(-1, max(8 * prod(shape), 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.float64, count=prod(shape)).reshape(shape)


class _Memory:
    """A memfd, for as long as a template or a copy of it has the memory."""

    def __init__(self, number: int, nbytes: int) -> None:
        self.number = number
        os.ftruncate(number, nbytes)
        _sizes[number] = nbytes
        finalize(self, _close, number)


def _memory_without_address(nbytes: int) -> _Memory | None:
    """So many bytes; None where that is 0, the system has no memfd, or it does not let this process have one."""
    try:
        return _Memory(os.memfd_create("haystream"), nbytes) if nbytes and hasattr(os, "memfd_create") else None
    except OSError:
        return None


def held_bytes() -> int:
    """How much memory there is that processes' statistics count for each copy, or not at all."""
    return sum(list(_sizes.values()))


def _unmap(address: int, length: int, _: _Memory) -> None:
    ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t(length))


def _close(number: int) -> None:
    _sizes.pop(number, None)
    os.close(number)


def _leaves(tree: Any) -> Iterator[Array]:
    """The arrays of a tree, in order; what is no array and no tuple has none."""
    if isinstance(tree, np.ndarray):
        yield tree
    elif isinstance(tree, tuple):
        for member in tree:
            yield from _leaves(member)


def _with_leaves(tree: Any, change: Callable[[Array], Array]) -> Any:
    """The tree with its arrays changed, and everything else as it is."""
    if isinstance(tree, np.ndarray):
        return change(tree)
    if not isinstance(tree, tuple):
        return tree
    members = [_with_leaves(member, change) for member in tree]
    return tree._make(members) if hasattr(tree, "_make") else tuple(members)
