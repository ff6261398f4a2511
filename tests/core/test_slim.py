"""A query that gives its residuals up whenever nobody needs them is as one that has them all the time."""

import mmap
from dataclasses import replace

import numpy as np
import pytest
from core.test_local_engine import assert_sums
from support.dense import TIGHT, assert_agrees
from support.seeds import alike, seeds

from haystream.collection.collection import Collection
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE
from haystream.events import Item, ModelName, Outcome, Query, Verdict, Withdrawal
from haystream.memory.copies import Template, give_back
from haystream.memory.overlay import rows
from haystream.models import DEFAULT_PRIORS
from haystream.query.state import QueryState
from haystream.report import report

PEOPLE, AT_FIRST, EVENTS = 250, 500, 60
TOLERANCES = TIGHT, DEFAULT_TOLERANCE, 1e-2


class Twins:
    """A query that is slim whenever it can be, and one with the same facts that never is; each on a collection of
    its own, so that what one does to what queries share does not bear on the other."""

    def __init__(self, seed: int, model: ModelName, tolerance: float) -> None:
        self.rng, self.facts = np.random.default_rng(seed), 0
        self.collections = Collection("default"), Collection("default")
        for _ in range(AT_FIRST):
            self.item()
        settings = Query("q", prior=DEFAULT_PRIORS[model], top=1000)
        self.slim, self.other = (QueryState(settings, of, tolerance=tolerance) for of in self.collections)
        self.was_slim = 0

    @property
    def both(self) -> tuple[QueryState, QueryState]:
        return self.slim, self.other

    def item(self, people: int = PEOPLE) -> None:
        several = 2 if self.rng.random() < 0.7 else int(self.rng.integers(3, 6))
        names = [f"p{n}" for n in self.rng.choice(people, several, replace=False)]
        for of in self.collections:
            of.add(Item(f"i{len(of)}", "default", names[0], tuple(sorted(names[1:]))))

    def happen(self) -> None:
        self.facts += 1
        chosen, which = self.rng.random(), str(self.rng.choice(self.collections[0].item_ids))
        if chosen < 0.2:
            self.item(PEOPLE + self.facts)
        elif chosen < 0.25:
            for of in self.collections:
                of.add(Withdrawal(which, "default"))
        elif chosen < 0.3:
            for query in self.both:
                query.hold(which)
        elif chosen < 0.35:
            watched = {f"p{self.rng.integers(PEOPLE)}": 0.6 * self.slim.settings.prior.mean}
            for query in self.both:
                query.apply_settings(
                    replace(query.settings, prior=replace(query.settings.prior, participants=watched))
                )
        else:
            outcome = self.rng.choice([Outcome.RELEVANT, Outcome.IRRELEVANT, Outcome.IRRELEVANT, Outcome.RETRACTED])
            for query in self.both:
                query.apply_verdict(Verdict(f"v{self.facts}", "q", which, "ann", Outcome(outcome), self.facts))

    def judge(self, number: int) -> None:
        for query in self.both:
            query.apply_verdict(Verdict(f"v{number}", "q", f"i{number}", "ann", Outcome.RELEVANT, number))

    def check(self) -> None:
        """What both sum is right, and so is all that can be read of the slim one."""
        for query in self.both:
            query.finish()
            assert_sums(query)
        assert_agrees(self.slim)

    def look(self) -> None:
        """One is slim from here on, for as long as it can be."""
        for query in self.both:
            query.finish()
        self.slim.slim()
        self.was_slim += self.slim.is_slim
        got, wanted = (query.ranking() for query in self.both)
        assert [item.item_id for item in got.items] == [item.item_id for item in wanted.items]
        assert got.expected_remaining.mean == pytest.approx(wanted.expected_remaining.mean, rel=1e-9)
        assert got.expected_remaining.sd == pytest.approx(wanted.expected_remaining.sd, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "tolerance"),
    alike(
        [(model, tolerance) for model in DEFAULT_PRIORS for tolerance in TOLERANCES],
        *[("rates", TIGHT), *(("relevance", tolerance) for tolerance in TOLERANCES[1:])],
    ),
)
@pytest.mark.parametrize("seed", seeds(2))
def test_it_is_as_if_it_had_kept_them(seed: int, model: ModelName, tolerance: float) -> None:
    twins = Twins(seed, model, tolerance)
    for number in range(EVENTS):
        twins.happen()
        if number % 3 == 0:
            twins.look()
    twins.look()
    assert twins.was_slim > EVENTS // 6
    got, wanted = (report(query) for query in twins.both)
    for name, values in wanted.participants.items():
        assert got.participants[name] == pytest.approx(values, rel=1e-9, abs=1e-12)
    for edge, same in zip(got.edges, wanted.edges, strict=True):
        assert (edge.mean, edge.variance) == pytest.approx((same.mean, same.variance), rel=1e-9, abs=1e-12)
    assert twins.slim.is_slim  # to read does not ask for residuals
    twins.slim.engine._columns.fill_out()
    residuals = [query.engine._columns.state.people.residual for query in twins.both]
    np.testing.assert_allclose(*residuals, rtol=1e-7, atol=1e-9 * tolerance + 1e-13)
    for query in twins.both:
        assert_sums(query)
    if tolerance == TIGHT:
        assert_agrees(twins.slim)


@pytest.mark.parametrize("model", alike(DEFAULT_PRIORS, "relevance"))
def test_it_is_as_if_it_had_kept_them_where_the_graph_outgrows_its_arrays(model: ModelName) -> None:
    twins = Twins(3, model, TIGHT)
    for number in range(6):
        twins.judge(number)
        twins.look()
        for _ in range(30):
            twins.item()  # pairs run out of room, participants do not
    assert 1 < twins.was_slim < 6
    twins.check()


@pytest.mark.parametrize("model", DEFAULT_PRIORS)
def test_it_may_be_made_slim_while_it_is_behind_its_graph(model: ModelName) -> None:
    twins = Twins(4, model, TIGHT)
    for number in range(5):
        twins.judge(number)
        for query in twins.both:
            query.finish()
        for _ in range(6):
            twins.item(PEOPLE + 10 * number)
        assert twins.slim.behind
        twins.slim.slim()
        assert twins.slim.is_slim
        for query in twins.both:
            query.finish()
    twins.check()


def test_residuals_are_the_originals_while_it_is_slim() -> None:
    twins = Twins(0, "rates", DEFAULT_TOLERANCE)
    fresh = QueryState(twins.slim.settings, twins.slim.collection)
    fresh.settle()
    of_fresh = fresh.engine._columns.state.people
    for number in range(4):
        twins.judge(number)
        twins.look()
    people = twins.slim.engine._columns.state.people
    assert people.residual.nbytes > mmap.PAGESIZE
    assert (rows(people.x, np.arange(PEOPLE, dtype=np.int32)) != rows(of_fresh.x, np.arange(PEOPLE))).any()
    np.testing.assert_array_equal(people.residual, of_fresh.residual)


def test_who_has_something_left_to_do_is_not() -> None:
    twins = Twins(0, "rates", DEFAULT_TOLERANCE)
    twins.slim.apply_verdict(Verdict("v", "q", "i0", "ann", Outcome.RELEVANT, 1))
    twins.slim.ranking()
    assert twins.slim.engine.waiting
    twins.slim.slim()
    assert not twins.slim.is_slim


@pytest.mark.parametrize("have", ["no memfd", "another engine", "an array of its own"])
def test_nothing_is_given_up_that_could_not_be_had_again(have: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if have == "no memfd":
        monkeypatch.delattr("os.memfd_create", raising=False)
    twins = Twins(0, "rates", DEFAULT_TOLERANCE)
    if have == "another engine":
        twins.slim.apply_settings(replace(twins.slim.settings, engine="reference"))
    if have == "an array of its own":
        twins.look()
        for _ in range(200):
            twins.item(2 * PEOPLE)
    twins.slim.finish()
    twins.slim.slim()
    assert not twins.slim.is_slim


def test_an_array_that_is_given_back_is_the_templates_again() -> None:
    large, small = np.arange(5000.0), np.arange(3.0)
    template = Template((small, large, small))
    first, second, third = template.copy()
    for array in (first, second, third):
        array += 1.0
    assert give_back(second)
    assert not give_back(first)  # shares its page
    assert not give_back(large)
    np.testing.assert_array_equal(second, large)
    np.testing.assert_array_equal(first, small + 1.0)
    np.testing.assert_array_equal(third, small + 1.0)
