"""Decoding: what is taken, and every way in which an event is rejected."""

import json
import tracemalloc
from dataclasses import replace
from typing import Any

import orjson
import pytest

from haystream.errors import Code, Rejected
from haystream.events import (
    TABLE_1,
    TABLE_2,
    Item,
    ItemFact,
    Outcome,
    Policy,
    Prior,
    Query,
    Status,
    Verdict,
    Withdrawal,
)
from haystream.ranking.ranked import Estimate, RankedItem, Ranking, Share
from haystream_service.wire import (
    dead_letter_key,
    decode_dead_letter,
    decode_item,
    decode_query,
    decode_ranking,
    decode_verdict,
    encode_dead_letter,
    encode_item,
    encode_ranking,
    fit_letter,
    fit_ranking,
    item_record,
    limits,
)

ITEM: dict[str, Any] = {"item_id": "m", "collection": "c", "sender": "s", "recipients": ["b", "a"]}
VERDICT: dict[str, Any] = {
    "verdict_id": "v",
    "query_id": "q",
    "item_id": "m",
    "analyst": "kim",
    "outcome": "relevant",
    "decided_at": "2026-01-31T12:00:00Z",
}


def query(**fields: Any) -> Query:
    return decode_query(json.dumps({"query_id": "q", **fields}).encode(), b"q")


def item(**fields: Any) -> Item:
    decoded = decode_item(json.dumps({**ITEM, **fields}).encode(), None, at=(3, 14))
    assert isinstance(decoded, Item)
    return decoded


def verdict(**fields: Any) -> Verdict:
    return decode_verdict(json.dumps({**VERDICT, **fields}).encode(), b"q")


def code_of(decode: Any, *args: Any, **fields: Any) -> tuple[Code, str]:
    with pytest.raises(Rejected) as caught:
        decode(*args, **fields)
    return caught.value.code, caught.value.detail


def test_a_query_needs_its_id_alone():
    assert query() == Query("q")
    assert query().prior == Prior(model="rates", mean=0.1, correlation=0.9, weight=2.0, participant=3.0, edge=3.0)
    assert query().policy == Policy("look-ahead-by-set", horizon=20)


def test_a_model_has_its_own_defaults():
    relevance = Prior(model="relevance", mean=0.25, correlation=0.8, conditional=TABLE_2)
    assert query(prior={"model": "relevance"}).prior == relevance
    assert query(prior={"model": "relevance", "weight": 5.0}).prior == relevance  # another model's setting
    given = {"mean": 0.02, "weight": 5.0, "edge": 4.0, "participants": {"ann": 0.5}}
    expected = Prior(model="rates", mean=0.02, correlation=0.9, weight=5.0, edge=4.0, participants={"ann": 0.5})
    assert query(prior=given).prior == expected


def test_every_setting_of_a_query_arrives():
    decoded = query(
        collection="mail",
        prior={
            "model": "relevance",
            "mean": 0.5,
            "correlation": -0.25,
            "conditional": {"00": [1, 2], "01": [3, 4], "10": [5, 6], "11": [7, 8]},
            "participants": {"ann": 0.75},
            "weight": 2,
            "participant": 3,
            "edge": 3,
        },
        policy={"name": "epsilon-greedy", "epsilon": 1, "seed": 2**64 - 1, "horizon": 7},
        engine="reference",
        top=10_000,
        status="paused",
        colour="green",
    )
    assert decoded.collection == "mail"
    assert decoded.prior.conditional.a == (1, 3, 5, 7)
    assert decoded.prior.conditional.b == (2, 4, 6, 8)
    assert decoded.prior.participants == {"ann": 0.75}
    assert (decoded.prior.mean, decoded.prior.correlation) == (0.5, -0.25)
    assert decoded.policy == Policy("epsilon-greedy", epsilon=1.0, seed=2**64 - 1, horizon=7)
    assert (decoded.engine, decoded.top, decoded.status) == ("reference", 10_000, Status.PAUSED)


@pytest.mark.parametrize(("name", "table"), [("table-1", TABLE_1), ("table-2", TABLE_2)])
def test_the_papers_tables_have_names(name, table):
    assert query(prior={"model": "relevance", "conditional": name}).prior.conditional == table


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"query_id": None}, Code.WRONG_TYPE, "query_id"),
        ({"collection": ""}, Code.INVALID_VALUE, "collection"),
        ({"collection": "a\nb"}, Code.INVALID_VALUE, "collection"),
        ({"collection": "x" * 513}, Code.TOO_LARGE, "collection"),
        ({"prior": []}, Code.WRONG_TYPE, "prior"),
        ({"prior": {"mean": "0.5"}}, Code.WRONG_TYPE, "prior.mean"),
        ({"prior": {"mean": True}}, Code.WRONG_TYPE, "prior.mean"),
        ({"prior": {"mean": 0}}, Code.OUT_OF_RANGE, "prior.mean"),
        ({"prior": {"mean": 1}}, Code.OUT_OF_RANGE, "prior.mean"),
        ({"prior": {"mean": float("nan")}}, Code.NOT_FINITE, "prior.mean"),
        ({"prior": {"mean": float("inf")}}, Code.NOT_FINITE, "prior.mean"),
        ({"prior": {"mean": 10**400}}, Code.NOT_FINITE, "prior.mean"),
        ({"prior": {"correlation": -1}}, Code.OUT_OF_RANGE, "prior.correlation"),
        ({"prior": {"correlation": 1.5}}, Code.OUT_OF_RANGE, "prior.correlation"),
        ({"prior": {"weight": 0}}, Code.OUT_OF_RANGE, "prior.weight"),
        ({"prior": {"edge": 1e7}}, Code.OUT_OF_RANGE, "prior.edge"),
        ({"prior": {"participant": "3"}}, Code.WRONG_TYPE, "prior.participant"),
        ({"prior": {"participants": {"ann": 2}}}, Code.OUT_OF_RANGE, "prior.participants.ann"),
        ({"prior": {"participants": {"": 0.5}}}, Code.INVALID_VALUE, "prior.participants.''"),
        ({"prior": {"participants": ["ann"]}}, Code.WRONG_TYPE, "prior.participants"),
        ({"prior": {"conditional": "table-3"}}, Code.INVALID_VALUE, "prior.conditional"),
        ({"prior": {"conditional": 2}}, Code.WRONG_TYPE, "prior.conditional"),
        ({"prior": {"conditional": {"00": [1, 1]}}}, Code.MISSING_FIELD, "prior.conditional.'01'"),
        ({"prior": {"model": "mrf"}}, Code.INVALID_VALUE, "prior.model"),
        ({"prior": {"conditional": "table-2"}}, Code.UNSUPPORTED, "prior.conditional"),
        ({"policy": "greedy"}, Code.WRONG_TYPE, "policy"),
        ({"policy": {"name": "best"}}, Code.INVALID_VALUE, "policy.name"),
        ({"policy": {"epsilon": 1.1}}, Code.OUT_OF_RANGE, "policy.epsilon"),
        ({"policy": {"seed": -1}}, Code.OUT_OF_RANGE, "policy.seed"),
        ({"policy": {"seed": 2**64}}, Code.OUT_OF_RANGE, "policy.seed"),
        ({"policy": {"seed": 1.0}}, Code.WRONG_TYPE, "policy.seed"),
        ({"policy": {"horizon": 0}}, Code.OUT_OF_RANGE, "policy.horizon"),
        ({"engine": "remote"}, Code.INVALID_VALUE, "engine"),
        ({"engine": 1}, Code.WRONG_TYPE, "engine"),
        ({"top": 0}, Code.OUT_OF_RANGE, "top"),
        ({"top": 10_001}, Code.OUT_OF_RANGE, "top"),
        ({"top": float("nan")}, Code.NOT_FINITE, "top"),
        ({"status": "ajar"}, Code.INVALID_VALUE, "status"),
    ],
)
def test_bad_settings_are_rejected_by_name(fields, code, field):
    got, detail = code_of(query, **fields)
    assert got == code
    assert detail.startswith(f"{field}: ")


@pytest.mark.parametrize("beta", [[0, 1], [1, -1], [1, 1e7]])
def test_concentrations_are_above_zero_and_not_absurd(beta):
    table = {"00": [1, 1], "01": [1, 1], "10": beta, "11": [1, 1]}
    assert code_of(query, prior={"conditional": table})[0] == Code.OUT_OF_RANGE


@pytest.mark.parametrize("beta", [[1], [1, 2, 3]])
def test_a_beta_has_two_parameters(beta):
    table = {"00": beta, "01": [1, 1], "10": [1, 1], "11": [1, 1]}
    assert code_of(query, prior={"conditional": table})[0] == Code.INVALID_VALUE


def test_items_are_canonical():
    assert item(recipients=["b", "a", "s", "b"]) == Item("m", "c", "s", ("a", "b"))
    assert item() == item(recipients=["a", "b"], sent_at="", uri="", labels={"a": [1]}, subject=None, text="")
    people = decode_item(b'{"item_id":"m","participants":["z","a","z","k"]}', b"m")
    assert people == Item("m", "default", None, ("a", "k", "z"))
    nulls = decode_item(b'{"item_id":"m","participants":["a","b"],"sender":null,"sent_at":null}', None)
    assert nulls == Item("m", "default", None, ("a", "b"))


def test_an_item_may_say_when_it_was_sent_and_where_it_is():
    told = item(sent_at="2001-02-03T04:05:06+01:00", uri="https://mail/1")
    assert (told.sent_at, told.uri) == (981_169_506_000_000, "https://mail/1")
    assert item(sent_at="1904-01-01").sent_at == -2_082_844_800_000_000  # so mail says
    last = "9999-12-31T23:59:59.999999"
    assert json.loads(encode_item(item(sent_at=last)))["sent_at"] == f"{last}Z"
    assert json.loads(encode_item(item(sent_at="0001-01-01")))["sent_at"] == "0001-01-01T00:00:00.000000Z"


@pytest.mark.parametrize("value", ["a", 3, None, ["a"], True, {"": None}, {"k" * 513: 1}, {"k": "v" * 513}])
def test_labels_that_nobody_can_ask_for_are_no_reason_to_reject(value):
    assert item(labels=value).labels == ()


def test_labels_have_one_form():
    labels = {"b": True, "a": 1.0, "c": "1", "d": -0.0, "e": 2**53 + 1, "f": 10**400, "g": 0.1, "h": [1], "i": 1}
    told = (
        ("a", "1"),
        ("b", "true"),
        ("c", '"1"'),
        ("d", "0"),
        ("e", "9007199254740992.0"),
        ("g", "0.1"),
        ("i", "1"),
    )
    assert item(labels=labels).labels == told
    assert item(labels={str(n): n for n in range(1000)}).labels == tuple(
        (str(n), str(n)) for n in sorted(range(1000), key=str)[:64]
    )


def test_an_item_knows_where_its_content_lies():
    told = item(subject="Lunch", text="At noon?")
    assert told.subject_at is not None
    assert told.text_at is not None
    assert told.text_at[1:] == told.subject_at[1:] == (3, 14)
    assert told.subject_at.digest == item(subject="Lunch").subject_at.digest != told.text_at.digest
    nowhere = decode_item(json.dumps({**ITEM, "text": "At noon?"}).encode(), None)
    assert nowhere == item()


def test_an_item_may_be_withdrawn_with_its_people_and_without():
    assert decode_item(b'{"item_id":"m","collection":"c","withdrawn":true}', b"m") == Withdrawal("m", "c")
    assert item(withdrawn=True) == replace(item(), withdrawn=True)
    assert item(withdrawn=False) == item()
    half = {"item_id": "m", "sender": "a", "withdrawn": True}
    assert code_of(decode_item, json.dumps(half).encode(), None)[0] == Code.MISSING_FIELD
    assert code_of(item_record, {"item_id": "m", "withdrawn": True})[0] == Code.MISSING_FIELD  # no item


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"item_id": ""}, Code.INVALID_VALUE),
        ({"item_id": "\x7f"}, Code.INVALID_VALUE),
        ({"sender": 3}, Code.WRONG_TYPE),
        ({"sender": None}, Code.MISSING_FIELD),
        ({"recipients": None}, Code.MISSING_FIELD),
        ({"recipients": "b"}, Code.WRONG_TYPE),
        ({"recipients": ["b", 1]}, Code.WRONG_TYPE),
        ({"recipients": ["b", ""]}, Code.INVALID_VALUE),
        ({"recipients": []}, Code.TOO_FEW_PARTICIPANTS),
        ({"recipients": ["s"]}, Code.TOO_FEW_PARTICIPANTS),
        ({"recipients": [str(i) for i in range(1001)]}, Code.TOO_LARGE),
        ({"participants": ["a", "b"]}, Code.INVALID_VALUE),
        ({"sent_at": "yesterday"}, Code.INVALID_VALUE),
        ({"sent_at": 0}, Code.WRONG_TYPE),
        ({"sent_at": "0001-01-01T00:00:00+14:00"}, Code.OUT_OF_RANGE),
        ({"uri": "x" * 4097}, Code.TOO_LARGE),
        ({"subject": "x" * 1025}, Code.TOO_LARGE),
        ({"subject": 1}, Code.WRONG_TYPE),
        ({"text": "x" * 262_145}, Code.TOO_LARGE),
        ({"text": ["a"]}, Code.WRONG_TYPE),
        ({"withdrawn": None}, Code.WRONG_TYPE),
        ({"withdrawn": "true"}, Code.WRONG_TYPE),
    ],
)
def test_bad_items_are_rejected(fields, code):
    assert code_of(item, **fields)[0] == code


def test_items_without_roles_are_bounded_too():
    def decode(*people: str) -> ItemFact:
        return decode_item(json.dumps({"item_id": "m", "participants": people}).encode(), None)

    assert code_of(decode, "a", "a")[0] == Code.TOO_FEW_PARTICIPANTS
    assert code_of(decode, *map(str, range(65)))[0] == Code.TOO_LARGE
    assert len(decode(*map(str, range(64))).pairs()) == 2016


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00.000001+01:00", 1),
        ("1970-01-01T00:00:01", 1_000_000),
        ("1970-01-02", 86_400_000_000),
        ("2026-01-31T12:00:00.1234567Z", 1_769_860_800_123_456),
    ],
)
def test_times_become_microseconds(text, microseconds):
    assert verdict(decided_at=text).decided_at == microseconds


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"outcome": "maybe"}, Code.INVALID_VALUE),
        ({"outcome": True}, Code.WRONG_TYPE),
        ({"analyst": None}, Code.WRONG_TYPE),
        ({"decided_at": 1769860800}, Code.WRONG_TYPE),
        ({"decided_at": "31/01/2026"}, Code.INVALID_VALUE),
        ({"decided_at": "2026-02-30T00:00:00Z"}, Code.INVALID_VALUE),
        ({"decided_at": "1969-12-31T23:59:59Z"}, Code.OUT_OF_RANGE),
        ({"decided_at": "9999-12-31T23:59:59-23:00"}, Code.OUT_OF_RANGE),
        ({"decided_at": "0001-01-01T00:00:00+23:00"}, Code.OUT_OF_RANGE),
    ],
)
def test_bad_verdicts_are_rejected(fields, code):
    assert code_of(verdict, **fields)[0] == code


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_is_taken(outcome):
    assert verdict(outcome=outcome).outcome is outcome


@pytest.mark.parametrize("field", VERDICT)
def test_every_field_of_a_verdict_is_required(field):
    value = json.dumps({name: given for name, given in VERDICT.items() if name != field}).encode()
    assert code_of(decode_verdict, value, b"q") == (
        Code.MISSING_FIELD,
        f"{field}: a required field is missing",
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"null",
        b"[]",
        b"3",
        b'"q"',
        b"{",
        b"{} {}",
        b"\xef\xbb\xbf{}",
        b'{"query_id":"\xff"}',
        b'{"query_id":"\\ud800"}',
        b'{"ignored":"\\udfff"}',
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"top":1' + b"0" * 5000 + b"}",
    ],
)
@pytest.mark.parametrize("decode", [decode_query, decode_item, decode_verdict])
def test_what_is_no_json_object_is_malformed(decode, value):
    assert code_of(decode, value, b"q")[0] == Code.MALFORMED_JSON


def test_keys_must_be_the_ids():
    q = b'{"query_id":"q\xc3\xa9"}'
    assert decode_query(q, "qé".encode()).query_id == "qé"
    for key in (None, b"", b"q", b"\xff"):
        assert code_of(decode_query, q, key)[0] == Code.KEY_MISMATCH
    v = json.dumps(VERDICT).encode()
    for key in (None, b"m", b"v"):
        assert code_of(decode_verdict, v, key)[0] == Code.KEY_MISMATCH
    m = json.dumps(ITEM).encode()
    assert decode_item(m, None) == decode_item(m, b"m")
    assert code_of(decode_item, m, b"q")[0] == Code.KEY_MISMATCH


def test_what_is_above_a_limit_is_too_large():
    m = {"item_id": "m", "sender": "ann", "recipients": [f"r{n}" for n in range(1000)]}
    assert decode_item(json.dumps(m).encode(), None)
    m["recipients"].append("one more")
    code, detail = code_of(decode_item, json.dumps(m).encode(), None)
    assert (code, detail) == (Code.TOO_LARGE, "recipients: has 1001 entries, at most 1000 are taken")
    watched = {f"p{n}": 0.5 for n in range(10_000)}
    q = {"query_id": "q", "prior": {"participants": watched}}
    assert decode_query(json.dumps(q).encode(), b"q")
    watched["one more"] = 0.5
    code, detail = code_of(decode_query, json.dumps(q).encode(), b"q")
    assert (code, detail) == (Code.TOO_LARGE, "prior.participants: has 10001 entries, at most 10000 are taken")
    short = b'{"query_id":"q"}'
    assert decode_query(short.ljust(1 << 20), b"q")
    assert code_of(decode_query, short.ljust((1 << 20) + 1), b"q")[1].startswith("the message has 1048577 bytes")


def test_details_stay_short_whatever_was_sent():
    huge = "x" * 500_000
    _, detail = code_of(query, prior={"participants": {huge: huge}}, top=huge)
    assert len(detail) < 300


def test_a_record_from_python_values_is_checked_like_the_wire():
    assert item_record({"item_id": "m", "sender": "a", "recipients": ("b",)}).recipients == ("b",)
    assert code_of(item_record, {"item_id": "m", "sender": "a", "recipients": ("a",)})[0] == (
        Code.TOO_FEW_PARTICIPANTS
    )
    assert code_of(item_record, {"item_id": "\udcff", "participants": ("a", "b")})[0] == Code.INVALID_VALUE


def test_dead_letters_hold_what_was_rejected():
    rejected = Rejected(Code.WRONG_TYPE, "top: should be a number")
    for payload in (None, b"", b"\x00\xff", b"x" * 600_000):
        value = encode_dead_letter(rejected, payload, topic="t", partition=3, offset=9)
        letter, kept = decode_dead_letter(value)
        assert kept == (payload or b"")[: 512 << 10]
        assert letter.payload_bytes == len(payload or b"")
        assert letter.error.code is Code.WRONG_TYPE
        assert (letter.source.topic, letter.source.partition, letter.source.offset) == ("t", 3, 9)
    assert code_of(decode_dead_letter, value.replace(b"eHh4", b"e*h4", 1))[0] == Code.INVALID_VALUE
    assert code_of(decode_ranking, value)[0] == Code.MISSING_FIELD


def test_keys_are_bounded_before_anything_else():
    key = b"k" * 2049
    for decode in (decode_query, decode_item, decode_verdict):
        assert code_of(decode, b"\xff", key) == (
            Code.TOO_LARGE,
            "the key has 2049 bytes, at most 2048 are taken",
        )
    longest = "\U0001f600" * 512
    value = json.dumps({"query_id": longest}).encode()
    assert decode_query(value, longest.encode()).query_id == longest


def test_dead_letters_fit_whatever_was_sent_and_whatever_the_topic_takes():
    _, detail = code_of(query, prior={"participants": {"x" * 500_000: 2}})
    rejected = Rejected(Code.OUT_OF_RANGE, "\U0001f600" * 500_000)
    value = encode_dead_letter(
        rejected, b"\xff" * 1_000_000, topic="t" * 249, partition=3, offset=9, key=b"k" * 400_000
    )
    assert len(detail) < 300
    assert len(value) < 1 << 20
    assert fit_letter(value, len(value)) == value
    for limit in (700_000, 100_000, 20_001, 20_000, 15_003):
        fitted = fit_letter(value, limit)
        letter, kept = decode_dead_letter(fitted)
        assert limit - 4 < len(fitted) <= limit
        assert len(kept) > 0
        assert (letter.payload_bytes, letter.key_bytes) == (1_000_000, 400_000)
    assert dead_letter_key(b"k" * 2048) == b"k" * 2048
    assert dead_letter_key(b"k" * 2049) is dead_letter_key(None) is None


def ranking_of(count: int, *, people: int) -> bytes:
    names = tuple(f"{n:04d}".ljust(512, "\u00e9") for n in range(people))
    because = (Share((names[0], names[1]), 0.25),) * 5
    items = tuple(RankedItem(f"m{n}", n + 1, 0.5, 0.5, 0.1, names, because) for n in range(count))
    ranking = Ranking("greedy", 2, 1, Estimate(3.0, 0.5), 1.5, items)
    return encode_ranking("q", ranking, revision=1, published_at=0)


def test_rankings_name_some_of_many_people_and_say_how_many_more_there_are():
    for people, cut in ((64, 0), (65, 1), (1001, 937)):
        (item,) = decode_ranking(ranking_of(1, people=people)).items
        assert (len(item.participants), item.participants_cut) == (64, cut)


def test_each_item_of_a_ranking_says_why_it_is_there_whatever_it_has_in_common_with_others():
    ann, ben = (Share(("ann", "carl"), 0.25),), (Share(("ben", "carl"), -0.5), Share(("ann", "carl"), 0.1))
    items = [
        RankedItem(f"m{rank}", rank, 0.5, 0.5, 0.1, ("ann", "ben"), because)
        for rank, because in enumerate((ann, ben, ann, (), tuple(ben)), start=1)
    ]
    value = encode_ranking(
        "q", Ranking("greedy", 2, 1, Estimate(3.0, 0.5), 1.5, tuple(items)), revision=1, published_at=0
    )
    told = [[(tuple(s.participants), s.share) for s in item.because] for item in decode_ranking(value).items]
    assert told == [[(s.participants, s.share) for s in item.because] for item in items]


@pytest.mark.parametrize("limit", [20_000, 100_000, 1_000_000])
def test_rankings_that_do_not_fit_name_fewer_people_and_then_end_earlier(limit: int):
    whole = ranking_of(40, people=100)
    fitted = fit_ranking(whole, limit)
    ranking = decode_ranking(fitted)
    assert limit * 0.4 < len(fitted) <= limit < len(whole)
    assert len(ranking.items) + ranking.items_cut == 40
    assert [item.rank for item in ranking.items] == list(range(1, len(ranking.items) + 1))
    assert {(len(item.participants), item.participants_cut) for item in ranking.items} == {(8, 92)}
    assert (ranking.items_cut == 0) == (limit >= 1_000_000)
    again = decode_ranking(fit_ranking(fitted, 15_000))
    assert again.items_cut == 40 - len(again.items)
    assert fit_ranking(whole, len(whole)) == whole


def test_a_ranking_is_never_longer_than_next_items_is_made_to_take():
    whole = ranking_of(200, people=100)
    assert len(whole) <= limits.RANKING_BYTES
    assert decode_ranking(whole).items_cut == 0
    longest = ranking_of(2000, people=100)
    assert limits.RANKING_BYTES * 0.9 < len(longest) <= limits.RANKING_BYTES
    assert decode_ranking(longest).items_cut > 0


@pytest.mark.parametrize("field", ["subject", "text"])
@pytest.mark.parametrize("said", ["secret " * 100_000, {"secret": 1}, ["secret"]])
def test_what_an_item_says_is_not_repeated_where_it_is_refused(field: str, said: object) -> None:
    value = {"item_id": "m", "participants": ["ann", "bob"], field: said}
    with pytest.raises(Rejected, match=f"^[a-z_]+: {field}: should (have at most|be a valid)") as refused:
        decode_item(json.dumps(value).encode(), None)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("limit", [50_000, 1_000_000, 8_000_000])
def test_a_ranking_that_is_cut_while_it_is_encoded_is_the_one_that_is_cut_afterwards(
    limit: int, monkeypatch: pytest.MonkeyPatch
):
    whole = ranking_of(150, people=80)
    assert len(whole) > 8_000_000
    monkeypatch.setattr(limits, "RANKING_BYTES", limit)
    cut = ranking_of(150, people=80)
    assert orjson.loads(cut) == orjson.loads(fit_ranking(whole, limit))


def test_the_longest_ranking_of_the_widest_items_takes_no_gigabytes():
    tracemalloc.start()
    try:
        assert len(ranking_of(10_000, people=1000)) <= limits.RANKING_BYTES
        assert tracemalloc.get_traced_memory()[1] < 1 << 30
    finally:
        tracemalloc.stop()
