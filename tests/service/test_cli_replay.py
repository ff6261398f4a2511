"""`haystream replay`: the object it prints, what it rejects, and that the order of a log says nothing."""

import gzip
import json
import random
import subprocess
import sys
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

import pytest

from haystream.errors import Code, QueryFailed
from haystream.query.state import QueryState
from haystream.report import report
from haystream_service.commands import replay
from haystream_service.commands.replay import fold
from haystream_service.errors import UserError
from haystream_service.sources import synthetic
from haystream_service.wire import encode_item, encode_line

SOURCE = synthetic(seed=2, edges=56, items_per_edge=5)


def event(topic: str, **value: Any) -> bytes:
    return encode_line(topic, json.dumps(value).encode())


def verdict(number: int, item_id: str, *, query_id: str = "q") -> bytes:
    return event(
        "verdicts",
        verdict_id=f"v{number}",
        query_id=query_id,
        item_id=item_id,
        analyst="kim",
        outcome="relevant" if SOURCE.truth(item_id) else "irrelevant",
        decided_at=f"2026-01-31T12:00:{number % 60:02}Z",
    )


QUERY = event("queries", query_id="q", prior={"participants": {"p01": 0.6}})
ITEMS = [encode_line("items", encode_item(item)) for item in SOURCE]
VERDICTS = [verdict(number, item.item_id) for number, item in enumerate(SOURCE) if number % 3 == 0]
LOG = [QUERY, *ITEMS, *VERDICTS]


def printed(capfd: pytest.CaptureFixture[str], path: Path, **options: Any) -> dict[str, Any]:
    replay.run(path, json=True, **options)
    out = capfd.readouterr().out
    assert out.count("\n") == 1
    result: dict[str, Any] = json.loads(out)
    return result


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(LOG))
    return path


def test_the_object_has_the_contracts_fields(capfd, log):
    result = printed(capfd, log)
    assert result["query_id"] == "q"
    assert result["screened"] == len(VERDICTS)
    assert result["found"] == sum(SOURCE.truth(json.loads(v)["value"]["item_id"]) for v in VERDICTS)
    assert result["discrepancy"] > 0
    assert result["rejected"] == []
    assert result["participants"].keys() == {name for pair in SOURCE.pairs for name in pair}
    assert all(set(row) == {"mean", "variance"} for row in result["participants"].values())
    assert len(result["edges"]) == SOURCE.edges
    assert set(result["edges"][0]) == {"participants", "screened", "relevant", "mean", "variance"}
    assert sum(edge["screened"] for edge in result["edges"]) == len(VERDICTS)
    assert len(result["items"]) == len(SOURCE) - len(VERDICTS)
    assert set(result["items"][0]) == {"item_id", "score", "mean", "sd"}
    scores = [item["score"] for item in result["items"]]
    assert scores == sorted(scores, reverse=True)


def test_order_and_repetition_say_nothing(capfd, log, tmp_path):
    expected = printed(capfd, log)
    shuffled = LOG + LOG[::3]
    random.Random(1).shuffle(shuffled)
    other = tmp_path / "other.jsonl.gz"
    other.write_bytes(gzip.compress(b"\n".join(shuffled)))
    result = printed(capfd, other, tolerance=1e-10)
    exact = printed(capfd, log, tolerance=1e-10)
    assert result["screened"] == expected["screened"]
    for name, row in exact["participants"].items():
        assert result["participants"][name]["mean"] == pytest.approx(row["mean"], abs=1e-8)
    assert {item["item_id"] for item in result["items"]} == {item["item_id"] for item in exact["items"]}


def test_the_engine_can_be_chosen_from_outside(capfd, log):
    local = printed(capfd, log, engine="local", query="q")
    reference = printed(capfd, log, engine="reference", query="q")
    assert local["edges"] != reference["edges"]
    for ours, printed_lemma in zip(local["edges"], reference["edges"], strict=True):
        assert ours["participants"] == printed_lemma["participants"]
        assert ours["mean"] == pytest.approx(printed_lemma["mean"], abs=0.05)


def test_several_queries_are_a_list_unless_one_is_asked_for(capfd, log):
    log.write_bytes(b"".join([*LOG, event("queries", query_id="a", collection="other")]))
    result = printed(capfd, log)
    assert [query["query_id"] for query in result["queries"]] == ["a", "q"]
    assert result["rejected"] == []
    assert printed(capfd, log, query="a")["items"] == []
    with pytest.raises(UserError, match="opens no query 'z'; it opens a, q"):
        replay.run(log, query="z")


def test_a_log_without_queries_is_no_error(capfd, tmp_path):
    path = tmp_path / "empty.jsonl"
    path.write_bytes(b"\n\n")
    assert printed(capfd, path) == {"queries": [], "rejected": []}


def test_rejected_lines_are_named_and_change_nothing(capfd, log, tmp_path):
    expected = printed(capfd, log)
    bad = [
        b"nonsense\n",
        event("items", item_id="m", participants=["p00"]),
        event("items", item_id="m0000000", participants=["p00", "p01"]),
        verdict(1, "m0000000", query_id="nobody's"),
        event("rankings", query_id="q"),
        event("queries", query_id="q", collection="elsewhere"),
        event("queries", query_id="q", prior={"mean": 2}),
    ]
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b"".join([*LOG, b"\n", *bad]))
    result = printed(capfd, path)
    first = len(LOG) + 2
    assert [(row["line"], row["code"]) for row in result.pop("rejected")] == [
        (first, "malformed_json"),
        (first + 1, "too_few_participants"),
        (first + 2, "item_conflict"),
        (first + 3, "unknown_query"),
        (first + 4, "invalid_value"),
        (first + 5, "collection_changed"),
        (first + 6, "out_of_range"),
    ]
    assert result == {name: value for name, value in expected.items() if name != "rejected"}


@pytest.mark.parametrize("whole", [b"item_id,sender\nm1,ann\n", b"\x00\xff\n\n"])
def test_what_is_no_log_at_all_is_said_to_be_none(tmp_path, whole):
    path = tmp_path / "t.csv"
    path.write_bytes(whole)
    with pytest.raises(UserError, match=r"t\.csv is no event log: line 1: Invalid JSON"):
        replay.run(path)


def test_a_log_may_begin_with_a_mark_of_the_byte_order(capfd, log):
    expected = printed(capfd, log)
    log.write_bytes(BOM_UTF8 + log.read_bytes())
    assert printed(capfd, log) == expected


def test_a_verdict_may_come_before_its_query():
    replayed = fold([*VERDICTS, *ITEMS, QUERY])
    assert replayed.rejected == []
    assert report(replayed.state.queries["q"]).screened == len(VERDICTS)


def test_people_get_tables(capfd, log):
    log.write_bytes(b"".join([*LOG, *[b"nonsense\n"] * 12]))
    replay.run(log)
    out, err = capfd.readouterr()
    assert f"in {len(VERDICTS)} screened" in out
    assert "what to read next" in out
    assert "12 lines were rejected" in err
    assert "and 2 more" in err


def test_the_program_prints_one_object_and_nothing_else(log):
    program = Path(sys.executable).with_name("haystream")
    ran = subprocess.run([program, "replay", log, "--json"], capture_output=True, check=True)
    assert json.loads(ran.stdout)["query_id"] == "q"
    assert ran.stderr == b""


def test_a_query_that_cannot_be_computed_is_named_and_others_are_printed(capfd, log, monkeypatch):
    settle = QueryState.settle

    def fails(state: QueryState) -> None:
        if state.settings.query_id == "bad":
            raise QueryFailed(Code.OUT_OF_RANGE, "prior.weight: too small")
        settle(state)

    monkeypatch.setattr(QueryState, "settle", fails)
    log.write_bytes(b"".join([*LOG, event("queries", query_id="bad"), verdict(1, "m0000000", query_id="bad")]))
    result = printed(capfd, log)
    assert result["query_id"] == "q"
    assert result["stopped"] == [{"query_id": "bad", "code": "out_of_range", "detail": "prior.weight: too small"}]
    replay.run(log)
    assert "query bad cannot be computed: out_of_range" in capfd.readouterr().err
