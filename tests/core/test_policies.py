"""The policies against their definitions."""

import numpy as np
import pytest
from scipy.stats import kstest, norm

from haystream.events import Policy
from haystream.ranking.policies import (
    POLICIES,
    Posteriors,
    bayes_ucb,
    draws,
    epsilon_greedy,
    greedy,
    jump_of,
    lap_of,
    look_ahead,
    thompson,
)
from haystream.ranking.turns import Turns

MEAN = np.array([0.1, 0.5, 0.4])
VARIANCE = np.array([0.04, 0.01, 0.0])
KEY = np.array([3, 14, 159], dtype=np.uint64)
LEFT = np.array([1.0, 5.0, 300.0])


def at(step: int) -> Posteriors:
    return Posteriors(MEAN, VARIANCE, KEY, LEFT, step)


def test_greedy_is_the_mean() -> None:
    np.testing.assert_array_equal(greedy(at(5), Policy()), MEAN)


@pytest.mark.parametrize(("step", "level"), [(1, 0.5), (2, 0.5), (4, 0.75), (1000, 0.999)])
def test_bayes_ucb_is_the_normal_quantile(step: int, level: float) -> None:
    """Appendix D: t = 1 is the median, then 1 - 1/t."""
    expected = [norm.ppf(level, m, s) if s else m for m, s in zip(MEAN, np.sqrt(VARIANCE), strict=True)]
    np.testing.assert_allclose(bayes_ucb(at(step), Policy()), expected)


def test_thompson_draws_from_the_posterior() -> None:
    sample = np.array([thompson(at(t), Policy("thompson", seed=1))[0] for t in range(2000)])
    assert kstest(sample, norm(MEAN[0], np.sqrt(VARIANCE[0])).cdf).pvalue > 0.01
    assert thompson(at(7), Policy("thompson", seed=1))[2] == MEAN[2]


def test_epsilon_greedy_explores_in_its_share_of_steps() -> None:
    """A binomial with 4,000 trials: 5 standard errors are 5 · sqrt(0.3 · 0.7 / 4000) = 0.036."""
    policy = Policy("epsilon-greedy", epsilon=0.3, seed=9)
    scores = [epsilon_greedy(at(t), policy) for t in range(4000)]
    explored = [not np.array_equal(s, MEAN) for s in scores]
    assert abs(np.mean(explored) - 0.3) < 0.036
    first = np.bincount([int(np.argmax(s)) for s, e in zip(scores, explored, strict=True) if e], minlength=3)
    assert np.all(np.abs(first / first.sum() - 1 / 3) < 5 * np.sqrt(2 / 9 / first.sum()))


def test_look_ahead_is_finds_over_screenings_of_try_one_then_the_rest() -> None:
    expected = []
    for mean, variance, left in zip(MEAN, VARIANCE, LEFT, strict=True):
        rest = min(left, 20) - 1
        if variance:
            k = mean * (1 - mean) / variance - 1
            after = (mean * k + 1) / (k + 1)
        else:
            after = mean
        expected.append(mean * (1 + rest * after) / (1 + rest * mean))
    np.testing.assert_allclose(look_ahead(at(5), Policy()), expected)
    assert expected[0] == MEAN[0]  # the last item of an edge: nothing to look ahead to


def test_draws_are_uniform_and_depend_on_seed_step_and_key_only() -> None:
    key = np.arange(20_000, dtype=np.uint64)
    sample = draws(1, 2, key)
    assert kstest(sample, "uniform").pvalue > 0.01
    np.testing.assert_array_equal(sample[::-1], draws(1, 2, key[::-1]))
    for other in (draws(2, 2, key), draws(1, 3, key)):
        assert abs(np.corrcoef(sample, other)[0, 1]) < 5 / np.sqrt(len(key))
    assert sample.min() > 0
    assert sample.max() < 1


def test_every_policy_of_edges_scores_every_edge() -> None:
    for name, entry in POLICIES.items():
        if entry.score is not None:
            assert entry.score(at(3), Policy(name)).shape == MEAN.shape


def test_a_lap_renews_about_as_many_draws_at_each_step_however_many_edges() -> None:
    assert [lap_of(edges) for edges in (0, 1, 4096, 4097, 8192, 8193, 1_000_000)] == [1, 1, 1, 2, 2, 4, 256]


def test_every_edge_has_its_turn_once_a_lap_and_keeps_its_draw_between() -> None:
    key = np.random.default_rng(0).integers(0, 2**64, 5000, dtype=np.uint64)
    still = np.full(5000, 0.5)
    turns = Turns()
    turns.follow(key)
    assert turns.lap == 2
    scores, times = [], np.zeros(5000)
    for t in range(10, 14):
        posteriors = Posteriors(still, still, key, still, t, turns.lap)
        scores.append(thompson(posteriors, Policy("thompson")))
        in_turn = np.flatnonzero(posteriors.in_turn())
        np.testing.assert_array_equal(np.sort(turns.between(t, t, key)), in_turn)
        times[in_turn] += 1
        if len(scores) > 1:
            np.testing.assert_array_equal(np.flatnonzero(scores[-1] != scores[-2]), in_turn)
    assert np.all(times == 2)
    grown = np.concatenate([key, key[:100] + np.uint64(1)])
    assert not turns.follow(grown)
    expected = np.flatnonzero((grown + np.uint64(7)) % np.uint64(2) == 0)
    np.testing.assert_array_equal(np.sort(turns.between(7, 7, grown)), expected)


def test_epsilon_greedy_on_a_large_graph_puts_those_in_turn_first() -> None:
    policy = Policy("epsilon-greedy", epsilon=1.0)
    score = epsilon_greedy(Posteriors(MEAN, VARIANCE, np.array([0, 1, 2], np.uint64), LEFT, 4, 2), policy)
    assert score[1] == MEAN[1]
    assert min(score[0], score[2]) > 1.0


def test_ucb_jumps_stay_close() -> None:
    steps = range(1, 20_000)
    worst = max(norm.ppf(1 - 1 / t) - norm.ppf(1 - 1 / jump_of(t, 2)) for t in steps if t > 1)
    assert 0.0 < worst < 0.042
    assert all(jump_of(t, 1) == t for t in steps)
