"""The store's contract. Every test holds for every store, whether its line is good or keeps breaking."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.changes import COMMON, change, rows, tables

from haystream.events import Item, Outcome, Policy, Prior, Query, RecordPlace, Status, Verdict, Withdrawal
from haystream.posterior.rows import NOBODY, Size
from haystream_service.store.base import (
    NOWHERE,
    Appended,
    Deletion,
    Fenced,
    Head,
    Hold,
    Note,
    Position,
    Quarantine,
    Span,
    Spans,
)

pytestmark = pytest.mark.asyncio

AWKWARD = "a{b}c%d:ü* \U0001f98a"
"""Braces would end a Redis hash tag, `*` is a pattern, and a name need not be ASCII."""


def item(number: int, collection: str = "mail", recipient: str = "bo") -> Item:
    return Item(f"item-{number}", collection, "ann", (recipient,))


def verdict(number: int, query_id: str = "q") -> Verdict:
    return Verdict(
        f"v{number}", query_id, f"item-{number}", "zoe", Outcome.RELEVANT, 1_700_000_000_000_001 + number
    )


async def test_one_item_and_one_verdict_are_found_by_their_ids(store: Any) -> None:
    await store.append_items(AWKWARD, [item(1, AWKWARD), item(2, AWKWARD)])
    assert await store.find_item(AWKWARD, "item-2") == item(2, AWKWARD)
    assert await store.find_item(AWKWARD, "item-3") is None
    assert await store.find_items(AWKWARD, ["item-2", "", "item-3", "item-1"]) == [
        item(2, AWKWARD),
        None,
        None,
        item(1, AWKWARD),
    ]
    assert await store.find_items(AWKWARD, []) == []
    assert await store.read_revision(AWKWARD) is None
    assert await store.read_verdict(AWKWARD, "v1") is None
    await store.save_query(change(AWKWARD, settings=Query(AWKWARD), verdicts=[verdict(1, AWKWARD)]))
    assert await store.read_revision(AWKWARD) == 10
    assert await store.read_verdict(AWKWARD, "v1") == verdict(1, AWKWARD)
    assert await store.read_verdict(AWKWARD, "v2") is None
    await store.delete_collection(AWKWARD)
    assert await store.find_item(AWKWARD, "item-2") is None
    assert await store.find_item(AWKWARD, "") is None


async def test_the_verdicts_on_an_item_are_found_among_many(store: Any) -> None:
    assert await store.find_verdicts(AWKWARD, AWKWARD) == []
    on_it = [replace(verdict(n, AWKWARD), item_id=AWKWARD) for n in range(3)]
    others = [replace(verdict(n, AWKWARD), analyst=AWKWARD) for n in range(3, 2500)]
    await store.save_query(change(AWKWARD, verdicts=[*others, *on_it]))
    found = await store.find_verdicts(AWKWARD, AWKWARD)
    assert sorted(found, key=lambda one: one.verdict_id) == on_it
    assert await store.find_verdicts(AWKWARD, "item-7") == [others[4]]
    assert await store.find_verdicts(AWKWARD, "none") == []


async def test_the_last_snapshot_under_a_name_is_kept_and_a_wipe_takes_it(store: Any) -> None:
    assert await store.read_snapshot(AWKWARD, "inverse:0.9") is None
    await store.save_snapshot(AWKWARD, "inverse:0.9", b"\0one")
    await store.save_snapshot(AWKWARD, "inverse:0.9", b"two\xff")
    assert await store.read_snapshot(AWKWARD, "inverse:0.9") == b"two\xff"
    assert await store.read_snapshot(AWKWARD, "inverse:0.8") is None
    assert await store.read_snapshot("mail", "inverse:0.9") is None
    await store.wipe()
    assert await store.read_snapshot(AWKWARD, "inverse:0.9") is None


async def test_settings_that_are_out_of_range_today_come_back_as_they_were_taken(store: Any) -> None:
    prior = Prior(weight=1e-20, correlation=0.99999, participants={"ann": 1e-300})
    await store.save_query(change(settings=Query("q", prior=prior)))
    stored = await store.load_query("q")
    assert stored.settings.prior == prior


async def test_items_are_appended_once_in_order_with_one_answer_each(store: Any) -> None:
    known, changed = item(1), item(1, recipient="eve")
    first = await store.append_items("mail", [item(1), item(2)])
    second = await store.append_items("mail", [known, item(3), changed, item(3)])
    assert set(first) <= {Appended.ADDED, Appended.KNOWN}  # known, where the answer to a first try was lost
    assert second[0] is Appended.KNOWN
    assert second[1] in {Appended.ADDED, Appended.KNOWN}
    assert second[2:] == [Appended.CONFLICT, Appended.KNOWN]
    assert await store.read_items("mail", 0, limit=10) == [item(1), item(2), item(3)]
    assert await store.item_count("mail") == await store.entry_count("mail") == 3


async def test_what_is_said_of_an_item_later_becomes_an_entry_with_all_that_is_known(store: Any) -> None:
    labels = (("box", '"sent"'), ("read", "true"), ("size", "3"))
    first = replace(item(1), sent_at=-5, labels=labels[:1], text_at=RecordPlace("ef", 1, 7))
    more = replace(item(1), sent_at=3, uri="mail:\U0001f98a", labels=labels[1:], subject_at=RecordPlace("ab", 0, 2))
    gone = Withdrawal("item-1", "mail")
    both = replace(first, uri=more.uri, labels=labels, subject_at=more.subject_at)
    first_known = await store.append_items("mail", [item(2), first, item(2)])
    assert first_known[2] is Appended.KNOWN
    await store.append_items("mail", [more, item(1), more])
    assert await store.append_items("mail", [item(1), first, more, both]) == [Appended.KNOWN] * 4
    await store.append_items("mail", [gone])
    assert await store.append_items("mail", [more, gone]) == [Appended.KNOWN] * 2
    assert (await store.append_items("mail", [item(1, recipient="eve")])) == [Appended.CONFLICT]
    entries = [item(2), first, both, replace(both, withdrawn=True)]
    assert await store.read_items("mail", 0, limit=10) == entries
    assert await store.find_item("mail", "item-1") == entries[-1]
    assert (await store.entry_count("mail"), await store.item_count("mail")) == (4, 2)


async def test_an_item_may_be_withdrawn_before_it_comes(store: Any) -> None:
    gone = Withdrawal("item-1", "mail")
    await store.append_items("mail", [gone])
    assert await store.append_items("mail", [gone]) == [Appended.KNOWN]
    assert await store.find_item("mail", "item-1") == gone
    assert await store.item_count("mail") == 1
    answers = await store.append_items("mail", [item(1), item(1, recipient="eve"), gone])
    assert answers[0] in {Appended.ADDED, Appended.KNOWN}
    assert answers[1:] == [Appended.CONFLICT, Appended.KNOWN]
    assert await store.read_items("mail", 0, limit=9) == [gone, replace(item(1), withdrawn=True)]


async def test_several_writers_lose_nothing_that_any_of_them_says(store: Any) -> None:
    """Each says something else of the same items, all at once, and each again."""
    said = [
        [replace(item(n), labels=((f"{writer:02}", "1"),), sent_at=writer) for n in range(3)] for writer in range(8)
    ]
    await asyncio.gather(*(store.append_items("mail", some) for some in said + said))
    labels = tuple((f"{writer:02}", "1") for writer in range(8))
    for n in range(3):
        assert await store.find_item("mail", f"item-{n}") == replace(item(n), labels=labels, sent_at=0)
    assert await store.item_count("mail") == 3


async def test_an_item_without_roles_is_not_the_same_as_one_with(store: Any) -> None:
    plain = Item("i", "mail", None, ("ann", "bo"))
    assert (await store.append_items("mail", [plain, Item("i", "mail", "ann", ("bo",))]))[1] is Appended.CONFLICT
    assert await store.read_items("mail", 0, limit=1) == [plain]


async def test_many_items_at_once(store: Any) -> None:
    items = [item(n) for n in range(1203)]
    await store.append_items("mail", items)
    assert await store.read_items("mail", 0, limit=5000) == items
    assert await store.read_items("mail", 1000, limit=100) == items[1000:1100]


async def test_collections_are_apart(store: Any) -> None:
    await store.append_items("mail", [item(1)])
    await store.append_items(AWKWARD, [item(2, AWKWARD)])
    assert await store.read_items(AWKWARD, 0, limit=9) == [item(2, AWKWARD)]
    assert await store.find_item(AWKWARD, "item-2") == item(2, AWKWARD)
    assert await store.find_item("mail", "item-2") is None
    assert await store.item_count("nothing") == 0


async def test_reading_waits_for_an_item(store: Any) -> None:
    await store.append_items("mail", [item(1)])
    reading = asyncio.create_task(store.read_items("mail", 1, limit=10, wait=30))
    # Others are served while a reader waits.
    assert await store.item_count("mail") == 1
    assert await store.append_items("mail", [item(2)])
    assert await reading == [item(2)]


async def test_reading_gives_up_after_a_while(store: Any) -> None:
    assert await store.read_items("mail", 0, limit=10, wait=0.02) == []


async def test_a_query_is_loaded_as_it_was_saved(store: Any) -> None:
    settings = Query(
        AWKWARD,
        collection="mail",
        prior=Prior(mean=0.125, participants={"ann": 0.9}),
        policy=Policy("thompson", seed=7),
        status=Status.PAUSED,
    )
    verdicts = [verdict(n, AWKWARD) for n in range(3)]
    assert await store.load_query(AWKWARD) is None
    await store.save_query(change(AWKWARD, settings=settings, verdicts=verdicts))
    loaded = await store.load_query(AWKWARD)
    assert loaded.settings == settings
    assert (loaded.partition, loaded.revision, loaded.position) == (3, 10, Position(5, 7, 2))
    assert sorted(loaded.verdicts, key=lambda v: v.verdict_id) == verdicts
    assert await store.read_ranking(AWKWARD) == b'{"revision":10}'
    assert await store.read_ranking("other") is None


async def test_heads_are_what_is_saved_but_for_verdicts(store: Any) -> None:
    await store.save_query(change(AWKWARD, settings=Query(AWKWARD, top=3), verdicts=[verdict(1, AWKWARD)]))
    await store.save_query(change("r", partition=1, touched=5, revision=20, unfinished=True))
    assert await store.read_heads([]) == []
    assert await store.read_heads(["r", "nobody", AWKWARD]) == [
        Head(Query("r"), 1, 20, Position(5, 7, 2), 5, unfinished=True),
        None,
        Head(Query(AWKWARD, top=3), 3, 10, Position(5, 7, 2), 1_700_000_000_000),
    ]
    loaded = await store.load_query("r")
    assert (loaded.touched, loaded.unfinished) == (5, True)
    await store.save_query(change("r", partition=1, expected=20, revision=21))
    assert not (await store.load_query("r")).unfinished
    many = [f"many-{n}" for n in range(1203)]
    assert await store.read_heads([*many, "r"]) == [None] * 1203 + await store.read_heads(["r"])


async def test_a_second_save_adds_to_the_first(store: Any) -> None:
    await store.save_query(change(verdicts=[verdict(1)]))
    await store.save_query(
        change(expected=10, revision=11, settings=None, verdicts=[verdict(2)], position=Position(5, 9, 4))
    )
    loaded = await store.load_query("q")
    assert loaded.settings == Query("q")
    assert {v.verdict_id for v in loaded.verdicts} == {"v1", "v2"}
    assert (loaded.revision, loaded.position) == (11, Position(5, 9, 4))
    assert await store.read_ranking("q") == b'{"revision":11}'


async def test_tables_are_patched_where_rows_changed(store: Any) -> None:
    assert await store.read_tables("q") is None
    await store.save_query(change(tables=tables(rows([0, 700, 2]), rows([1], first=1.0))))
    people = rows([0, 2, 6, 3, NOBODY], first=10.0, place=[0, 2, 4, 3, 1])
    later = tables(people, rows([0], first=9.0, place=[1]), 0.75, size=Size(900, 80))
    await store.save_query(change(expected=10, revision=11, tables=later))
    read = await store.read_tables("q")
    np.testing.assert_array_equal(read.participants.index, [0, 2, 3, 6])
    expected = [[10, 11, 12], [13, 14, 15], [19, 20, 21], [16, 17, 18]]
    np.testing.assert_array_equal(read.participants.rows, expected)
    np.testing.assert_array_equal(read.edges.index, [1, 0])
    np.testing.assert_array_equal(read.edges.rows, [[1, 2, 3], [9, 10, 11]])
    assert (read.prior, read.size) == (Prior(), Size(900, 80))
    assert (read.common, read.discrepancy) == (COMMON, 0.75)


async def test_tables_that_are_whole_leave_nothing_of_what_was_there(store: Any) -> None:
    await store.save_query(change(tables=tables(rows([0, 1, 2]), rows([0, 1], first=1.0))))
    whole = tables(rows([5, 1], first=10.0), rows([0], first=9.0), whole=True)
    await store.save_query(change(expected=10, revision=11, tables=whole))
    read = await store.read_tables("q")
    np.testing.assert_array_equal(read.participants.index, [5, 1])
    np.testing.assert_array_equal(read.participants.rows, [[10, 11, 12], [13, 14, 15]])
    np.testing.assert_array_equal(read.edges.rows, [[9, 10, 11]])


async def test_tables_are_read_with_the_prior_that_they_were_written_with(store: Any) -> None:
    await store.save_query(change())
    other = Prior(mean=0.3, participants={"ann": 0.9})
    await store.save_query(change(expected=10, revision=11, settings=Query("q", prior=other)))
    await store.save_query(change(expected=11, revision=12, settings=None))
    assert (await store.read_tables("q")).prior == other


async def test_tables_without_rows_have_their_columns(store: Any) -> None:
    await store.save_query(change())
    read = await store.read_tables("q")
    assert (read.participants.rows.shape, read.edges.rows.shape) == ((0, 3), (0, 3))


async def test_a_stale_writer_is_fenced_and_writes_nothing(store: Any) -> None:
    await store.save_query(change())
    await store.save_query(change(expected=10, revision=20))
    zombie = change(
        expected=10, revision=15, verdicts=[verdict(9)], ranking=b"zombie", position=Position(50, 70, 20),
        settings=Query("q", top=1), tables=tables(rows([0]), rows([0]), 0.75),
    )  # fmt: skip
    with pytest.raises(Fenced) as refused:
        await store.save_query(zombie)
    assert (refused.value.expected, refused.value.stored) == (10, 20)
    loaded = await store.load_query("q")
    assert (loaded.revision, loaded.verdicts, loaded.position) == (20, (), Position(5, 7, 2))
    assert loaded.settings == Query("q")
    assert await store.read_ranking("q") == b'{"revision":20}'
    read = await store.read_tables("q")
    assert (len(read.edges.index), len(read.participants.index), read.discrepancy) == (0, 0, 0.25)


async def test_a_writer_that_missed_the_first_save_is_fenced(store: Any) -> None:
    await store.save_query(change())
    with pytest.raises(Fenced):
        await store.save_query(change(revision=11))


async def test_a_writer_whose_query_is_gone_is_fenced(store: Any) -> None:
    with pytest.raises(Fenced) as refused:
        await store.save_query(change(expected=10, revision=11))
    assert refused.value.stored == 0
    assert await store.load_query("q") is None


async def test_the_same_save_again_succeeds_and_another_with_its_revision_does_not(store: Any) -> None:
    mine = change(verdicts=[verdict(1)])
    await store.save_query(mine)
    await store.save_query(mine)
    with pytest.raises(Fenced):
        await store.save_query(replace(mine, verdicts=[verdict(2)]))
    assert {v.verdict_id for v in (await store.load_query("q")).verdicts} == {"v1"}


async def test_offsets_never_go_back(store: Any) -> None:
    await store.save_query(change(position=Position(5, 100, 2)))
    await store.save_query(change(expected=10, revision=11, position=Position(6, 99, 3)))
    assert (await store.load_query("q")).position == Position(6, 100, 3)


async def test_of_two_writers_at_once_one_wins(store: Any) -> None:
    await store.save_query(change())
    rivals = [change(expected=10, revision=20 + n, verdicts=[verdict(n)]) for n in range(8)]
    results = await asyncio.gather(*map(store.save_query, rivals), return_exceptions=True)
    assert sorted(type(r).__name__ for r in results) == ["Fenced"] * 7 + ["bool"]
    winner = results.index(True)
    loaded = await store.load_query("q")
    assert (loaded.revision, loaded.verdicts) == (20 + winner, (verdict(winner),))


async def test_queries_are_found_by_partition(store: Any) -> None:
    await store.save_query(change("a", partition=0))
    await store.save_query(change(AWKWARD, partition=0))
    await store.save_query(change("b", partition=11))
    assert await store.query_ids(0) == {"a", AWKWARD}
    assert await store.query_ids(11) == {"b"}
    assert await store.query_ids(5) == set()
    assert await store.query_ids() == {"a", "b", AWKWARD}


async def test_a_query_without_settings_cannot_be_saved_first(store: Any) -> None:
    with pytest.raises(ValueError, match="lacks its settings"):
        await store.save_query(change(settings=None))
    assert await store.query_ids() == set()


async def test_how_far_topics_are_moves_from_what_is_known_of_it(store: Any) -> None:
    assert await store.read_up_to([]) == await store.read_up_to(["item/0"]) == {}
    assert await store.move_up_to({}) == await store.move_up_to({"item/0": (-1, 7), "query/1": (-1, 0)}) == {}
    assert await store.move_up_to({"item/0": (7, 9), "query/1": (3, 4), "lease/2": (5, 6)}) == {
        "query/1": 0,
        "lease/2": -1,
    }
    assert await store.move_up_to({"item/0": (9, 9), "lease/2": (-1, -1)}) == {}
    assert await store.read_up_to(["item/0", "query/1", "lease/2"]) == {"item/0": 9, "query/1": 0}
    await store.wipe()
    assert await store.read_up_to(["item/0"]) == {}


async def test_what_was_written_can_be_looked_for(store: Any) -> None:
    assert await store.read_revisions([]) == await store.read_counts([]) == []
    assert await store.read_revisions([AWKWARD]) == [None]
    await store.save_query(change(AWKWARD, revision=7))
    assert await store.read_revisions(["b", AWKWARD]) == [None, 7]
    first, second, other = [await store.count(name) for name in ("query/0", "query/0", "item/3")]
    assert 0 < first < second  # by more than 1 where an answer was lost
    assert await store.read_counts(["item/3", "query/0", "query/1"]) == [other, second, 0]
    await store.move_up_to({"item/0": (-1, 7)})
    assert await store.read_up_to() == {"item/0": 7}
    await store.wipe()
    assert await store.read_counts(["query/0"]) == [0]


async def test_claims_of_a_query_are_not_closed_before_it_is_saved(store: Any) -> None:
    await store.let_claim(AWKWARD, False)
    assert await store.read_heads([AWKWARD]) == [None]
    assert await store.load_query(AWKWARD) is None
    await store.save_query(change(AWKWARD, revision=7))
    assert await store.read_revision(AWKWARD) == 7


async def test_a_query_says_in_which_history_it_was_saved_and_has_its_cursor_lowered(store: Any) -> None:
    await store.lower_cursor(AWKWARD, 3)
    assert await store.load_query(AWKWARD) is None
    position = Position(1, 2, 9, 4, history=(1 << 53) - 1)
    await store.save_query(change(AWKWARD, position=position))
    await store.lower_cursor(AWKWARD, 3)
    stored = await store.load_query(AWKWARD)
    assert stored.position == replace(position, cursor=3)


async def test_what_was_passed_over_stays_noted_where_the_store_has_gone_back(store: Any) -> None:
    await store.save_query(change(AWKWARD, revision=7))
    await store.pass_over(AWKWARD, Spans(verdicts=Span(1, 3)))
    note = await store.read_note(AWKWARD)
    await store.take_up(AWKWARD, 0, note, revision=8)
    assert await store.read_note(AWKWARD) == note
    await store.take_up(AWKWARD, 0, note, revision=7)
    assert not (await store.read_note(AWKWARD)).passed


async def test_the_first_generation_stands(store: Any) -> None:
    assert await store.generation() is None
    assert await store.begin("one") == "one"
    assert await store.begin("two") == "one"
    assert await store.begin("two", instead_of="three") == "one"
    assert await store.begin("two", instead_of="one") == "two"
    assert await store.begin("one", instead_of="two") == "one"
    assert await store.generation() == "one"
    await store.end()
    await store.end()
    assert await store.generation() is None
    assert await store.begin("three") == "three"


async def test_wiping_leaves_nothing(store: Any) -> None:
    await store.begin("one")
    await store.append_items("mail", [item(1)])
    for n in range(300):
        await store.save_query(change(f"q{n}", verdicts=[verdict(1, f"q{n}")], tables=tables(edges=rows([0]))))
    assert await store.hold_settings("q", -1, "one", 60) is Hold.OURS
    await store.wipe()
    assert await store.generation() is None
    assert await store.query_ids() == set()
    assert await store.item_count("mail") == 0
    assert await store.hold_settings("q", -1, "two", 60) is Hold.OURS
    assert await store.load_query("q0") is None
    await store.wipe()


async def test_it_answers(store: Any) -> None:
    await store.ping()


async def test_one_change_of_settings_at_a_time(store: Any) -> None:
    assert await store.hold_settings(AWKWARD, 4, "one", 60) is Hold.MOVED  # it is not there
    assert await store.hold_settings(AWKWARD, -1, "one", 60) is Hold.OURS
    assert await store.hold_settings(AWKWARD, -1, "two", 60) is Hold.TAKEN
    await store.let_go_settings(AWKWARD, "one", 4)
    assert await store.hold_settings(AWKWARD, -1, "two", 60) is Hold.TAKEN
    first = change(position=Position(queries_offset=4))
    await store.save_query(first)
    seen = first.query_id, 4
    assert await store.hold_settings(*seen, "one", 60) is Hold.OURS
    assert await store.hold_settings(*seen, "one", 60) is Hold.OURS
    assert await store.hold_settings(*seen, "two", 60) is Hold.TAKEN
    await store.let_go_settings(first.query_id, "two", None)  # which has no hold of them
    assert await store.hold_settings(*seen, "two", 60) is Hold.TAKEN
    await store.let_go_settings(first.query_id, "one", None)
    assert await store.hold_settings(*seen, "two", 60) is Hold.OURS
    await store.let_go_settings(first.query_id, "two", 7)
    again = replace(first, expected=first.revision, revision=first.revision + 1, verdicts=())
    await store.save_query(replace(again, position=Position(queries_offset=6)))
    assert await store.hold_settings(*seen, "two", 60) is Hold.MOVED
    assert await store.hold_settings(first.query_id, 6, "three", 60) is Hold.TAKEN
    last = replace(again, expected=again.revision, revision=again.revision + 1)
    await store.save_query(replace(last, position=Position(queries_offset=7)))
    assert await store.hold_settings(first.query_id, 7, "three", 0.001) is Hold.OURS
    await asyncio.sleep(0.05)
    assert await store.hold_settings(first.query_id, 7, "four", 60) is Hold.OURS


async def test_attempts_are_noted_until_they_end(store: Any) -> None:
    await store.begin_attempt(AWKWARD, "1,2 one")
    await store.begin_attempt(AWKWARD, "1,2 one")
    await store.begin_attempt(AWKWARD, "1,2 two")
    await store.begin_attempt(AWKWARD, "3,4 two")
    assert (await store.read_note(AWKWARD)).attempts == {"1,2 one", "1,2 two", "3,4 two"}
    assert (await store.read_note("another")) == Note()
    await store.end_attempts(AWKWARD, {"1,2 one", "3,4 two"})
    await store.end_attempts(AWKWARD, set())
    assert (await store.read_note(AWKWARD)).attempts == {"1,2 two"}


async def test_spans_that_are_passed_over_only_widen_until_they_are_taken_up(store: Any) -> None:
    await store.pass_over(AWKWARD, Spans(verdicts=Span(9, 10)))
    await store.pass_over(AWKWARD, Spans(verdicts=Span(100, 120), queries=Span(3, 3)))
    before = await store.read_note(AWKWARD)
    assert before.passed[:2] == (Span(3, 3), Span(9, 120))
    await store.pass_over(AWKWARD, Spans(verdicts=Span(8, 9)))
    await store.take_up(AWKWARD, 0, before)  # more was passed over since: nothing is forgotten
    note = await store.read_note(AWKWARD)
    assert note.passed[:2] == (Span(3, 3), Span(8, 120))
    await store.take_up(AWKWARD, 0, note)
    assert await store.read_note(AWKWARD) == Note()


async def test_a_query_that_is_stopped_says_why_until_it_is_released(store: Any) -> None:
    why = Quarantine("quarantined", "ü: it raised ZeroDivisionError", 1_700_000_000.25)
    await store.begin_attempt(AWKWARD, "one")
    await store.pass_over(AWKWARD, Spans(verdicts=Span(1, 2)))
    await store.quarantine(AWKWARD, 3, why)
    assert await store.quarantined() == {AWKWARD: 3}
    assert await store.read_note(AWKWARD) == Note(frozenset({"one"}), Spans(None, Span(1, 2)), why)
    await store.release(AWKWARD)
    note = await store.read_note(AWKWARD)
    assert note == Note(passed=Spans(verdicts=Span(1, 2)))
    assert await store.quarantined() == {AWKWARD: 3}  # whoever owns it has to take up what was passed over
    await store.take_up(AWKWARD, 3, note)
    assert await store.quarantined() == {}
    assert await store.read_note(AWKWARD) == Note()
    await store.quarantine("q", 1, why)
    await store.wipe()
    assert await store.quarantined() == {}
    assert await store.read_note(AWKWARD) == Note()


async def test_where_the_verdicts_of_unknown_queries_lie_is_noted_with_bounded_room(store: Any) -> None:
    for number in range(2):
        await store.note_unknown(1, f"{AWKWARD}{number}", Spans(verdicts=Span(number, number + 5)), room=2)
    await store.note_unknown(1, f"{AWKWARD}0", Spans(verdicts=Span(30, 31), leases=Span(7, 7)), room=2)
    assert await store.read_unknown(1, f"{AWKWARD}0") == Spans(verdicts=Span(0, 31), leases=Span(7, 7))
    assert await store.read_unknown(1, "third") == NOWHERE
    await store.note_unknown(1, "third", Spans(verdicts=Span(40, 40)), room=2)
    await store.note_unknown(1, "fourth", Spans(verdicts=Span(50, 50)), room=2)
    rest = Spans(verdicts=Span(40, 50))
    # There is no room for these by name: they may lie anywhere among the rest, and so may those of any other.
    assert await store.read_unknown(1, "third") == await store.read_unknown(1, "fifth") == rest
    assert await store.read_unknown(1, f"{AWKWARD}1") == Spans(verdicts=Span(1, 50))
    assert await store.read_unknown(2, "third") == NOWHERE
    assert await store.unknown() == {f"{AWKWARD}0": 1, f"{AWKWARD}1": 1}
    await store.take_up(f"{AWKWARD}0", 1, Note())
    assert await store.unknown() == {f"{AWKWARD}1": 1}
    assert await store.query_ids() == set()


async def test_of_a_query_that_is_deleted_only_that_is_left_and_every_other_writer_is_fenced(store: Any) -> None:
    many = rows(list(range(4)))
    await store.save_query(change(AWKWARD, verdicts=[verdict(1, AWKWARD)], tables=tables(many, many)))
    await store.pass_over(AWKWARD, Spans(verdicts=Span(1, 2)))
    await store.begin_attempt(AWKWARD, "one")
    await store.quarantine(AWKWARD, 3, Quarantine("quarantined", "it raised", 1.0))
    await store.note_unknown(3, AWKWARD, Spans(verdicts=Span(1, 2)), room=9)
    elsewhere = await store.delete_query(AWKWARD, 4, revision=20, read=Position(1))
    assert elsewhere == Deletion(3, 10)
    assert (await store.load_query(AWKWARD)).verdicts == (verdict(1, AWKWARD),)
    left = await store.delete_query(AWKWARD, 3, revision=5, read=Position(4, 9, leases_offset=2))
    assert left.partition == 3
    assert left.revision > 10
    stored = await store.load_query(AWKWARD)
    assert stored.settings == Query(AWKWARD, status=Status.DELETED)
    assert (stored.partition, stored.revision, stored.verdicts) == (3, left.revision, ())
    assert stored.position == left.position == Position(5, 9, 0, 2)
    assert await store.read_ranking(AWKWARD) is None
    assert await store.read_tables(AWKWARD) is None
    assert await store.read_note(AWKWARD) == Note()
    assert await store.quarantined() == await store.unknown() == {}
    assert await store.query_ids(3) == {AWKWARD}
    assert await store.query_ids(4) == set()
    with pytest.raises(Fenced):
        await store.save_query(change(AWKWARD, expected=10, revision=11))
    await store.note_withdrawn(AWKWARD)
    await store.note_withdrawn("nobody opened it")
    heads = await store.read_heads([AWKWARD, "nobody opened it"])
    assert [head and head.withdrawn for head in heads] == [True, None]
    again = await store.delete_query(AWKWARD, 3, revision=5, read=Position(4))
    assert again.revision > left.revision
    (head,) = await store.read_heads([AWKWARD])
    assert not head.withdrawn
    unheard = await store.delete_query("never opened", 1, revision=30, read=Position(0))
    assert (unheard.partition, unheard.revision >= 30) == (1, True)


async def test_a_collection_that_is_deleted_takes_nothing_any_more(store: Any) -> None:
    await store.append_items(AWKWARD, [item(1), item(2)])
    await store.append_items("mail", [item(1)])
    await store.save_snapshot(AWKWARD, "inverse:0.9:1e-05", b"one")
    await store.save_snapshot("mail", "inverse:0.9:1e-05", b"two")
    await store.delete_collection(AWKWARD)
    await store.delete_collection(AWKWARD)
    assert await store.append_items(AWKWARD, [item(1), item(3)]) == [Appended.DELETED] * 2
    assert await store.read_items(AWKWARD, 0, limit=10) == []
    assert await store.item_count(AWKWARD) == 0
    assert await store.entry_count(AWKWARD) == 0
    assert await store.find_item(AWKWARD, "item-1") is None
    assert await store.read_snapshot(AWKWARD, "inverse:0.9:1e-05") is None
    assert await store.is_deleted(AWKWARD)
    assert not await store.is_deleted("mail")
    assert await store.item_count("mail") == 1
    assert await store.read_snapshot("mail", "inverse:0.9:1e-05") == b"two"
