"""What the store's mark says of the topics that it was made from."""

import pytest

from haystream_service.worker.marks import check_mark, described, mark
from haystream_service.worker.shared import StateLost, TopicsGrown


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
