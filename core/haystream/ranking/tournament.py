"""A tournament over item sets: who has the best score, and how many relevant items are left, in O(log sets).

An entry holds a set's score and the terms of some sums; the tie hash of its first unscreened item is looked up
(`Ties`), which is asked for only where scores are equal. Eight entries play each other, then eight of their
winners, and so on: every node says who is the best below it and how good. Most entries that get another score were
not the best of their eight, and are not now: nothing is played again for these. The sums follow what each entry
adds to them. So a query that scores many sets pays for their entries, and little more. An entry without unscreened
items scores −inf.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haystream.memory.arrays import SPARE, Floats, Ints, Longs, Switches
from haystream.memory.compiled import allocating, compiled, inlined
from haystream.memory.prefetch import SOON, prefetch

Hashes = NDArray[np.uint64]

TERMS = 3
"""How many sums are kept."""

BLOCK = 8
"""So many play each other at once: a cache line of scores."""

LAST_HASH = int(np.iinfo(np.uint64).max)
"""The tie hash of a set that has nothing left."""


class Places(NamedTuple):
    """By place: first the entries, then the nodes above them, then those above these, and the root last. What only
    nodes have stands at p − start[1] of place p.

    On every level but the root's are whole blocks: places that are not in use score −inf.
    """

    score: Floats
    """Of an entry, or the best below a node."""
    terms: Floats
    """By entry, shape (entries, TERMS)."""
    sums: Floats
    """Of the terms of all entries, and what rounding has left out of these, shape (2, TERMS): both together are as
    exact as if the terms had been added up just now, however often they have changed."""
    best: Ints
    """By node: the best entry below."""
    start: Longs
    """Where each level begins; level 0 is that of the entries."""


class Ties(NamedTuple):
    """Where the tie hash of each entry stands that has a score above −inf."""

    of: Ints
    """By entry: the number of its set, or −1 − its row in `own`."""
    own: Hashes
    before: Hashes
    """By set."""


@inlined
def tie_at(ties: Ties, entry: int) -> int:
    """The tie hash of an entry."""
    of = ties.of[entry]
    return ties.own[-1 - of] if of < 0 else ties.before[of]  # type: ignore[no-any-return]


@allocating
def ties_of(entries: Ints, ties: Ties) -> Hashes:
    """The tie hashes of some entries, shape (len(entries),)."""
    found = np.empty(len(entries), np.uint64)
    for i in range(len(entries)):
        found[i] = tie_at(ties, entries[i])
    return found


@compiled
def entry_at(places: Places, place: int) -> int:
    """The entry at a place, or the best below it."""
    nodes = places.start[1]
    return int(place if place < nodes else places.best[place - nodes])


@compiled
def comes_first(places: Places, ties: Ties, a: int, b: int) -> bool:
    """Whether what is at a comes before what is at b: by the higher score, the lower tie hash, the lower entry.

    Both score more than −inf.
    """
    if places.score[a] != places.score[b]:
        return bool(places.score[a] > places.score[b])
    one, other = entry_at(places, a), entry_at(places, b)
    if tie_at(ties, one) != tie_at(ties, other):
        return bool(tie_at(ties, one) < tie_at(ties, other))
    return one <= other


@compiled
def replay(places: Places, ties: Ties, level: int, which: int) -> None:
    """Bring a node, the one that is `which` of its level, up to date with the block below it."""
    score, nodes = places.score, places.start[1]
    first, node = places.start[level - 1] + which * BLOCK, places.start[level] + which
    best, highest = first, score[first]
    for place in range(first + 1, first + BLOCK):
        tied = score[place] == highest > -np.inf
        if score[place] > highest or (tied and not comes_first(places, ties, best, place)):
            best, highest = place, score[place]
    score[node], places.best[node - nodes] = highest, entry_at(places, best)


@inlined
def add_to_sum(sums: Floats, term: int, value: float) -> None:
    """Add to one of the sums, and what rounding leaves out of it to the rest (D. E. Knuth's exact addition of two
    floating-point numbers)."""
    before = sums[0, term]
    after = before + value
    taken = after - before
    sums[1, term] += (before - (after - taken)) + (value - taken)
    sums[0, term] = after


@compiled
def enter(places: Places, ties: Ties, which: Ints, score: Floats, terms: Floats, above: Ints) -> None:
    """Give the entries in `which` their scores and terms, and bring all above up to date, level by level.

    Each node once if `which` ascends, and none where neither the best below it has changed nor anything that has is
    as good. `above` is room for as many.
    """
    best, start, last = places.best, places.start, len(which) - 1
    for i in range(len(which)):
        entry, soon = which[i], which[min(i + SOON, last)]
        prefetch(places.score, soon)
        prefetch(places.terms, soon)
        prefetch(best, soon // BLOCK)
        places.score[entry] = score[i]
        for term in range(TERMS):
            add_to_sum(places.sums, term, terms[i, term])
            add_to_sum(places.sums, term, -places.terms[entry, term])
            places.terms[entry, term] = terms[i, term]
        above[i] = entry
    count, below_each = len(which), 1
    for level in range(1, len(start)):
        nodes = 0
        for i in range(count):
            changed, node = above[i], above[i] // BLOCK
            if nodes > 0 and above[nodes - 1] == node:
                continue
            place = start[level] + node
            was_best = best[place - start[1]] // below_each == changed
            if was_best or places.score[start[level - 1] + changed] >= places.score[place]:
                replay(places, ties, level, node)
                above[nodes] = node
                nodes += 1
        count, below_each = nodes, below_each * BLOCK


@compiled
def move_on(places: Places, moved: Floats, leaves: Switches, left: Floats) -> None:
    """Add `moved` times the last of an entry's terms to all of its terms, for each entry; but have those that leave
    add nothing any more, and put the sums of what they added into `left`."""
    terms, last = places.terms, len(leaves)
    places.sums[:] = 0.0
    left[:] = 0.0
    for i in range(len(terms)):
        slope, stays = terms[i, TERMS - 1], i >= last or not leaves[i]
        for term in range(TERMS):
            if stays:
                terms[i, term] += moved[term] * slope
                add_to_sum(places.sums, term, terms[i, term])
            else:
                left[term] += terms[i, term]
                terms[i, term] = 0.0


@compiled
def foresee(score: Floats, terms: Floats, shift: float, at: Ints, foreseen: Floats) -> int:
    """How many entries score more than −inf: into `at` go these, and into `foreseen` what they will score, about,
    once the common mean has moved by so much, as if scores were in proportion to means."""
    count = 0
    for i in range(len(at)):
        if score[i] > -np.inf:
            mean, slope = terms[i, 0], terms[i, TERMS - 1]
            moved = shift * slope / mean if mean > 0.0 else 0.0
            at[count], foreseen[count] = i, score[i] + abs(score[i]) * max(moved, -1.0)
            count += 1
    return count


@compiled
def push(places: Places, ties: Ties, heap: Longs, count: int, place: int) -> int:
    """Put a place into a heap of `count`; return how many it has now."""
    at = count
    heap[at] = place
    while at > 0:
        parent = (at - 1) // 2
        if comes_first(places, ties, heap[parent], heap[at]):
            break
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent
    return count + 1


@compiled
def pop(places: Places, ties: Ties, heap: Longs, count: int) -> int:
    """Take what comes first out of a heap of `count`, and return it."""
    first = int(heap[0])
    count -= 1
    heap[0] = heap[count]
    at = 0
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and comes_first(places, ties, heap[child + 1], heap[child]):
            child += 1
        if comes_first(places, ties, heap[at], heap[child]):
            break
        heap[at], heap[child] = heap[child], heap[at]
        at = child
    return first


@compiled
def lead(places: Places, ties: Ties, heap: Longs, which: Ints) -> int:
    """The entries from the best on into `which`, as many as fit; how many there are. `heap` is room."""
    start, count, found = places.start, 0, 0
    root = start[len(start) - 1]
    if places.score[root] > -np.inf:
        count = push(places, ties, heap, count, root)
    while count > 0 and found < len(which):
        place = pop(places, ties, heap, count)
        count -= 1
        if place < start[1]:
            which[found] = place
            found += 1
            continue
        level = 1
        while level + 1 < len(start) and place >= start[level + 1]:
            level += 1
        first = start[level - 1] + (place - start[level]) * BLOCK
        for below in range(first, first + BLOCK):
            if places.score[below] > -np.inf:
                count = push(places, ties, heap, count, below)
    return found


class Tournament:
    """See the module. `size` entries; new ones score −inf until `set` is called."""

    def __init__(self) -> None:
        self.size = 0
        self.places: Places = _places(0)

    def resize(self, size: int, ties: Ties) -> None:
        """Make room for `size` entries; never shrinks."""
        old, known = self.places, self.size
        self.size = max(size, known)
        if size > old.start[1]:
            self.places = _places(size + size // SPARE)
            self.set(np.arange(known, dtype=np.int32), old.score[:known], old.terms[:known], ties)

    def set(self, which: Ints, score: Floats, terms: Floats, ties: Ties) -> None:
        """Give entries new scores and terms, shape (k, TERMS); `which`, shape (k,), had better ascend.

        Call it for whoever's tie hash has changed, before you ask who leads.
        """
        enter(self.places, ties, which, score, terms, np.empty_like(which))

    def retire(self, moved: Floats, leaves: Switches) -> Floats:
        """Take all entries out, as if nothing were left of them, and have their terms move; those that leave, by
        entry, add nothing any more. Returns the sums of what these added, shape (TERMS,).

        `moved`: by how much in units of the last of them, shape (TERMS,).
        """
        left = np.empty(TERMS)
        self.places.score[:] = -np.inf
        move_on(self.places, moved, leaves, left)
        return left

    def foreseen(self, shift: float) -> tuple[Ints, Floats]:
        """The entries with a score above −inf, ascending, and about what these will score once the common mean has
        moved by so much (`set_scores.score_sets`' terms say how means move), shape (k,) each."""
        at, foreseen = np.empty(self.size, np.int32), np.empty(self.size)
        count = foresee(self.places.score, self.places.terms, shift, at, foreseen)
        return at[:count], foreseen[:count]

    def totals(self) -> Floats:
        """The sums of the terms over all entries, shape (TERMS,)."""
        return np.asarray(self.places.sums.sum(axis=0))

    def leaders(self, most: int, ties: Ties) -> Ints:
        """The best entries with a score above −inf, best first, at most so many."""
        which = np.empty(min(most, self.size), np.int32)
        places = self.places
        room = min(1 + len(which) * BLOCK * len(places.start), len(places.score))
        return which[: lead(places, ties, np.empty(room, np.int64), which)]


def _places(room: int) -> Places:
    """For so many entries at least, none of which has a score."""
    levels, count = [], max(room, BLOCK)
    while count > 1:
        count = -(-count // BLOCK)
        levels.append(count * BLOCK)
    start, places = np.cumsum([0, *levels]), sum(levels) + 1
    score, best = np.full(places, -np.inf), np.zeros(places - levels[0], np.int32)
    return Places(score, np.zeros((levels[0], TERMS)), np.zeros((2, TERMS)), best, start)
