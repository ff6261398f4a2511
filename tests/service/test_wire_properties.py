"""What was encoded decodes to the same; and whatever is sent, nothing but `Rejected` is raised."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.histories import MODELS, priors_in_range

from haystream.errors import Rejected
from haystream.events import Covariance, Item, Outcome, Policy, Prior, Query, Status, Verdict, Withdrawal
from haystream.ranking.policies import POLICIES
from haystream.ranking.ranked import Estimate, RankedItem, Ranking, Share
from haystream_service.wire import (
    ItemRecord,
    NextItems,
    decode_dead_letter,
    decode_item,
    decode_line,
    decode_query,
    decode_ranking,
    decode_verdict,
    encode_item,
    encode_line,
    encode_query,
    encode_ranking,
    encode_record,
    encode_verdict,
    times,
)
from haystream_service.wire.labels import labels_of
from haystream_service.wire.records import PolicyRecord, PriorRecord, QueryRecord, VerdictRecord

ids = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
queries = st.builds(
    Query,
    query_id=ids,
    collection=ids,
    prior=st.one_of(priors_in_range(model, people=ids, most_watched=4) for model in MODELS),
    policy=st.builds(
        Policy,
        name=st.sampled_from(list(POLICIES)),
        epsilon=st.floats(0, 1),
        seed=st.integers(0, 2**64 - 1),
        horizon=st.integers(1, 10_000),
    ),
    engine=st.sampled_from(["local", "reference"]),
    top=st.integers(1, 10_000),
    status=st.sampled_from(Status),
)
verdicts = st.builds(
    Verdict,
    verdict_id=ids,
    query_id=ids,
    item_id=ids,
    analyst=ids,
    outcome=st.sampled_from(Outcome),
    decided_at=st.integers(0, times.to_microseconds(times.END) - 1),
)


numbers = st.floats(allow_nan=False, allow_infinity=False)

YEAR_1, YEAR_10_000 = -62_135_596_800_000_000, 253_402_300_800_000_000
"""Microseconds since the epoch."""


@st.composite
def items(draw: Callable[..., Any]) -> Item:
    people = sorted(draw(st.sets(ids, min_size=2, max_size=6)))
    sender = people.pop(draw(st.integers(0, len(people) - 1))) if draw(st.booleans()) else None
    return Item(
        draw(ids),
        draw(ids),
        sender,
        tuple(people),
        sent_at=draw(st.none() | st.integers(YEAR_1, YEAR_10_000 - 1)),
        uri=draw(st.none() | st.text(st.characters(exclude_categories=("Cs",)), min_size=1)),
        labels=labels_of(draw(st.dictionaries(ids, st.booleans() | st.integers() | numbers | ids))),
        withdrawn=draw(st.booleans()),
    )


@given(queries)
def test_queries_come_back(query: Query) -> None:
    assert decode_query(encode_query(query), query.query_id.encode()) == query
    assert decode_line(encode_line("queries", encode_query(query))) == query


@given(items())
def test_items_come_back(item: Item) -> None:
    assert decode_item(encode_item(item), item.item_id.encode()) == item
    assert decode_line(encode_line("items", encode_item(item))) == item


@given(ids, ids)
def test_withdrawals_come_back(item_id: str, collection: str) -> None:
    withdrawal = Withdrawal(item_id, collection)
    assert decode_item(encode_item(withdrawal), item_id.encode()) == withdrawal
    assert decode_line(encode_line("items", encode_item(withdrawal))) == withdrawal


@given(verdicts)
def test_verdicts_come_back(verdict: Verdict) -> None:
    assert decode_verdict(encode_verdict(verdict), verdict.query_id.encode()) == verdict
    assert decode_line(encode_line("verdicts", encode_verdict(verdict))) == verdict


@given(items(), ids, st.dictionaries(ids, st.integers() | st.none() | st.booleans()))
def test_what_an_item_carries_comes_back(item: Item, uri: str, labels: dict[str, Any]) -> None:
    value = {**json.loads(encode_item(item)), "sent_at": "2001-02-03T04:05:06Z", "uri": uri}
    value["labels"] = {name: label for name, label in labels.items() if abs(label or 0) < 2**63}
    record = ItemRecord.model_validate_json(json.dumps(value))
    assert ItemRecord.model_validate_json(encode_record(record)) == record


told = st.none() | st.integers(YEAR_1, YEAR_10_000 - 1), st.none() | ids


@given(ids, numbers, st.integers(0, 2**62), st.lists(st.tuples(ids, numbers, numbers, *told), max_size=3))
def test_rankings_are_what_their_readers_expect(
    query_id: str, number: float, revision: int, rows: list[tuple[str, float, float, int | None, str | None]]
) -> None:
    ranking = Ranking(
        policy="greedy",
        screened=2,
        found=1,
        expected_remaining=Estimate(number, 2.0),
        discrepancy=number,
        items=tuple(
            RankedItem(item_id, rank, score, mean, 0.5, ("a", "b"), (Share(("a", "b"), score),), sent_at, uri)
            for rank, (item_id, score, mean, sent_at, uri) in enumerate(rows, start=1)
        ),
    )
    value = encode_ranking(query_id, ranking, revision=revision, published_at=1_769_860_800_000_001)
    read = decode_ranking(value)
    assert (read.query_id, read.revision, read.discrepancy) == (query_id, revision, number)
    assert read.published_at == "2026-01-31T12:00:00.000001Z"
    sent = [None if row[3] is None else times.to_text(row[3]) for row in rows]
    got = [(row.item_id, row.score, row.mean, row.sent_at, row.uri) for row in read.items]
    assert got == [(*row[:3], text, row[4]) for row, text in zip(rows, sent, strict=True)]
    assert json.loads(value).keys() == NextItems.model_fields.keys()


def test_the_cores_rankings_have_the_wires_names() -> None:
    row = NextItems.model_fields["items"].annotation.__args__[0]  # type: ignore[union-attr]
    assert set(RankedItem._fields) | {"participants_cut"} == set(row.model_fields)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["relevant", "greedy", "2026-01-31", "table-1", "q"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
OUTER = [*QueryRecord.model_fields, *ItemRecord.model_fields, *VerdictRecord.model_fields, *NextItems.model_fields]
INNER = [*PriorRecord.model_fields, *PolicyRecord.model_fields, "00", "01", "10", "11"]
messages = st.dictionaries(
    st.sampled_from(OUTER), json_values | st.dictionaries(st.sampled_from(INNER), json_values)
)
DECODERS: list[Callable[[bytes], object]] = [
    lambda value: decode_query(value, b"q"),
    lambda value: decode_item(value, None),
    lambda value: decode_verdict(value, b"q"),
    decode_line,
    decode_ranking,
    decode_dead_letter,
]


def try_all(value: bytes) -> None:
    for decode in DECODERS:
        with suppress(Rejected):
            decode(value)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(value: bytes) -> None:
    try_all(value)


@given(json_values)
def test_no_json_raises_anything_else(value: Any) -> None:
    try_all(json.dumps(value).encode())


@given(messages)
def test_no_message_raises_anything_else(value: dict[str, Any]) -> None:
    try_all(json.dumps(value).encode("utf-8", "surrogatepass"))
    try_all(json.dumps({"topic": "queries", "value": value}).encode())


@given(queries, st.data())
def test_no_broken_byte_raises_anything_else(query: Query, data: st.DataObject) -> None:
    value = bytearray(encode_query(query))
    value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try_all(bytes(value))


def test_a_covariance_cannot_be_said() -> None:
    with pytest.raises(ValueError, match="covariance"):
        encode_query(Query("q", prior=Prior(covariance=Covariance(("a",), ((0.1,),)))))
