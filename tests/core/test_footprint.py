"""What a collection is said to take is about what it takes."""

import gc
import tracemalloc

import numpy as np
import pytest
from support.seeds import alike

from haystream.collection.collection import Collection
from haystream.events import Item, Query
from haystream.footprint import bytes_of
from haystream.query.state import QueryState


def filled(items: int, people: int, recipients: int) -> Collection:
    rng, collection = np.random.default_rng(0), Collection("default")
    for number in range(items):
        sender, *others = rng.choice(people, 1 + recipients, replace=False).tolist()
        to = tuple(sorted(f"person-{other}" for other in others))
        uri = f"https://mail.example.com/{number}" if number % 2 else None
        collection.add(Item(f"item-{number:08d}", "default", f"person-{sender}", to, sent_at=number, uri=uri))
    return collection


LARGE, MAIL = (20_000, 5000, 1), (3000, 1000, 5)


@pytest.mark.parametrize(("items", "people", "recipients"), alike([(20_000, 200, 1), LARGE, MAIL], LARGE, MAIL))
def test_a_collection_takes_about_so_much(items: int, people: int, recipients: int) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        collection = filled(items, people, recipients)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bytes_of(collection) == pytest.approx(taken, rel=0.25)


def test_what_queries_share_counts_and_what_they_differ_in_does_not() -> None:
    collection = filled(3000, 1000, 1)
    alone = bytes_of(collection)
    queries = [QueryState(Query(f"q{number}"), collection) for number in range(3)]
    queries[0].settle()
    shared = bytes_of(collection)
    assert shared > alone + 200 * collection.graph.edges  # some thirty numbers a pair
    for query in queries[1:]:
        query.settle()
    assert bytes_of(collection) == pytest.approx(shared, rel=0.01)
