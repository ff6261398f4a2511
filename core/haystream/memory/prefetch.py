"""What a loop will read soon, fetched before it is asked for.

A walk over a graph reads what lies anywhere in memory, and where that is not in the processor's caches it waits for
longer than everything else takes. Whoever knows some steps ahead what will be read can have it on its way by then.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_item_pointer, int32_t, voidptr_t
from numba.core.extending import intrinsic
from numba.np.arrayobj import make_array
from numpy.typing import NDArray

from haystream.memory.arrays import Flags, Floats, Ints, Longs

SOON = 8
"""Of what lies anywhere a loop has fetched what it will read so many steps later. Where it has to read one thing to
know where another lies, that is one such distance more."""

READ, KEEP_CLOSE, DATA = 0, 3, 1
"""What the processor is told: that it is to be read, where to keep it, and that it is no code."""


@intrinsic
def _prefetch(_: Any, array: types.Array, row: types.Integer) -> Any:
    def fetch(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        of, number = signature.args
        places = [context.cast(builder, arguments[1], number, types.intp)]
        places += [context.get_constant(types.intp, 0)] * (of.ndim - 1)
        at = get_item_pointer(context, builder, of, make_array(of)(context, builder, arguments[0]), places)
        told = ir.FunctionType(ir.VoidType(), [voidptr_t, int32_t, int32_t, int32_t])
        instruction = builder.module.declare_intrinsic("llvm.prefetch", (voidptr_t,), told)
        builder.call(instruction, [builder.bitcast(at, voidptr_t), *map(int32_t, (READ, KEEP_CLOSE, DATA))])
        return context.get_dummy_value()

    return types.void(array, row), fetch


prefetch = cast(Callable[[Floats | Ints | Longs | Flags | NDArray[np.uint32], int], None], _prefetch)
"""Have an entry of a vector, or the begin of a row of a matrix, fetched; nothing happens where there is none. For
compiled callers only."""
