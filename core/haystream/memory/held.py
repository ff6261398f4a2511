"""Tuples of many arrays, as compiled loops take them at no cost.

numba looks at each array of a tuple whenever Python calls a loop with it: of a hundred arrays that takes longer
than most loops do. A tuple that is held was looked at once. A loop gets one address, and finds there where the
arrays are.
"""

from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba._dispatcher import compute_fingerprint
from numba.core.cgutils import int32_t, voidptr_t
from numba.core.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    register_model,
    unbox,
)
from numba.core.registry import cpu_target
from numba.core.typing.templates import AttributeTemplate

from haystream.memory.compiled import compiled

_T = TypeVar("_T", bound=tuple[Any, ...])


def held(value: _T) -> _T:
    """The same named tuple, whose members can be read as before, by compiled loops, too.

    Its arrays are there for as long as it is.
    """
    return cast(_T, _Held(value))


class _Held:
    __slots__ = ("_numba_type_", "_room", "_value", "address")

    def __init__(self, value: tuple[Any, ...]) -> None:
        fingerprint = compute_fingerprint(value)  # by which numba knows its type again
        if fingerprint not in _types:
            _types[fingerprint] = _HeldType(numba.typeof(value))
        self._value = value
        self._numba_type_ = _types[fingerprint]
        self._room = np.empty(self._numba_type_.words, np.int64)
        self.address = self._room.ctypes.data
        _write(value, self.address)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._value, name)


class _HeldType(types.Type):  # type: ignore[misc]  # numba has no types
    """What is held, of a tuple of type `of`."""

    def __init__(self, of: types.NamedTuple) -> None:
        super().__init__(name=f"Held({of})")
        self.of = of
        target = cpu_target.target_context
        self.words = -(-target.get_abi_sizeof(target.get_value_type(of)) // np.dtype(np.int64).itemsize)


_types: dict[bytes, _HeldType] = {}


@register_model(_HeldType)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    """An address."""

    def __init__(self, manager: Any, of: _HeldType) -> None:
        super().__init__(manager, of, voidptr_t)


@unbox(_HeldType)  # type: ignore[untyped-decorator]
def _address(_: _HeldType, value: Any, c: Any) -> NativeValue:
    number = c.pyapi.object_getattr_string(value, "address")
    address = c.pyapi.long_as_voidptr(number)
    c.pyapi.decref(number)
    return NativeValue(address)


@infer_getattr
class _Members(AttributeTemplate):  # type: ignore[misc]
    key = _HeldType

    def generic_resolve(self, held: _HeldType, name: str) -> types.Type | None:
        fields = held.of.fields
        return held.of.types[fields.index(name)] if name in fields else None


@lower_getattr_generic(_HeldType)  # type: ignore[untyped-decorator]
def _member(context: Any, builder: Any, held: _HeldType, address: Any, name: str) -> Any:
    tuple_at = builder.bitcast(address, context.get_value_type(held.of).as_pointer())
    place = int32_t(held.of.fields.index(name))
    member = builder.load(builder.gep(tuple_at, [int32_t(0), place], inbounds=True))
    # Else what a loop writes to an array might have been an address, for all that the compiler knows.
    member.set_metadata("invariant.load", builder.module.add_metadata([]))
    return member


@intrinsic
def _written(_: Any, value: types.Type, address: types.Type) -> Any:
    def write(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        what, where = arguments
        builder.store(what, builder.inttoptr(where, what.type.as_pointer()))
        return context.get_dummy_value()

    return types.void(value, address), write


@compiled
def _write(value: tuple[Any, ...], address: int) -> None:
    """Write where a tuple's arrays are."""
    _written(value, address)  # type: ignore[call-arg]  # the first argument is the compiler's
