"""The tournament against sorting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from haystream.ranking.tournament import Tournament

entry = st.tuples(
    st.sampled_from([-np.inf, 0.0, 0.25, 0.5, 1.0]),
    st.integers(0, 2**64 - 1) | st.sampled_from([7, 8]),
    st.floats(0, 10),
)


@given(st.lists(st.lists(st.tuples(st.integers(0, 40), entry), min_size=1, max_size=20), min_size=1, max_size=6))
def test_equals_sorting_after_any_updates(batches: list[list[tuple[int, tuple[float, int, float]]]]) -> None:
    tournament, truth = Tournament(), {}
    for batch in batches:
        latest = dict(batch)
        which = np.array(list(latest), dtype=np.int32)
        scores, ties, terms = zip(*latest.values(), strict=True)
        score, tie, term = np.array(scores), np.array(ties, dtype=np.uint64), np.array(terms)
        tournament.resize(max(tournament.size, int(which.max()) + 1))
        tournament.leaves.tie[which] = tie
        tournament.set(which, score, np.column_stack([term, 2 * term, -term]))
        truth.update(latest)
    expected = sorted((-score, tie, k) for k, (score, tie, _) in truth.items() if score > -np.inf)
    assert tournament.leaders(1000).tolist() == [key[2] for key in expected]
    assert tournament.leaders(3).tolist() == [key[2] for key in expected[:3]]
    total = sum(term for _, _, term in truth.values())
    np.testing.assert_allclose(tournament.totals(), (total, 2 * total, -total), rtol=1e-12)


def test_an_empty_tournament_has_nobody() -> None:
    assert Tournament().leaders(5).tolist() == []
    assert Tournament().totals().tolist() == [0.0, 0.0, 0.0]
