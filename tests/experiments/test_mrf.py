"""Exact inference: the junction tree against enumeration, pyAgrum and what can be worked out by hand."""

import numpy as np
import pytest
from support.pyagrum_field import inferred

from haystream.events import TABLE_1, TABLE_2, Conditional, Item
from haystream.models.relevance import conditional_table, edge_posterior
from haystream_service.errors import UserError
from haystream_service.study.models import mrf
from haystream_service.study.models.junction_tree import JunctionTree
from haystream_service.study.network import Network, network

LOPSIDED = Conditional(a=(1, 1, 2, 9), b=(9, 4, 3, 1))
"""01 and 10 differ: a swapped pair would show."""
FACTOR = np.array([1.5, 1.0, 0.7, 2.0])


def some_graph(rng: np.random.Generator, participants: int = 7) -> np.ndarray:
    """A chain and some chords, the ends of each pair in either order."""
    pairs = [
        (u, v) for u in range(participants) for v in range(u + 1, participants) if v == u + 1 or rng.random() < 0.4
    ]
    return np.array([pair if rng.random() < 0.5 else pair[::-1] for pair in pairs])


def some_network(pairs: np.ndarray) -> Network:
    items = [Item(f"m{k}", "study", f"p{u}", (f"p{v}",)) for k, (u, v) in enumerate(pairs.tolist())]
    return network("test", items, lambda item_id: False)


def some_factors(rng: np.random.Generator, pairs: np.ndarray) -> np.ndarray:
    n = rng.poisson(15, len(pairs)).astype(float)
    y = rng.binomial(n.astype(int), 0.3).astype(float)
    return mrf.potentials(FACTOR, LOPSIDED, n, y)


@pytest.mark.parametrize("seed", range(4))
def test_the_junction_tree_equals_enumeration(seed):
    rng = np.random.default_rng(seed)
    pairs = some_graph(rng)
    factors = some_factors(rng, pairs)
    exact, tree = mrf.enumerated(7, pairs, factors), JunctionTree(7, pairs)
    np.testing.assert_allclose(tree.means(factors), exact.mean, atol=1e-12)
    np.testing.assert_allclose(tree.joints(factors), exact.joint, atol=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_pyagrum_equals_enumeration(seed):
    pytest.importorskip("pyagrum")
    rng = np.random.default_rng(seed)
    pairs = some_graph(rng)
    factors = some_factors(rng, pairs)
    exact, other = mrf.enumerated(7, pairs, factors), inferred(7, pairs, factors)
    np.testing.assert_allclose(other.mean, exact.mean, atol=1e-12)
    np.testing.assert_allclose(other.joint, exact.joint, atol=1e-12)


def test_the_junction_tree_equals_pyagrum_where_nothing_can_be_enumerated():
    pytest.importorskip("pyagrum")
    rng = np.random.default_rng(7)
    chain = np.column_stack([np.arange(59), np.arange(1, 60)])
    pairs = np.unique(np.vstack([chain, np.sort(rng.choice(60, (12, 2)), axis=1)]), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    factors = some_factors(rng, pairs)
    tree, other = JunctionTree(60, pairs), inferred(60, pairs, factors)
    np.testing.assert_allclose(tree.means(factors), other.mean, atol=1e-12)
    np.testing.assert_allclose(tree.joints(factors), other.joint, atol=1e-12)


def test_a_graph_in_pieces():
    pairs = np.array([[0, 1], [3, 2], [3, 4]])
    factors = some_factors(np.random.default_rng(0), pairs)
    exact, tree = mrf.enumerated(5, pairs, factors), JunctionTree(5, pairs)
    np.testing.assert_allclose(tree.means(factors), exact.mean, atol=1e-12)
    np.testing.assert_allclose(tree.joints(factors), exact.joint, atol=1e-12)


def test_a_hub_of_a_thousand_does_not_underflow():
    """Half of the contacts draw the hub to 1, half to 0: the products alone are far too small for a double."""
    pairs = np.column_stack([np.zeros(1000, int), np.arange(1, 1001)])
    factors = np.tile([1.0, 0.1, 0.1, 0.1], (1000, 1))
    factors[::2] = [0.1, 0.1, 0.1, 1.0]
    tree = JunctionTree(1001, pairs)
    assert tree.means(factors)[0] == pytest.approx(0.5)


def test_what_cannot_be_is_said():
    with pytest.raises(FloatingPointError, match="0 in every state"):
        JunctionTree(2, np.array([[0, 1]])).joints(np.zeros((1, 4)))


def test_too_wide_a_graph_is_refused():
    with pytest.raises(UserError, match="out of reach"):
        JunctionTree(25, np.array([(u, v) for v in range(25) for u in range(v)]))


def test_the_prior_moments_equal_enumeration():
    pairs = some_graph(np.random.default_rng(5))
    mean, covariance = mrf.prior_moments(7, pairs, FACTOR)
    z = np.arange(2**7)[:, None] >> np.arange(7) & 1
    weight = np.prod(FACTOR[2 * z[:, pairs[:, 0]] + z[:, pairs[:, 1]]], axis=1)
    weight /= weight.sum()
    np.testing.assert_allclose(mean, weight @ z, atol=1e-12)
    np.testing.assert_allclose(covariance, z.T @ (weight[:, None] * z) - np.outer(mean, mean), atol=1e-12)


def test_one_edge_by_hand():
    """φ = 1.5, 1, 1, 1.5 and one relevant item under Table 1: weights 1.5 × 1/10, 1/5, 1/5, 1.5 × 1/2."""
    factors = mrf.potentials(mrf.HOMOPHILY, TABLE_1, np.array([1.0]), np.array([1.0]))
    np.testing.assert_allclose(factors, [[0.2, 4 / 15, 4 / 15, 1.0]])
    marginals = mrf.enumerated(2, np.array([[0, 1]]), factors)
    np.testing.assert_allclose(marginals.joint, [np.array([0.15, 0.2, 0.2, 0.75]) / 1.3])
    np.testing.assert_allclose(marginals.mean, [0.95 / 1.3] * 2)


def test_a_thousand_screenings_an_edge_do_not_underflow():
    pairs = np.array([[0, 1], [1, 2]])
    n = np.array([1000.0, 1000.0])
    factors = mrf.potentials(mrf.HOMOPHILY, TABLE_2, n, np.array([900.0, 150.0]))
    assert factors.max(axis=1).tolist() == [1.0, 1.0]
    np.testing.assert_allclose(JunctionTree(3, pairs).means(factors), [1.0, 1.0, 0.0], atol=0.01)


def test_the_mixture_is_the_cores():
    rng = np.random.default_rng(3)
    joint = rng.dirichlet(np.ones(4), size=6)
    n = rng.poisson(9, 6).astype(float)
    y = rng.binomial(n.astype(int), 0.4).astype(float)
    mean, variance = mrf.mixture(LOPSIDED, joint, n, y)
    for k, (_, p01, p10, p11) in enumerate(joint):
        u, v = p10 + p11, p01 + p11
        expected = edge_posterior(conditional_table(LOPSIDED), u, v, p11 - u * v, n[k], y[k])
        np.testing.assert_allclose((mean[k], variance[k]), expected, rtol=1e-10)


def test_the_model_is_the_field_given_its_counts():
    pairs = some_graph(np.random.default_rng(2), participants=5)
    known = some_network(pairs)
    model = mrf.MrfModel(known, factor=FACTOR, conditional=LOPSIDED)
    for edge, relevant in ((0, True), (2, False), (0, True)):
        model.observe((edge,), relevant)
    n, y = np.zeros(known.edges), np.zeros(known.edges)
    n[[0, 2]], y[0] = (2.0, 1.0), 2.0
    ends = np.column_stack([known.tail, known.head])
    exact = mrf.enumerated(5, ends, mrf.potentials(FACTOR, LOPSIDED, n, y))
    np.testing.assert_allclose(model.posteriors(), mrf.mixture(LOPSIDED, exact.joint, n, y), atol=1e-12)


def test_the_moment_factor_is_a_distribution_with_these_moments():
    p00, p01, p10, p11 = mrf.moment_factor(0.25, 0.13)
    assert (p00 + p01 + p10 + p11, p01 + p11, p10 + p11, p11) == pytest.approx((1, 0.25, 0.25, 0.13))


def test_balanced_factors_give_a_tree_the_pairs_distribution():
    pairs = np.array([[0, 1], [2, 0], [0, 3], [3, 4]])
    pair = mrf.moment_factor(0.25, 0.13)
    known = mrf.enumerated(5, pairs, mrf.balanced(pair, pairs))
    np.testing.assert_allclose(known.mean, 0.25)
    np.testing.assert_allclose(known.joint, np.tile(pair, (4, 1)))


def test_unbalanced_factors_put_a_hub_at_zero():
    pairs = np.column_stack([np.zeros(10, int), np.arange(1, 11)])
    known = mrf.enumerated(11, pairs, np.tile(mrf.moment_factor(0.25, 0.13), (10, 1)))
    assert known.mean[0] < 1e-4


@pytest.mark.parametrize(("mean", "both"), [(0.25, 0.26), (0.25, -0.01), (0.75, 0.4)])
def test_moments_that_no_pair_has_are_refused(mean, both):
    with pytest.raises(UserError, match="no pair of binary variables"):
        mrf.moment_factor(mean, both)


def test_nothing_large_is_enumerated():
    with pytest.raises(ValueError, match="too many"):
        mrf.enumerated(21, np.array([[0, 1]]), np.ones((1, 4)))
