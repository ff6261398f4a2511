"""Which sets of a collection are a query's own, which of these have an entry, and what was counted in a few.

A query's own sets are those that differ from what the prior says of them. They are many: whoever an analyst's
verdicts have moved a little has hundreds. So there is a bit for each set. An **entry** is where the query keeps a
set's score and what it adds to totals (`tournament`); those have one that may lead, and those of which anything was
counted that the query did not begin with. The others are its *rest* (`set_ranking`).
"""

import numpy as np

from haystream.collection.item_sets import ItemSets
from haystream.memory.arrays import Flags, Growing, Ints, Longs, Switches
from haystream.memory.compiled import allocating, compiled, inlined
from haystream.memory.places import NOWHERE, Places
from haystream.memory.prefetch import SOON, prefetch
from haystream.ranking.set_scores import SetCounts, counts_of, numbers_of
from haystream.ranking.tournament import LAST_HASH, Hashes, Ties

NOTHING: Ints = np.zeros(0, np.int32)

DUE, LATE, GONE = 1, 2, 3
"""Flags of an entry: its set is to be scored again at the next `rescore`, or when there is time; or it is
nobody's."""

LINE = 64
"""Bytes of a set of bits that are looked at together."""


@inlined
def has_bit(bits: Flags, number: int) -> bool:
    """Whether a number is in a set of bits."""
    return bool(bits[number >> 3] & (1 << (number & 7)))


@allocating
def with_bits(bits: Flags, numbers: Ints) -> Switches:
    """Whether numbers are in a set of bits, shape (len(numbers),)."""
    found = np.empty(len(numbers), np.bool_)
    for i in range(len(numbers)):
        found[i] = has_bit(bits, numbers[i])
    return found


@compiled
def put_bits(bits: Flags, numbers: Ints, new: Ints) -> int:
    """Put numbers into a set of bits; return how many were not in, which are the first ones in `new`."""
    count = 0
    for number in numbers:
        if not has_bit(bits, number):
            bits[number >> 3] |= 1 << (number & 7)
            new[count] = number
            count += 1
    return count


@compiled
def next_bits(bits: Flags, begin: int, end: int, found: Ints) -> tuple[int, int]:
    """Find numbers of a set of bits from `begin` to `end` − 1, ascending, as many as fit; how many they are, and
    where the next one may be."""
    count, number = 0, begin
    while number < end and count < len(found):
        if number & (8 * LINE - 1) == 0 and number + 8 * LINE <= end:
            any_in = np.uint8(0)
            for byte in range(LINE):
                any_in |= bits[(number >> 3) + byte]
            if any_in == 0:
                number += 8 * LINE
                continue
        if number & 7 == 0 and bits[number >> 3] == 0:
            number += 8
            continue
        if has_bit(bits, number):
            found[count] = number
            count += 1
        number += 1
    return count, min(number, end)


@allocating
def sets_on(edges: Ints, start: Longs, last_link: Ints, linked: Ints, previous_link: Ints) -> Ints:
    """The sets on `edges`, those on one edge first; one on several of them is there for each, shape (k,)."""
    alone, several = np.empty(16 + len(edges), np.int32), np.empty(16, np.int32)
    found = more = 0
    last = len(edges) - 1
    for i, edge in enumerate(edges):
        prefetch(last_link, edges[min(i + 3 * SOON, last)])
        for column in (linked, previous_link):
            prefetch(column, last_link[edges[min(i + 2 * SOON, last)]])
        soon = last_link[edges[min(i + SOON, last)]]
        prefetch(start, linked[soon] if soon >= 0 else 0)
        link = last_link[edge]
        while link >= 0:
            which = linked[link]
            if start[which + 1] - start[which] == 1:  # an edge has one such set
                alone[found] = which
                found += 1
            else:
                if more == len(several):
                    several = np.append(several, np.empty(more, np.int32))
                several[more] = which
                more += 1
            link = previous_link[link]
    return np.append(alone[:found], np.unique(several[:more]))


class OwnSets:
    """Sets by number; entries by place; rows of counts, which entries may have, in the order in which they came.

    Where the query keeps no rest, every own set has an entry, and all are own that the collection has: then the
    place of a set is its number, and nothing is looked up.
    """

    def __init__(self, sets: ItemSets, left_before: Longs, tie_before: Hashes) -> None:
        """`left_before`, `tie_before`: of the sets that the query begins with, their items and the least hash of
        these, shape (sets,)."""
        self._of = sets
        self.before = len(left_before)
        """So many sets it begins with: the first ones."""
        self._left_before = left_before
        self._tie_before = tie_before
        self.count = 0
        """How many are own."""
        self.known = 0
        """How many sets there were when scores were last made."""
        self.bits = Growing(np.uint8)
        """A bit for each set: the least one of a byte is the first one's."""
        self._places: Places | None = Places()
        self._live = 0
        """How many entries there are."""
        self._set = Growing(np.int32)
        """By place: the set, or −1 − its row."""
        self.flags = Growing(np.uint8)
        """By place."""
        self.near = Growing(np.uint8)
        """By place: 1 where pending screenings are in what the entry was made of."""
        self._number = Growing(np.int32)
        """By row, as those that follow: the set."""
        self.tie = Growing(np.uint64, fill=LAST_HASH)
        """The hash of its first item."""
        self.left = Growing(np.int32)
        self.items = Growing(np.int32)
        self.screened = Growing(np.int32)
        self.relevant = Growing(np.int32)
        self.pending = Growing(np.int32)

    # ---- which are own ----

    def own(self, of: Ints) -> Ints:
        """Have these as the query's own, and return those that were not, each once."""
        self._follow()
        new = np.empty(len(of), np.int32)
        new = new[: put_bits(self.bits.data, of, new)]
        self.count += len(new)
        return new

    def own_all(self) -> Ints:
        """Have all sets as the query's own, and return those that were not."""
        return self.own(np.arange(len(self._of), dtype=np.int32))

    def has(self, which: int) -> bool:
        """Whether a set is own."""
        return which >> 3 < self.bits.size and bool(self.bits.data.item(which >> 3) >> (which & 7) & 1)

    def among(self, of: Ints) -> Switches:
        """Which of these are own, shape (len(of),)."""
        self._follow()
        return with_bits(self.bits.data, of)

    def next(self, begin: int, most: int) -> tuple[Ints, int]:
        """Own sets from number `begin` on, ascending, at most so many; and the number where to go on."""
        self._follow()
        found = np.empty(max(min(most, self.count), 1), np.int32)
        count, end = next_bits(self.bits.data, begin, len(self._of), found)
        return found[:count], end

    def without_entry(self, known: Ints) -> Ints:
        """Own sets without an entry, each once. `known`: some of them, each named once."""
        if self.count - self._live == len(known):
            return known
        some, _ = self.next(0, self.count)
        rest: Ints = some[self.places(some) == NOWHERE]
        return rest

    def _follow(self) -> None:
        self.bits.resize((len(self._of) + 7) // 8)

    # ---- entries ----

    @property
    def keeps_rest(self) -> bool:
        """Whether own sets may be without an entry."""
        return self._places is not None

    def keep_no_rest(self) -> None:
        """Have every set that comes be own and have the entry of its number; none is there yet."""
        self._places = None

    def enter_all(self) -> None:
        """Keep no rest from now on: every set is own, and has the entry of its number, DUE."""
        self.own_all()
        self._places, self._live = None, 0
        self._set, self.flags, self.near = Growing(np.int32), Growing(np.uint8), Growing(np.uint8)
        self.enter(np.arange(len(self._of), dtype=np.int32))
        rows = self._number.view()
        self._set.data[rows] = -1 - np.arange(len(rows))

    @property
    def entries(self) -> int:
        """The places of entries are less than that."""
        return self._set.size

    @property
    def uncounted_entries(self) -> int:
        """How many entries are of sets of which nothing was counted."""
        return self._live - self._number.size

    def all_entries(self) -> Ints:
        """The places of all entries, ascending."""
        return np.flatnonzero(self.flags.view() != GONE).astype(np.int32)

    def uncounted(self) -> Ints:
        """The places of those of which nothing was counted, ascending."""
        return np.flatnonzero((self._set.view() >= 0) & (self.flags.view() != GONE)).astype(np.int32)

    def places(self, of: Ints) -> Ints:
        """The places of some sets, shape (len(of),); NOWHERE where one has no entry."""
        if self._places is not None:
            return self._places.look(of)
        return np.where(of < self._set.size, of, np.int32(NOWHERE))

    def enter(self, of: Ints) -> Ints:
        """Give entries, DUE, to those of these sets that have none; return the place of each, shape (len(of),).

        They are own already, and each is named once.
        """
        at = self.places(of)
        without = at == NOWHERE
        if without.any():
            if self._places is not None:
                at = self._places.of(of)
                known, new = at[without], of[without]
            else:
                known = new = np.arange(self._set.size, len(self._of), dtype=np.int32)
                at = of
            size = max(self._set.size, int(known.max()) + 1)
            for column in (self._set, self.flags, self.near):
                column.resize(size)
            self._live += len(new)
            self._set.data[known], self.near.data[known], self.flags.data[known] = new, 0, DUE
        return at

    def leave(self, at: Ints) -> None:
        """Take the entries at these places away, of which nothing is counted; their sets stay own."""
        assert self._places is not None
        self._places.give_back(self._set.data[at])
        self.flags.data[at] = GONE
        self._live -= len(at)

    def flagged(self, flag: int) -> Ints:
        """The places of entries with that flag, ascending."""
        return np.flatnonzero(self.flags.view() == flag).astype(np.int32)

    def numbers(self, at: Ints, rest: Ints = NOTHING) -> Ints:
        """The sets at some places, and behind them `rest`, which have no entry, shape (len(at) + len(rest),)."""
        return numbers_of(self._set.data, self._number.data, at, rest)

    def counts(self, at: Ints, rest: Ints = NOTHING) -> SetCounts:
        """The counts of the same."""
        columns = (self.left, self.items, self.screened, self.relevant, self.pending)
        counts = SetCounts(*(column.data for column in columns))
        return SetCounts(*counts_of(self._set.data, self._left_before, counts, at, rest))

    def counts_before(self, of: Ints) -> SetCounts:
        """The counts of sets of which nothing was counted that the query did not begin with."""
        left = self._left_before[of]
        none = np.zeros(len(of), np.int64)
        return SetCounts(left, left, none, none, none)

    def left_before(self, which: int) -> int:
        """The items of a set of which nothing was counted that the query did not begin with."""
        return self._left_before.item(which) if which < self.before else 0

    def counted(self, which: int) -> tuple[int, int, int, bool] | None:
        """The place of a set, its items that are left, all of them, and whether some were screened and all of these
        are relevant; None where it has no entry."""
        place = int(self.places(np.array([which], np.int32))[0])
        if place == NOWHERE:
            return None
        row = -1 - self._set.data.item(place)
        if row < 0:
            left = self.left_before(which)
            return place, left, left, False
        hits = self.relevant.data.item(row)
        return place, self.left.data.item(row), self.items.data.item(row), 0 < hits == self.screened.data.item(row)

    @property
    def ties(self) -> Ties:
        """Where the tie hashes of entries stand."""
        return Ties(self._set.data, self.tie.data, self._tie_before)

    # ---- rows ----

    def known_row(self, which: int) -> int:
        """The row of a set, whose entry is DUE then; NOWHERE where nothing is counted of it."""
        place = int(self.places(np.array([which], np.int32))[0])
        if place == NOWHERE or self._set.data[place] >= 0:
            return NOWHERE
        self.flags.data[place] = DUE
        return -1 - int(self._set.data[place])

    def rows(self, of: Ints) -> Ints:
        """The row of each of some sets, shape (len(of),): they are own and have an entry, which is DUE now. Each is
        named once.

        Whatever is new counts what the query began with.
        """
        at = self.enter(of)
        self.flags.data[at] = DUE
        new = at[self._set.data[at] >= 0]
        if len(new):
            known, count = self._number.size, self._number.size + len(new)
            counted = (self.left, self.items, self.screened, self.relevant, self.pending)
            for column in (self._number, self.tie, *counted):
                column.resize(count)
            sets = self._number.data[known:count] = self._set.data[new]
            began = np.flatnonzero(sets < self.before)
            self.tie.data[known + began] = self._tie_before[sets[began]]
            self.left.data[known + began] = self.items.data[known + began] = self._left_before[sets[began]]
            self._set.data[new] = -1 - np.arange(known, count)
        return -1 - self._set.data[at]
