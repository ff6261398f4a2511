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

LINE, PAGE = 64, mmap.PAGESIZE
"""Bytes: arrays begin at a line of the cache; those of a page or more have their pages for themselves."""

_sizes: dict[int, int] = {}
"""Bytes of what templates and copies have, by memfd."""

_mapped: set[int] = set()
"""The memory of copies that are there, by `id`."""

FAILED = ctypes.c_void_p(-1).value
"""What mmap(2) returns where it could not."""


class Template(Generic[_T]):
    """A tree of tuples as it was, with arrays at its leaves, to make copies of."""

    def __init__(self, tree: _T) -> None:
        arrays = list(_leaves(tree))
        self._tree = tree = cast(_T, _with_leaves(tree, lambda array: np.empty(0, array.dtype)))
        self._like = [(array.shape, array.dtype) for array in arrays]
        self._begin = _places(arrays)
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
        if flags == mmap.MAP_PRIVATE:
            _mapped.add(id(memory))
        unmap = finalize(memory, _unmap, id(memory), address, length, of)
        unmap.atexit = False  # another thread may still be at work there
        return [
            np.frombuffer(memory, dtype, count=prod(shape), offset=begin).reshape(shape)
            for (shape, dtype), begin in zip(self._like, self._begin, strict=False)
        ]


def give_back(array: Array) -> bool:
    """Have the array be as its template has it again, without memory of its own; False, and nothing is done, where
    it is no array of a `Template.copy`, or it shares a page with others, or the system refuses."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if id(base) not in _mapped or array.nbytes < PAGE or array.ctypes.data % PAGE:
        return False
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return bool(libc.madvise(array.ctypes.data, array.nbytes, mmap.MADV_DONTNEED) == 0)


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


def _unmap(number: int, address: int, length: int, _: _Memory) -> None:
    _mapped.discard(number)
    ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t(length))


def _close(number: int) -> None:
    _sizes.pop(number, None)
    os.close(number)


def _places(arrays: list[Array]) -> list[int]:
    """Where each of the arrays begins, in bytes, and then where all of them end."""
    places, end = [], 0
    for array in arrays:
        unit = PAGE if array.nbytes >= PAGE else LINE
        places.append(-(-end // unit) * unit)
        end = places[-1] + -(-array.nbytes // unit) * unit
    return [*places, end]


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
