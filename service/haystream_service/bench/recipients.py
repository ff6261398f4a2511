"""What an item of many people costs: its verdict, and its claim, against those of an item of two."""

from collections.abc import Callable, Iterator
from itertools import chain, cycle
from time import perf_counter
from typing import Any

import numpy as np

from haystream.events import Item, Outcome, Query, Verdict
from haystream.fold import State, step
from haystream.query.state import QueryState
from haystream.warm import warm
from haystream_service.bench import graphs
from haystream_service.bench.names import GraphName
from haystream_service.bench.samples import Samples
from haystream_service.bench.search import edges_of

TO, AMONG = "to", "among"
PAIR = (TO, 1)
SHAPES = (
    *(PAIR, (TO, 2), (TO, 5), (TO, 20), (TO, 200), (TO, 1000)),
    *((AMONG, 3), (AMONG, 10), (AMONG, 21), (AMONG, 64)),
)
"""A mail to so many, or an item without roles among so many: the last of each are as many as the wire takes."""
BEFORE = 50
"""Verdicts on pairs that come before all: a query's first ones move the base rate, and cost what that does."""
ITEMS_OUT = 5
"""So many of a shape are handed out at a time, where it is said what something takes beside them."""
ITEMS_PER_EDGE = 2
QUERY, BY_EDGE = "bench", "by-edge"
"""A query, and another one on the same collection whose engine follows each verdict edge by edge, as if it were as
many. Its ranking is never read."""
LEAST, MOST_BY_EDGE = 3, 10_000
"""Edge by edge so many items of a shape are counted at least; and no more of them once they have so many edges."""


def run(*, edges: int, items: int, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """What items of each shape cost, between people drawn from a preferential-attachment graph of so many edges.

    *Beside*: where ITEMS_OUT others of the shape are handed out, a claim of one of them, and a verdict on a pair.
    """
    warm()
    rng, state = np.random.default_rng(seed), State()
    say(f"{edges:,} edges")
    for item in graphs.items(GraphName.PREFERENTIAL, edges=edges, items_per_edge=ITEMS_PER_EDGE, seed=seed):
        step(state, item)
    people = state.collection(graphs.COLLECTION).graph.participants
    before = list(_items(PAIR, BEFORE, people, rng, "before"))
    drawn = [(shape, list(_items(shape, items, people, rng, "item"))) for shape in SHAPES]
    out = [list(_items(shape, ITEMS_OUT, people, rng, "out")) for shape in SHAPES]
    pairs_beside = [list(_items(PAIR, items, people, rng, f"beside-{k}")) for k in range(len(SHAPES))]
    for item in chain(before, *(some for _, some in drawn), *out, *pairs_beside):
        step(state, item)
    for query_id in (QUERY, BY_EDGE):
        step(state, Query(query_id, collection=graphs.COLLECTION))
        state.queries[query_id].finish()
    query, by_edge = state.queries[QUERY], state.queries[BY_EDGE]
    for item in before:
        _judge(state, query, item, Samples(), "verdict")
        _count(by_edge, item, Samples())
    rows: list[dict[str, Any]] = []
    for ((kind, count), some), others, pairs_then in zip(drawn, out, pairs_beside, strict=True):
        say(f"{kind} {count:,}")
        samples = Samples()
        pairs = len(edges_of(query.collection, some[0].item_id))
        for number, item in enumerate(some):
            _claim(query, item, samples, "claim")
            _release(query, item)
            _judge(state, query, item, samples, "verdict")
            if number < LEAST or number * pairs < MOST_BY_EDGE:
                _count(by_edge, item, samples)
        for item in others:
            query.hold(item.item_id)
        query.finish()
        for item, pair in zip(cycle(others), pairs_then):
            _release(query, item)
            _claim(query, item, samples, "claim_beside")
            _judge(state, query, pair, samples, "verdict_beside")
        for item in others:
            _release(query, item)
        timings = samples.timings()
        rows.append(
            {"kind": kind, "people": count, "pairs": pairs}
            | {f"{name}_p50_ms": took.p50_us / 1e3 for name, took in timings.items()}
            | {f"{name}_p99_ms": took.p99_us / 1e3 for name, took in timings.items()}
        )
    for row in rows:
        row["ratio_to_pair"] = row["verdict_p50_ms"] / rows[0]["verdict_p50_ms"]
        row["ratio_by_edge"] = row["by_edge_p50_ms"] / row["posterior_p50_ms"]
    return {"edges": query.collection.graph.edges, "participants": len(people), "items": items, "results": rows}


def _items(
    shape: tuple[str, int], items: int, people: list[str], rng: np.random.Generator, name: str
) -> Iterator[Item]:
    kind, count = shape
    for number in range(items):
        who = [people[place] for place in rng.choice(len(people), count + (kind == TO), replace=False)]
        sender = who.pop() if kind == TO else None
        yield Item(f"{name}-{kind}-{count}-{number}", graphs.COLLECTION, sender, tuple(sorted(who)))


def _claim(query: QueryState, item: Item, samples: Samples, name: str) -> None:
    begin = perf_counter()
    query.hold(item.item_id)
    query.ranking()
    samples.add(name, perf_counter() - begin)


def _release(query: QueryState, item: Item) -> None:
    query.release(item.item_id)
    query.finish()


def _judge(state: State, query: QueryState, item: Item, samples: Samples, name: str) -> None:
    number = len(query.verdicts)
    outcome = Outcome.RELEVANT if number % 2 else Outcome.IRRELEVANT
    begin = perf_counter()
    step(state, Verdict(f"v{number}", QUERY, item.item_id, "analyst", outcome, number))
    query.settle()
    settled = perf_counter()
    query.ranking()
    samples.add("posterior" if name == "verdict" else f"posterior_{name}", settled - begin)
    samples.add(name, perf_counter() - begin)
    query.drain()
    query.finish()


def _count(query: QueryState, item: Item, samples: Samples) -> None:
    edges = edges_of(query.collection, item.item_id)
    begin = perf_counter()
    for edge in edges:
        query.engine.record(edge, screened=1.0 / len(edges), offered=-1.0 / len(edges))
        query.engine.settle()
    samples.add("by_edge", perf_counter() - begin)
    query.finish()
