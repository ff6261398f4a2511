"""The columns of an inverse that the local engine solves, while a test looks."""

from typing import Any
from unittest import mock

from haystream.arrays import Floats
from haystream.engines.local.low_rank import Columns


class Solves:
    """The columns that a module has solved, and how many, each time."""

    def __init__(self, module: Any) -> None:
        self.counts: list[int] = []
        self.columns: list[Columns] = []
        solve = module.solve_columns

        def counted(system: Any, sources: Any, tolerances: Floats, *rest: Any) -> Any:
            self.counts.append(len(tolerances))
            solved, left = solve(system, sources, tolerances, *rest)
            self.columns.append(solved)
            return solved, left

        self.patched = mock.patch.object(module, "solve_columns", counted)
