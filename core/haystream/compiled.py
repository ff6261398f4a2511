"""The one place that names the compiler of the inner loops."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

_P = ParamSpec("_P")
_R = TypeVar("_R")


def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a loop over arrays to machine code, once: the result is cached on disk beside the source.

    `error_model="numpy"` (a division by zero gives inf, as numpy does) keeps branches out of inner loops;
    `nogil` lets a caller run long loops beside its event loop.
    """
    return cast(Callable[_P, _R], numba.njit(cache=True, nogil=True, error_model="numpy")(function))
