"""The columns of an inverse that the local engine solves, while a test looks."""

from typing import Any
from unittest import mock

from haystream.engines.local.inverse.low_rank import Columns
from haystream.memory.arrays import Floats


class Solves:
    """The columns that a module has solved, and how many, each time."""

    def __init__(self, module: Any) -> None:
        self.counts: list[int] = []
        self.columns: list[Columns] = []
        solve = module.solve_columns

        def counted(system: Any, sources: Any, tolerances: Floats, *rest: Any) -> Any:
            self.counts.append(len(tolerances))
            self.columns.append(solve(system, sources, tolerances, *rest))
            return self.columns[-1]

        self.patched = mock.patch.object(module, "solve_columns", counted)
