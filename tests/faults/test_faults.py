"""Whatever breaks under two workers, what is left is what `replay` makes of the log: one assertion for all faults.

`--faults all` tries every one, without it a sample of each sort.
"""

import pytest
from support.arena import Struck

pytestmark = [pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]


def test_what_is_left_is_what_replay_says(struck: Struck) -> None:
    if struck.error is not None:
        raise struck.error


def test_readiness_tells_the_truth(struck: Struck) -> None:
    assert struck.lies == []


def test_the_newest_ranking_is_the_last(struck: Struck) -> None:
    assert struck.stale == []
