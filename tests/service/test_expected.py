"""For which queries a verdict is expected, and who takes items in because of that."""

import pytest

from haystream_service.worker.expected import EXPECTED_SECONDS, Expected


def test_one_is_expected_where_the_last_two_came_one_soon_after_the_other() -> None:
    expected = Expected()
    expected.came("once", 10.0)
    expected.came("seldom", 10.0 - 2 * EXPECTED_SECONDS)
    expected.came("seldom", 10.0)
    for when in (8.0, 10.0 - EXPECTED_SECONDS / 2, 10.0):
        expected.came("often", when)
    assert list(expected.queries(10.0)) == ["often"]
    assert list(expected.queries(10.0 + EXPECTED_SECONDS / 2)) == ["often"]
    assert list(expected.queries(10.0 + 0.75 * EXPECTED_SECONDS)) == []


def test_who_is_forgotten_begins_anew() -> None:
    expected = Expected()
    for name in ("left", "stays"):
        expected.came(name, 1.0)
        expected.came(name, 1.1)
    expected.forget("left")
    expected.forget("never-there")
    expected.came("left", 1.2)
    assert list(expected.queries(1.2)) == ["stays"]


@pytest.mark.parametrize("later", [EXPECTED_SECONDS, 2 * EXPECTED_SECONDS])
def test_those_of_long_ago_take_no_memory(later: float) -> None:
    expected = Expected()
    for number in range(1000):
        expected.came(f"q{number}", 1.0)
    expected.came("now", 1.0 + later)
    list(expected.queries(1.0 + later))
    assert len(expected) == (1001 if later <= EXPECTED_SECONDS else 1)
