"""Which members each of many groups has, at four bytes each: most groups are small, and few are ever asked for."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from haystream.memory.arrays import Growing, Ints
from haystream.memory.compiled import compiled


class Chains:
    """Members and groups are numbered from 0, and each member is in one group: member i is in group of[i].

    The members of group g are last[g], previous[last[g]], … until −1, so those that came last are first.
    """

    def __init__(self) -> None:
        self.of = Growing(np.int32)
        self.last = Growing(np.int32, fill=-1)
        self.previous = Growing(np.int32)

    def extend(self, groups: ArrayLike) -> None:
        """Add members, given the group of each, shape (k,); k at least 1."""
        known = self.of.size
        self.of.extend(groups)
        self.previous.resize(self.of.size)
        self.last.resize(int(self.of.data[known : self.of.size].max()) + 1)
        _link(self.of.data, self.last.data, self.previous.data, known, self.of.size)

    def members(self, group: int) -> Iterator[int]:
        """The members of a group, the last one first."""
        member = self.last.data.item(group)
        while member >= 0:
            yield member
            member = self.previous.data.item(member)


@compiled
def _link(of: Ints, last: Ints, previous: Ints, begin: int, end: int) -> None:
    for member in range(begin, end):
        previous[member] = last[of[member]]
        last[of[member]] = member
