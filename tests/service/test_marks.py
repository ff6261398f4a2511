"""What the store's mark says: of the topics that it was made from, and of the version that writes into it."""

import pytest
from support.world import Process, World

from haystream_service.store import marks
from haystream_service.store.marks import (
    StateLost,
    StateNewer,
    TopicsGrown,
    check_kept,
    check_mark,
    described,
    mark,
)


def test_marks_differ_and_fit_the_topics_that_they_were_made_for() -> None:
    topics = described("a.queries", 8)
    assert mark(topics) != mark(topics)
    check_mark(mark(topics), topics)
    check_mark(mark(""), topics)  # of a version before, or of a transport without topics
    check_mark("0123456789abcdef", topics)
    check_mark(mark(topics), "")


def test_other_topics_and_other_partitions_are_told_apart() -> None:
    made = mark(described("a.queries", 8))
    with pytest.raises(TopicsGrown, match=r"a\.queries had 8 partitions and has 16.*haystream repartition"):
        check_mark(made, described("a.queries", 16))
    with pytest.raises(StateLost, match=r"made from a\.queries, and records come from b\.queries"):
        check_mark(made, described("b.queries", 8))


TOPICS = described("a.queries", 8)


def of_a_later_version(monkeypatch: pytest.MonkeyPatch) -> str:
    with monkeypatch.context() as later:
        later.setattr(marks, "FORMAT", marks.FORMAT + 1)
        return mark(TOPICS)


def test_what_a_later_version_wrote_is_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StateNewer, match=r"format 5, and this one reads up to 4\): run that version, or .*rebuild"):
        check_mark(of_a_later_version(monkeypatch), TOPICS)


def test_a_worker_that_runs_tells_an_emptied_store_from_one_that_a_later_version_took_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = mark(TOPICS)
    check_kept(begun, begun)
    for found in (None, mark(TOPICS), of_a_later_version(monkeypatch)):
        with pytest.raises(StateLost, match="haystream rebuild"):
            check_kept(begun, found)
    with monkeypatch.context() as later:
        later.setattr(marks, "FORMAT", marks.FORMAT + 1)
        taken_over = marks.raised(begun)
    with pytest.raises(StateNewer):
        check_kept(begun, taken_over)


@pytest.mark.asyncio
async def test_a_later_version_takes_over_and_the_earlier_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    workers = []
    for version in (1, 2):
        monkeypatch.setattr(marks, "FORMAT", version)
        workers.append(Process(world).worker)
        await workers[-1].start(topics=TOPICS)
        assert await workers[-1].store_troubles() == []
    monkeypatch.setattr(marks, "FORMAT", 1)
    [said] = await workers[0].store_troubles()
    assert "a later version of haystream" in said
    with pytest.raises(StateNewer):
        await workers[0].failed
    for worker in workers:
        await worker.close()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("version", "noted"),
    [(marks.NOTES_PROGRESS - 1, {"query/0": 7}), (marks.NOTES_PROGRESS, {})],
    ids=["before it was noted", "since it is"],
)
async def test_what_an_earlier_version_committed_is_taken_to_be_in_the_store(
    monkeypatch: pytest.MonkeyPatch, version: int, noted: dict[str, int]
) -> None:
    world = World()
    with monkeypatch.context() as then:
        then.setattr(marks, "FORMAT", version)
        await world.store.begin(mark(TOPICS))
    worker = Process(world).worker
    await worker.start(committed={"query/0": 7}, topics=TOPICS)
    assert await world.store.read_up_to(["query/0"]) == noted
    await worker.start(committed={"query/0": 9}, topics=TOPICS)
    assert await world.store.read_up_to(["query/0"]) == noted
    await worker.close()
