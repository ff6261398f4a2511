"""How inner loops are compiled; `held` says how they get many arrays."""

from ast import Import, ImportFrom, parse, walk
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import NoReturn, ParamSpec, TypeVar, cast

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.registry import CPUDispatcher

_P = ParamSpec("_P")
_R = TypeVar("_R")

_CORE = __package__.partition(".")[0]
"""The package whose modules the machine code can be made of: all of it, not this folder alone."""
COMPILER_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""Of all that is compiled; nothing is called by address."""


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a loop over arrays to machine code, once: the result is cached on disk beside the source.

    Where nothing can be written, neither there nor in numba's other places, each process compiles for itself.

    `error_model="numpy"` (a division by zero gives inf, as numpy does) keeps branches out of inner loops;
    `nogil` lets a caller run long loops beside its event loop. Without numba's runtime (`_nrt`) nobody counts
    references: the caller holds all arrays. With it every call, also of one loop by another, counts those to each
    array of each tuple that it is given, which takes longer than what most loops do for an entry.
    So a function can neither make an array nor return one (`allocating`).
    """
    return _cached(function, _nrt=False)


def allocating(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """As `compiled`, for a function that makes an array, or returns one: for callers that are not compiled, or are
    such functions."""
    return _cached(function, _nrt=True)


_uncached: list[str] = []


def cached() -> bool:
    """Whether what is compiled here is kept for later processes."""
    return not _uncached


class _Inlined(CPUDispatcher):  # type: ignore[misc]
    """A function without a way in from Python, by which a call would end the process."""

    def __call__(self, *arguments: object) -> NoReturn:
        raise TypeError(f"{self.__name__} is for compiled callers only")


def inlined(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a few lines a part of the machine code of each loop that calls them. For compiled callers only."""
    options = COMPILER_OPTIONS | {"nopython": True, "_nrt": False, "forceinline": True, "no_cpython_wrapper": True}
    return cast(Callable[_P, _R], _Inlined(function, targetoptions=options))


def viewing(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """As `inlined`, for a function that returns a view: numba copies it into its callers as they are typed, which
    takes much longer to compile. Python may call it, too."""
    return cast(Callable[_P, _R], numba.njit(**COMPILER_OPTIONS, inline="always")(function))


def _cached(function: Callable[_P, _R], **options: bool) -> Callable[_P, _R]:
    dispatcher = numba.njit(**COMPILER_OPTIONS, **options)(function)
    try:
        dispatcher._cache = _PackageCache(function)
    except RuntimeError:  # numba found no place
        _uncached.append(function.__name__)
    return cast(Callable[_P, _R], dispatcher)


class _PackageCache(FunctionCache):  # type: ignore[misc]
    """numba's cache, valid for the sources that a function is made of and no others.

    numba itself looks at the one file that a function stands in. The machine code holds the loops of other files
    too, so after an update of one of those it would go on running the old ones, without a word. Where the disk is
    full, or lost what was written last, numba would not even compile.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self._source_stamp = _made_of(function.__module__)
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path, filename_base=self._impl.filename_base, source_stamp=self._source_stamp
        )

    def load_overload(self, sig: object, target_context: object) -> object:
        """Machine code; None where there is none, or none that can be read."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # noqa: BLE001 - of a file that is cut off pickle raises what it likes
            with suppress(OSError):
                self.flush()  # else what is compiled now could not be written beside it
            return None

    def save_overload(self, sig: object, data: object) -> None:
        """Write machine code, if that can be done."""
        with suppress(OSError):
            super().save_overload(sig, data)


@cache
def _made_of(module: str) -> str:
    """A digest of a module and of all that it imports here: of their content, so that a copied cache stays good."""
    digest, seen, waiting = sha256(), {module}, [module]
    while waiting:
        new = _imports(waiting.pop()) - seen
        seen |= new
        waiting.extend(new)
    for name in sorted(seen):
        digest.update(_source(name) or b"")
    return digest.hexdigest()


@cache
def _imports(module: str) -> frozenset[str]:
    """The modules of the core that a module of it names in its import statements."""
    named: set[str] = set()
    for statement in walk(parse(_source(module) or b"")):
        if isinstance(statement, ImportFrom) and statement.module:
            # What is imported from a package may be a module, too.
            named |= {statement.module, *(f"{statement.module}.{imported.name}" for imported in statement.names)}
        elif isinstance(statement, Import):
            named |= {imported.name for imported in statement.names}
    return frozenset(name for name in named if name.startswith(f"{_CORE}.") and _source(name) is not None)


@cache
def _source(module: str) -> bytes | None:
    """The text of a module, or of a package's __init__; None where there is no such module."""
    *packages, name = module.split(".")[1:]
    folder = files(_CORE).joinpath(*packages)
    for source in (folder / f"{name}.py", folder / name / "__init__.py"):
        if source.is_file():
            return source.read_bytes()
    return None
