"""Many copies of large arrays, each of which takes memory only where it is written to.

A template holds the arrays in memory that has no address of its own (a memfd). A copy maps that memory privately,
so that the system makes a page of it the copy's own when the copy first writes there. Where there is no memfd (it
is Linux's, and a sandbox may forbid it) a copy is a copy. All this is memory: nothing of it outlives the process.
"""

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from functools import cache
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

_mapped: dict[int, int] = {}
"""Of the memory of copies that are there, by `id`: the memfd."""

PAGE_MAP, ENTRY = "/proc/self/pagemap", 8
"""Where Linux tells of each page of this process, and in how many bytes."""
PRESENT, SWAPPED, OF_FILE = np.uint64(1 << 63), np.uint64(1 << 62), np.uint64(1 << 61)
"""Bits of these: a page that is in memory, or was; and one that is a file's or shared, as a private one is until it
is written to."""

MAP_FAILED = ctypes.c_void_p(-1).value
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
        if address is None or address == MAP_FAILED:
            raise MemoryError(f"mmap of {length:,} bytes: {os.strerror(ctypes.get_errno())}")
        memory: Any = (ctypes.c_byte * length).from_address(address)
        if flags == mmap.MAP_PRIVATE:
            _mapped[id(memory)] = of.number
        unmap = finalize(memory, _unmap, id(memory), address, length, of)
        unmap.atexit = False  # another thread may still be at work there
        return [
            np.frombuffer(memory, dtype, count=prod(shape), offset=begin).reshape(shape)
            for (shape, dtype), begin in zip(self._like, self._begin, strict=False)
        ]


def give_back(array: Array) -> bool:
    """Have the array be as its template has it again, without memory of its own; False, and nothing is done, where
    it is no array of a `Template.copy`, or it shares a page with others, or the system refuses."""
    if id(_memory_of(array)) not in _mapped or array.nbytes < PAGE or array.ctypes.data % PAGE:
        return False
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return bool(libc.madvise(array.ctypes.data, array.nbytes, mmap.MADV_DONTNEED) == 0)


def bring_pages(here: Array, there: Array) -> bool:
    """Have all arrays of the copy that `there` is one of be as those of the copy that `here` is one of, at the cost
    of the pages that differ; False, and nothing is done, where these are no two `Template.copy` of one template.
    """
    source, target = _memory_of(here), _memory_of(there)
    if id(source) not in _mapped or _mapped[id(source)] != _mapped.get(id(target)):
        return False
    old, new = (np.frombuffer(memory, np.uint8) for memory in (source, target))
    whole = len(old) - len(old) % PAGE
    old_pages, new_pages = (some[:whole].view(np.uint64).reshape(-1, PAGE // 8) for some in (old, new))
    own = _own_pages(source) if _tells_own_pages() else None
    own = (old_pages != new_pages).any(axis=1) if own is None else own[: len(old_pages)]
    which = np.flatnonzero(own)
    new_pages[which] = old_pages[which]
    new[whole:] = old[whole:]
    return True


def zeros_as_needed(*shape: int) -> NDArray[np.float64]:
    """Zeros, which take memory only as far as they are written to, by the page."""
    nbytes = max(8 * prod(shape), 1)
    try:
        memory = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"mmap of {nbytes:,} bytes: {error.strerror}") from None
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


def _memory_of(array: Array) -> Any:
    """What an array is a view of."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base


def _own_pages(memory: Any) -> NDArray[np.bool_] | None:
    """Which pages of a copy have been written to, as Linux tells; None where it does not."""
    first, size = ctypes.addressof(memory) // PAGE, ENTRY * -(-ctypes.sizeof(memory) // PAGE)
    try:
        with open(PAGE_MAP, "rb") as table:
            table.seek(ENTRY * first)
            told = table.read(size)
    except OSError:
        return None
    if len(told) != size:
        return None
    entries = np.frombuffer(told, np.uint64)
    in_memory, of_file = entries & (PRESENT | SWAPPED) != 0, entries & OF_FILE != 0
    return np.asarray(in_memory & ~of_file)


@cache
def _tells_own_pages() -> bool:
    """Whether what the system tells of pages is so: it may not be Linux, or a sandbox keeps it to itself."""
    (array,) = Template((np.zeros(3 * PAGE, np.uint8),)).copy()
    array[PAGE] = array[0] + 1  # the second is written to, the first is only read, and the third not even that
    own = _own_pages(_memory_of(array))
    return own is not None and own.tolist() == [False, True, False]


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
    _mapped.pop(number, None)
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
