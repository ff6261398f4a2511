"""The one place that names the compiler of the inner loops."""

from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import ParamSpec, TypeVar, cast

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

_P = ParamSpec("_P")
_R = TypeVar("_R")


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a loop over arrays to machine code, once: the result is cached on disk beside the source.

    `error_model="numpy"` (a division by zero gives inf, as numpy does) keeps branches out of inner loops;
    `nogil` lets a caller run long loops beside its event loop.
    """
    dispatcher = numba.njit(nogil=True, error_model="numpy")(function)
    dispatcher._cache = _PackageCache(function)
    return cast(Callable[_P, _R], dispatcher)


class _PackageCache(FunctionCache):  # type: ignore[misc]
    """numba's cache, valid for this package's sources and no others.

    numba itself looks at the one file that a function stands in. The machine code holds the loops of other files
    too, so after an update of one of those it would go on running the old ones, without a word.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self._source_stamp = _sources()
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path, filename_base=self._impl.filename_base, source_stamp=self._source_stamp
        )


@cache
def _sources() -> str:
    """A digest of the package's sources: of their content, so that a copied cache stays good."""
    digest = sha256()
    for source in sorted(_modules(files(__package__)), key=lambda module: module.name):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _modules(folder: Traversable) -> Iterator[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _modules(entry)
        elif entry.name.endswith(".py"):
            yield entry
