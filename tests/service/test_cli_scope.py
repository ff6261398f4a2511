"""A scope on the command line: what it asks for is what the wire takes."""

import json

import pytest

from haystream.scope import scope
from haystream_service.commands.queue import scope_of
from haystream_service.errors import UserError
from haystream_service.wire import decode_query


def test_what_is_asked_for_is_the_wires_scope() -> None:
    asked = scope_of(
        sent_from="2001-01-01",
        anybody=["ann", "bo"],
        nobody=["cy"],
        labels=["custodian=ann=bo", "year:=2001", "privileged:=false", 'text:="7"', "empty="],
    )
    assert asked["labels"] == {
        "custodian": "ann=bo", "year": 2001, "privileged": False, "text": "7", "empty": "",
    }  # fmt: skip
    query = decode_query(json.dumps({"query_id": "q", "scope": asked}).encode(), b"q")
    assert query.scope == scope(
        since=978_307_200_000_000,
        anybody=["ann", "bo"],
        nobody=["cy"],
        labels=[
            ("custodian", '"ann=bo"'), ("year", "2001"), ("privileged", "false"), ("text", '"7"'), ("empty", '""'),
        ],
    )  # fmt: skip


def test_what_is_not_asked_for_is_left_out() -> None:
    assert scope_of() == {}
    assert scope_of(sent_to="2002-01-01") == {"sent": [None, "2002-01-01"]}


@pytest.mark.parametrize("label", ["custodian", "year:=two", "=ann", ":=1", "a:=" + 5000 * "[", "a:=" + 5000 * "9"])
def test_a_label_that_is_none_is_refused(label: str) -> None:
    with pytest.raises(UserError, match="--label") as refused:
        scope_of(labels=[label])
    assert len(str(refused.value)) < 200


def test_a_label_is_asked_for_once() -> None:
    """A scope can never change: it is not to be another than what was meant."""
    with pytest.raises(UserError, match="--label custodian: given twice"):
        scope_of(labels=["custodian=ann", "year:=2001", "custodian=bo"])
