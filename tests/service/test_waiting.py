"""How long verdicts wait for an answer, and how many wait too long: every one that does is counted once."""

import pytest
from aiokafka import TopicPartition
from prometheus_client import CollectorRegistry

from haystream_service.metrics import OBJECTIVE_SECONDS, Metrics
from haystream_service.worker.waiting import Waiting

ONE, TWO = TopicPartition("verdicts", 0), TopicPartition("verdicts", 1)


class Scene:
    """A clock that is moved by hand, and what the metrics show."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.registry = CollectorRegistry()
        self.waiting = Waiting(Metrics(self.registry, labelled_queries=0), self)

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    @property
    def age(self) -> float | None:
        return self.registry.get_sample_value("haystream_oldest_unprocessed_verdict_age_seconds")

    @property
    def late(self) -> float | None:
        return self.registry.get_sample_value("haystream_verdicts_late_total")


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_nobody_waits(scene: Scene) -> None:
    scene.waiting.look(ONE, 0, 0)
    scene.waiting.look(TWO, 7, 7)
    assert (scene.age, scene.late) == (0, 0)


def test_the_oldest_counts_from_its_timestamp_whichever_partition_it_is_of(scene: Scene) -> None:
    first = scene.waiting.came(ONE, 5, 990.0)
    scene.waiting.came(TWO, 3, 993.0)
    scene.waiting.came(ONE, 6, 995.0)
    assert scene.age == 10
    scene.time = 1001.0
    first()
    assert scene.age == 8
    first()
    assert scene.age == 8
    scene.waiting.forget(TWO)
    assert scene.age == 6


def test_a_timestamp_of_the_future_is_no_negative_age(scene: Scene) -> None:
    scene.waiting.came(ONE, 0, 2000.0)
    assert scene.age == 0


def test_what_is_not_fetched_counts_from_when_it_was_seen(scene: Scene) -> None:
    scene.waiting.look(ONE, 4, 6)
    scene.time += 30
    scene.waiting.look(ONE, 4, 6)
    assert scene.age == 30
    answered = scene.waiting.came(ONE, 4, 960.0)
    assert scene.age == 70
    answered()
    scene.waiting.look(ONE, 5, 6)
    scene.time += 1
    assert scene.age == 1
    scene.waiting.look(ONE, 6, 6)  # what was left is no record
    assert scene.age == 0


def test_an_answer_is_in_time_up_to_the_objective(scene: Scene) -> None:
    in_time, late = (scene.waiting.came(ONE, offset, scene.time) for offset in (0, 1))
    scene.time += OBJECTIVE_SECONDS
    in_time()
    scene.time += 0.001
    late()
    assert scene.late == 1


def test_one_that_is_never_answered_is_counted_once_and_so_is_one_that_is_answered_at_last(scene: Scene) -> None:
    scene.waiting.look(ONE, 0, 0)
    answered = scene.waiting.came(ONE, 0, scene.time)
    scene.waiting.came(ONE, 1, scene.time)
    scene.waiting.look(ONE, 0, 2)  # they may have come a moment ago
    assert scene.late == 0
    for _ in range(3):
        scene.time += 1
        scene.waiting.look(ONE, 0, 2)
        assert scene.late == 2
    answered()
    assert scene.late == 2


def test_those_that_nobody_fetches_are_counted_once_also_when_they_are_fetched_at_last(scene: Scene) -> None:
    scene.waiting.look(ONE, 10, 14)
    scene.time += 1
    scene.waiting.look(ONE, 10, 15)
    assert scene.late == 4
    answers = [scene.waiting.came(ONE, offset, 999.0) for offset in range(10, 15)]
    scene.time += 1
    for answered in answers:
        answered()
    assert scene.late == 5


def test_what_was_answered_in_time_between_two_looks_is_not_late(scene: Scene) -> None:
    for second in range(5):
        for offset in range(10 * second, 10 * second + 10):
            answered = scene.waiting.came(ONE, offset, scene.time)
            scene.time += 0.1
            answered()
        scene.waiting.look(ONE, 10 * second + 10, 10 * second + 10)
    assert scene.late == 0


def test_one_answered_out_of_order_is_not_late_for_those_before_it(scene: Scene) -> None:
    scene.waiting.look(ONE, 0, 0)
    scene.waiting.came(ONE, 0, scene.time)
    scene.waiting.came(ONE, 1, scene.time)()
    scene.waiting.look(ONE, 0, 2)
    scene.time += 1
    scene.waiting.look(ONE, 0, 2)
    assert scene.late == 1


def test_a_partition_that_is_taken_away_tells_nothing_more(scene: Scene) -> None:
    answered = scene.waiting.came(ONE, 0, scene.time)
    scene.waiting.forget(ONE)
    scene.time += 10
    answered()
    assert scene.age == 0
