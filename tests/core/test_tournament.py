"""The tournament against sorting."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from haystream.memory.arrays import Ints
from haystream.ranking.tournament import BLOCK, Hashes, Ties, Tournament

entry = st.tuples(
    st.sampled_from([-np.inf, 0.0, 0.25, 0.5, 1.0]),
    st.integers(0, 2**64 - 1) | st.sampled_from([7, 8]),
    st.floats(0, 10),
)


def of_entries(tie: Hashes) -> Ties:
    """Those of even entries stand by entry, of odd ones by row: these are the same arrays."""
    entries: Ints = np.arange(len(tie), dtype=np.int32)
    return Ties(np.where(entries % 2, -1 - entries, entries), own=tie, before=tie)


@given(st.lists(st.lists(st.tuples(st.integers(0, 40), entry), min_size=1, max_size=20), min_size=1, max_size=6))
def test_equals_sorting_after_any_updates(batches: list[list[tuple[int, tuple[float, int, float]]]]) -> None:
    tournament, truth, tie_hash = Tournament(), {}, np.zeros(41, np.uint64)
    ties = of_entries(tie_hash)
    for batch in batches:
        latest = dict(batch)
        which = np.array(list(latest), dtype=np.int32)
        scores, hashes, terms = zip(*latest.values(), strict=True)
        score, tie, term = np.array(scores), np.array(hashes, dtype=np.uint64), np.array(terms)
        tie_hash[which] = tie
        tournament.resize(max(tournament.size, int(which.max()) + 1), ties)
        tournament.set(which, score, np.column_stack([term, 2 * term, -term]), ties)
        truth.update(latest)
    expected = sorted((-score, tie, k) for k, (score, tie, _) in truth.items() if score > -np.inf)
    assert tournament.leaders(1000, ties).tolist() == [key[2] for key in expected]
    assert tournament.leaders(3, ties).tolist() == [key[2] for key in expected[:3]]
    total = sum(term for _, _, term in truth.values())
    np.testing.assert_allclose(tournament.totals(), (total, 2 * total, -total), rtol=1e-12)


def test_an_empty_tournament_has_nobody() -> None:
    assert Tournament().leaders(5, of_entries(np.zeros(0, np.uint64))).tolist() == []
    assert Tournament().totals().tolist() == [0.0, 0.0, 0.0]


def test_who_moves_with_the_common_mean_is_foreseen_to_score_in_proportion() -> None:
    tournament, ties = Tournament(), of_entries(np.zeros(5, np.uint64))
    tournament.resize(5, ties)
    score = np.array([0.4, 0.3, -np.inf, 0.2, 0.1])
    mean, slope = np.array([0.4, 0.1, 0.1, 0.0, 0.1]), np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    left = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    terms = np.column_stack([left * mean, np.zeros(5), left * slope])
    tournament.set(np.arange(5, dtype=np.int32), score, terms, ties)
    at, foreseen = tournament.foreseen(0.1)
    assert at.tolist() == [0, 1, 3, 4]
    np.testing.assert_allclose(foreseen, [0.4, 0.6, 0.2, 0.2])
    np.testing.assert_allclose(tournament.foreseen(-0.2)[1], [0.4, 0.0, 0.2, 0.0])


def test_what_a_large_one_says_depends_on_its_entries_alone() -> None:
    """Of four levels, grown and changed bit by bit: as one that was told all at once, to the last bit."""
    rng, size = np.random.default_rng(0), 5000
    score, tie = np.full(size, -np.inf), np.full(size, 9, np.uint64)
    terms = np.zeros((size, 3))
    often, known, ties = Tournament(), 0, of_entries(tie)
    while known < size:
        known = min(known + int(rng.integers(1, 700)), size)
        often.resize(known, ties)
        for _ in range(3):
            which = np.unique(rng.integers(known, size=200)).astype(np.int32)
            score[which] = rng.choice([-np.inf, 0.25, 0.5, 1.0], len(which))
            tie[which] = rng.integers(3, size=len(which), dtype=np.uint64)
            terms[which] = rng.random((len(which), 3))
            often.set(which, score[which], terms[which], ties)
    once, everything = Tournament(), np.arange(size, dtype=np.int32)
    once.resize(size, ties)
    once.set(everything, score, terms, ties)
    order = np.lexsort((everything, tie, -score))[: np.count_nonzero(score > -np.inf)]
    for tournament in (often, once):
        assert tournament.leaders(size, ties).tolist() == order.tolist()
        assert tournament.leaders(60, ties).tolist() == order[:60].tolist()
        assert_nodes_are_up_to_date(tournament)
    assert often.totals().tolist() == once.totals().tolist()
    np.testing.assert_allclose(once.totals(), terms.sum(axis=0), rtol=1e-12)


def assert_nodes_are_up_to_date(tournament: Tournament) -> None:
    """With a node that says more than the best below it scores it would take longer to find who leads."""
    score, nodes = tournament.places.score, int(tournament.places.start[1])
    for below, above in pairwise(tournament.places.start.tolist()):
        best = score[below:above].reshape(-1, BLOCK).max(axis=1)
        assert score[above : above + len(best)].tolist() == best.tolist()
    known = score[nodes:] > -np.inf
    assert score[tournament.places.best[known]].tolist() == score[nodes:][known].tolist()
