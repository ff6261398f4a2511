"""What a collection makes of its log, however much of it comes at once: beside a model as plain as can be."""

from dataclasses import replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from haystream.collection.collection import Collection
from haystream.collection.graph import stable_hashes
from haystream.events import Item, ItemFact, Withdrawal
from haystream.scope import scope

PEOPLE = [f"p{number}" for number in range(9)]
LEFT_OUT = frozenset({"i3", "i5"})
SCOPES = (None, scope(since=2), scope(anybody=PEOPLE[:4], nobody=PEOPLE[7:]))


def item(name: str, people: frozenset[str], *, sent: bool) -> Item:
    first, *others = sorted(people)
    return Item(name, "c", first, tuple(others)) if sent else Item(name, "c", None, (first, *others))


ITEMS = [
    item(f"i{number}", frozenset(PEOPLE[number % k :: k]), sent=number % 2 > 0)
    for k in (2, 3, 4)
    for number in range(20 * k - 40, 20 * k - 20)
]
NEW_PAIRS = [Item(f"j{u}-{v}", "c", f"q{u}", (f"q{v}",)) for u in range(12) for v in range(u + 1, 12)]
"""More contacts than slabs begin with."""


@st.composite
def entry(draw: st.DrawFn) -> ItemFact:
    one = draw(st.sampled_from(ITEMS + NEW_PAIRS[:5]))
    if draw(st.integers(0, 5)) == 0:
        return Withdrawal(one.item_id, "c")
    sent_at, uri = draw(st.sampled_from((None, 1, 2, 3))), draw(st.sampled_from((None, None, "mail:1", "mail:22")))
    return replace(one, sent_at=sent_at, uri=uri, withdrawn=draw(st.integers(0, 7)) == 0)


LOGS = st.tuples(st.lists(entry(), max_size=60), st.permutations(NEW_PAIRS), st.integers(0, len(NEW_PAIRS))).map(
    lambda log: [*log[0][:30], *log[1][: log[2]], *log[0][30:]]
)


def state_of(collection: Collection) -> dict[str, Any]:
    """All that anybody can read from it."""
    graph, sets, items = collection.graph, collection.sets, range(len(collection))
    which = range(len(sets))
    details = {number: collection.details.of(number) for number in items}
    cursors = collection.entries, collection.changed, collection.left_at, collection.outgrown
    return {
        "items": collection.item_ids,
        "place": [collection.index(item_id) for item_id in collection.item_ids],
        "cursors": cursors,
        "withdrawn": (collection.withdrawn.view().tolist(), collection.withdrawals),
        "details": details,
        "participants": graph.participants,
        "pairs": graph.pairs.tolist(),
        "keys": graph.edge_key.tolist(),
        "edges of": [graph.edges_of(u).tolist() for u in range(len(graph))],
        "contacts": [graph.contact[b : b + n].tolist() for b, n in zip(graph.start, graph.degree, strict=True)],
        "set": [collection.set_of(number) for number in items],
        "hash": [collection.hash_of(number) for number in items],
        "edges": list(map(sets.edges, which)),
        "on edge": [list(sets.on_edge(edge)) for edge in range(graph.edges)],
        "in order": list(map(collection.members.ordered, which)),
        "left": list(map(collection.items_left, which)),
    }


def expected(items: list[Item], withdrawn: set[int]) -> dict[str, Any]:
    """The part of that which follows from the items that are in, in the order in which they came."""
    index: dict[str, int] = {}
    edge_of: dict[tuple[str, str], int] = {}
    set_of: dict[tuple[int, ...], int] = {}
    of = []
    for each in items:
        for u, v in each.pairs():
            index.setdefault(u, len(index))
            index.setdefault(v, len(index))
            edge_of.setdefault((u, v), len(edge_of))
        of.append(set_of.setdefault(tuple(sorted(edge_of[pair] for pair in each.pairs())), len(set_of)))
    hashes = [plain_hash(each.item_id) for each in items]
    members: list[list[int]] = [[] for _ in set_of]
    for number, which in enumerate(of):
        members[which].append(number)
    edges_of = [[edge_of[pair] for pair in edge_of if name in pair] for name in index]
    contacts = [[index[v if u == name else u] for u, v in edge_of if name in (u, v)] for name in index]
    return {
        "items": [each.item_id for each in items],
        "place": list(range(len(items))),
        "participants": list(index),
        "pairs": [[index[u], index[v]] for u, v in edge_of],
        "keys": [plain_hash("\0".join(pair)) for pair in edge_of],
        "edges of": edges_of,
        "contacts": contacts,
        "set": of,
        "hash": hashes,
        "edges": list(set_of),
        "on edge": [[which for on, which in set_of.items() if e in on][::-1] for e in range(len(edge_of))],
        "in order": [sorted(some, key=hashes.__getitem__) for some in members],
        "left": [sum(number not in withdrawn for number in some) for some in members],
    }


def plain_hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8, key=bytes(8)).digest(), "little")


@given(
    log=LOGS,
    cuts=st.lists(st.integers(0, 130), max_size=6),
    of=st.sampled_from(SCOPES),
    left_out=st.sampled_from((frozenset(), LEFT_OUT)),
    asked=st.booleans(),
)
def test_entries_at_once_are_as_one_by_one(log, cuts, of, left_out, asked) -> None:
    at_once, one_by_one = (Collection("c", of, left_out=left_out) for _ in range(2))
    for begin, end in pairwise([0, *sorted(cuts), len(log)]):
        changed = at_once.add_all(log[begin:end])
        assert changed == (sum(map(one_by_one.add, log[begin:end])) > 0)
        if asked:  # an order that somebody has asked for is kept up
            assert state_of(at_once) == state_of(one_by_one)
    found = state_of(at_once)
    assert found == state_of(one_by_one)
    known = {each.item_id: each for each in reversed(log) if isinstance(each, Item)}
    plain = expected([known[name] for name in at_once.item_ids], set(at_once.withdrawals))
    assert {name: found[name] for name in plain} == plain


def test_hashes_are_what_they_always_were() -> None:
    """They are in what is published, and in what workers of other versions compute: another hash, another order."""
    assert stable_hashes([]).tolist() == []
    assert stable_hashes(["", "m1", "ann\0bo"]).tolist() == [
        4331143152044847043,
        6363082368199444097,
        16223836804725768504,
    ]
    assert stable_hashes(["m1"], seed=7).tolist() == [129169772762739377]
    assert np.array_equal(stable_hashes(f"m{n}" for n in range(50)), [plain_hash(f"m{n}") for n in range(50)])
