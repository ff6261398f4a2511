"""Functions that are for compiled callers only, to be called by a test."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_F = TypeVar("_F", bound=Callable[..., Any])


def callable_here(function: _F) -> _F:
    """The same function for Python: a compiled one that calls it."""

    @numba.njit
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return cast(_F, call)
