"""Who opens after the collection has grown is a twin of one that has taken that in, once for all."""

from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from support.dense import TIGHT, assert_agrees
from support.histories import MODELS, item, line, verdict

from haystream.engines.local.changes.growth import Growth
from haystream.engines.local.engine import LocalEngine
from haystream.errors import Code, QueryFailed
from haystream.events import ModelName, Outcome, Prior, Query, Withdrawal
from haystream.fold import State, step
from haystream.memory import copies
from haystream.memory.copies import Template, bring_pages
from haystream.models import DEFAULT_PRIORS
from haystream.query.originals import Original
from haystream.report import report


@pytest.fixture(params=["told", "compared", "no memory without address"])
def pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How it is found out which pages of a copy have been written to."""
    if request.param == "compared":
        monkeypatch.setattr(copies, "PAGE_MAP", "/proc/self/nothing")
        monkeypatch.setattr(copies, "_tells_own_pages", lambda: False)
    if request.param == "no memory without address":
        monkeypatch.delattr("os.memfd_create", raising=False)
    return str(request.param)


def test_a_copy_becomes_as_another_that_was_written_to(pages: str) -> None:
    arrays = [np.arange(5000.0), np.zeros(70_000, np.uint8), np.arange(24, dtype=np.int32).reshape(2, 3, 4)]
    template = Template(tuple(arrays))
    written, copy, untouched = (template.copy() for _ in range(3))
    for array in arrays, written:
        array[0][[3, 4999]], array[1][66_000:], array[2][1, 2, 3] = 7.0, 5, 70
    assert bring_pages(written[1], copy[0]) == (pages != "no memory without address")
    if pages != "no memory without address":
        for got, array in zip(copy, arrays, strict=True):
            np.testing.assert_array_equal(got, array)
    copy[0][:] = -1.0
    np.testing.assert_array_equal(written[0], arrays[0])
    assert untouched[0][3] == 3.0


def test_only_pages_that_were_written_to_are_brought() -> None:
    template = Template((np.arange(100_000.0),))
    (written,), (copy,) = template.copy(), template.copy()
    written[:512] += 1.0
    written.sum()
    assert bring_pages(written, copy)
    assert np.count_nonzero(copies._own_pages(copies._memory_of(copy))) == 1


def test_nothing_is_brought_to_the_copy_of_another() -> None:
    (one,), (other,) = (Template((np.zeros(5000),)).copy() for _ in range(2))
    one[0] = 1.0
    assert not bring_pages(one, other)
    assert not bring_pages(np.zeros(5000), one)
    assert not bring_pages(one, np.zeros(5000))
    assert other[0] == 0.0


@pytest.fixture
def state() -> Iterator[State]:
    """Some items between people in a line, and a query; the original is not made anew as that grows."""
    state = State(tolerance=TIGHT)
    for each in line(300):
        step(state, each)
    step(state, Query("first"))
    state.queries["first"].finish()
    with mock.patch("haystream.query.originals.MOST_MOVED", np.inf):
        yield state


def grow(state: State, begin: int, end: int) -> None:
    """New pairs, near a hub and far from it; one in four with somebody new, and some of the old ones withdrawn."""
    for number in range(begin, end):
        other = "hub" if number % 3 == 0 else f"p{7 * number % 290:03d}"
        step(state, item(f"new{number}", f"new{number}" if number % 4 == 0 else f"p{number:03d}", other))
        if number % 5 == 0:
            step(state, Withdrawal(f"i{2 * number}", "default"))


@pytest.mark.usefixtures("pages")
@pytest.mark.parametrize("model", MODELS)
def test_who_opens_amid_growth_equals_one_that_was_there(model: ModelName, state: State) -> None:
    prior = DEFAULT_PRIORS[model]
    listed = replace(prior, participants={"p010": 0.9, "new4": 0.8, "hub": 0.02 if model == "relevance" else 0.3})
    names = []
    for begin, end, settings in (
        (0, 3, prior),
        (3, 12, listed),
        (12, 12, prior),
        (12, 60, prior),
        (60, 90, listed),
    ):
        grow(state, begin, end)
        names.append(f"q{begin}-{end}")
        step(state, Query(names[-1], prior=settings))
        state.queries[names[-1]].ranking()
    for number, name in enumerate(names):
        for place, outcome in ((4 + number, Outcome.RELEVANT), (41 + number, Outcome.IRRELEVANT)):
            step(state, replace(verdict(place, f"i{place}", outcome), query_id=name))
        state.queries[name].finish()
        assert_agrees(state.queries[name])


def test_growth_is_followed_once_for_all_who_open(state: State) -> None:
    grow(state, 0, 4)
    with mock.patch.object(Growth, "follow", autospec=True, side_effect=Growth.follow) as followed:
        for number in range(3):
            step(state, Query(f"q{number}"))
            state.queries[f"q{number}"].ranking()
        assert followed.call_count == 1
        grow(state, 4, 6)
        step(state, Query("later"))
        state.queries["later"].ranking()
        assert followed.call_count == 2


def test_what_one_of_them_learns_no_other_knows(state: State) -> None:
    grow(state, 0, 8)
    for name in ("one", "other"):
        step(state, Query(name))
        state.queries[name].settle()
    before = report(state.queries["other"])
    for number in range(8):
        step(state, replace(verdict(number, f"new{number}", Outcome.RELEVANT), query_id="one"))
    state.queries["one"].finish()
    assert report(state.queries["other"]) == before
    step(state, Query("next"))
    state.queries["next"].finish()
    for name in ("one", "other", "next"):
        assert_agrees(state.queries[name])


def test_what_comes_for_nobody_yet_is_taken_in_ahead(state: State) -> None:
    kept = state.queries["first"].kept_original()
    assert kept is not None
    with mock.patch("haystream.query.originals.MOST_ITEMS", 64):
        assert not kept.lags
        grow(state, 0, 8)
        state.queries["first"].finish()
        assert kept.lags
        kept.lead()
        assert not kept.lags
    with mock.patch.object(Growth, "follow", autospec=True, side_effect=Growth.follow) as followed:
        step(state, Query("late"))
        state.queries["late"].ranking()
        followed.assert_not_called()
    assert not kept.lags
    state.queries["late"].finish()
    assert_agrees(state.queries["late"])


def test_nobody_follows_what_is_so_much_that_who_opens_waits_for_a_newer_one(state: State) -> None:
    kept = state.queries["first"].kept_original()
    assert kept is not None
    with mock.patch("haystream.query.originals.MOST_ITEMS", 2):
        grow(state, 0, 15)
        assert kept.due
        assert not kept.lags


def test_one_that_has_failed_leads_nobody(state: State) -> None:
    grow(state, 0, 4)
    failure = QueryFailed(Code.TOO_MUCH_WORK, "too many steps")
    step(state, Query("unlucky"))
    with mock.patch.object(LocalEngine, "follow", side_effect=failure), pytest.raises(QueryFailed):
        state.queries["unlucky"].settle()
    (original,) = state.collection("default").shared[Original].values()
    assert original._leader is None
    step(state, Query("lucky", prior=Prior()))
    state.queries["lucky"].finish()
    assert_agrees(state.queries["lucky"])
