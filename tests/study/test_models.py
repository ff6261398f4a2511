"""Every model keeps its promises, and those with a closed form keep to it."""

import numpy as np
import pytest
from bayesianbandits import NormalRegressor
from scipy.integrate import quad
from scipy.stats import beta

from haystream.collection.item_sets import share_of
from haystream.events import TABLE_1, TABLE_2, Query
from haystream.models import DEFAULT_PRIORS
from haystream.query.state import QueryState
from haystream_service.errors import UserError
from haystream_service.study.models import MODELS
from haystream_service.study.network import Network

CHEAP = [name for name in MODELS if name != "mrf"]


def watched(network: Network, model, *, verdicts: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Shows a model items at random; returns n and y, counted plainly."""
    n, y = np.zeros(network.edges), np.zeros(network.edges)
    for item in np.random.default_rng(seed).permutation(len(network.relevant))[:verdicts]:
        edges, relevant = network.edges_of(int(item)), bool(network.relevant[item])
        model.observe(edges, relevant)
        n[list(edges)] += share_of(len(edges))
        y[list(edges)] += share_of(len(edges)) * relevant
    return n, y


@pytest.mark.parametrize("name", CHEAP)
@pytest.mark.parametrize("which", ["pairs", "parties"])
def test_moments_are_those_of_a_rate_at_every_step(request, name, which):
    network = request.getfixturevalue(which)
    model = MODELS[name](network)
    for item in np.random.default_rng(0).permutation(len(network.relevant)):
        mean, variance = model.posteriors()
        assert mean.shape == variance.shape == (network.edges,)
        assert ((mean >= 0.0) & (mean <= 1.0)).all()
        assert (variance >= 0.0).all()
        model.observe(network.edges_of(int(item)), bool(network.relevant[item]))


@pytest.mark.parametrize("name", [name for name in CHEAP if name != "random"])
def test_relevant_items_raise_the_mean_and_all_items_lower_the_variance(name, pairs):
    (item,) = np.flatnonzero(pairs.relevant)[:1].tolist()
    for relevant in (True, False):
        model = MODELS[name](pairs)
        edges = list(pairs.edges_of(item))
        mean = model.posteriors()[0][edges].copy()
        variances = []
        for _ in range(30):
            model.observe(edges, relevant)
            variances.append(model.posteriors()[1][edges].copy())
        after = model.posteriors()[0][edges]
        assert (after > mean).all() if relevant else (after < mean).all()
        assert (variances[-1] < variances[0]).all()


@pytest.mark.parametrize(("mean", "p11", "number"), [(0.25, 0.13, 2), (0.4, 0.0, 1), (0.6, 0.31, 2)])
def test_independent_is_its_closed_form(parties, mean, p11, number):
    """E[P | n, y] and E[P² | n, y] by numerical integration of prior times likelihood."""
    model = MODELS["independent"](parties, {"mean": mean, "p11": p11, "table": number})
    n, y = watched(parties, model, verdicts=60, seed=4)
    table = {1: TABLE_1, 2: TABLE_2}[number]
    prior = (1 - 2 * mean + p11, mean - p11, mean - p11, p11)

    def moment(edge: int, power: int) -> float:
        def density(p: float) -> float:
            of_state = (w * beta.pdf(p, a, b) for w, a, b in zip(prior, table.a, table.b, strict=True))
            return sum(of_state) * p ** (y[edge] + power) * (1 - p) ** (n[edge] - y[edge])

        return quad(density, 0, 1, limit=200)[0]

    got = model.posteriors()
    for edge in range(0, parties.edges, 16):
        first, second = (moment(edge, power) / moment(edge, 0) for power in (1, 2))
        assert got[0][edge] == pytest.approx(first, abs=1e-6)
        assert got[1][edge] == pytest.approx(second - first**2, abs=1e-6)


def test_participant_rate_is_its_formula(parties):
    model = MODELS["participant-rate"](parties, {"mean": 0.2, "participant": 2.5, "edge": 1.5})
    n, y = watched(parties, model, verdicts=70, seed=5)
    neighbours = MODELS["neighbour-rate"](parties, {"mean": 0.2, "participant": 2.5, "edge": 1.5})
    watched(parties, neighbours, verdicts=70, seed=5)
    ends = list(zip(parties.tail.tolist(), parties.head.tolist(), strict=True))
    people = range(len(parties.participants))
    at = {u: [e for e in range(parties.edges) if u in ends[e]] for u in people}
    rate = {u: (2.5 * 0.2 + y[at[u]].sum()) / (2.5 + n[at[u]].sum()) for u in people}
    around = {u: np.mean([rate[sum(ends[e]) - u] for e in at[u]]) for u in people}
    smooth = {u: (2.5 * around[u] + y[at[u]].sum()) / (2.5 + n[at[u]].sum()) for u in people}
    for got, of in ((model, rate), (neighbours, smooth)):
        expected = [(1.5 * (of[u] + of[v]) / 2 + y[e]) / (1.5 + n[e]) for e, (u, v) in enumerate(ends)]
        mean, variance = got.posteriors()
        assert mean == pytest.approx(expected, abs=1e-12)
        assert variance == pytest.approx(mean * (1 - mean) / (2.5 + n), abs=1e-12)


def test_label_propagation_solves_its_equations(parties):
    model = MODELS["label-propagation"](parties, {"mean": 0.2, "weight": 2, "alpha": 0.9})
    n, y = watched(parties, model, verdicts=70, seed=6)
    edges, people = parties.edges, len(parties.participants)
    member = np.zeros((edges, people))
    member[np.arange(edges), parties.tail] = member[np.arange(edges), parties.head] = 1.0
    flow = 0.5 * member @ (member / member.sum(axis=0)).T
    labels = np.linalg.solve(np.diag(2 + n) - 2 * 0.9 * flow, 2 * 0.1 * 0.2 + y)
    assert model.posteriors()[0] == pytest.approx(labels, abs=1e-3)


def test_the_bandit_is_bayesianbandits_regression(parties):
    options = {"mean": 0.1, "bias": 0.02, "participant": 0.013, "pair": 0.007, "noise": 0.08}
    model = MODELS["bandit"](parties, options)
    edges, people = parties.edges, len(parties.participants)
    features = np.zeros((edges, 1 + people + edges))
    features[:, 0] = np.sqrt(options["bias"])
    for edge, ends in enumerate(zip(parties.tail, parties.head, strict=True)):
        features[edge, [1 + end for end in ends]] = np.sqrt(options["participant"])
        features[edge, 1 + people + edge] = np.sqrt(options["pair"])
    theirs = NormalRegressor(alpha=1.0, beta=1.0 / options["noise"])
    rng = np.random.default_rng(8)
    for item in rng.integers(40, size=100).tolist():  # of few items, so that many come again
        lies_on, outcome = parties.edges_of(item), bool(rng.random() < 0.6)
        model.observe(lies_on, outcome)
        theirs.partial_fit(features[list(lies_on)].mean(axis=0)[None], np.array([outcome - 0.1]))
    half = np.triu(theirs.cov_inv_)  # only the upper half of theirs is kept up
    covariance = np.linalg.inv(half + np.triu(half, 1).T)
    mean, variance = model.posteriors()
    assert mean == pytest.approx(np.clip(0.1 + features @ theirs.coef_, 0, 1), abs=1e-9)
    theirs_variance = np.einsum("ij,jk,ik->i", features, covariance, features)
    assert variance == pytest.approx(np.minimum(theirs_variance, mean * (1 - mean)), abs=1e-9)


@pytest.mark.parametrize("name", ["rates", "relevance"])
def test_a_model_says_what_a_worker_would_score_by(pairs, name):
    """The same verdicts through the fold that workers run."""
    model, query = MODELS[name](pairs), QueryState(Query("q", prior=DEFAULT_PRIORS[name]), pairs.collection)
    watched(pairs, model, verdicts=80, seed=9)
    n, y = watched(pairs, MODELS["random"](pairs), verdicts=80, seed=9)
    query.settle()
    for edge in range(pairs.edges):
        query.engine.record(edge, screened=n[edge], relevant=y[edge])
    query.settle()
    mean, variance, _ = query.engine.readings.scoring(np.arange(pairs.edges, dtype=np.int32))
    assert model.posteriors()[0] == pytest.approx(mean, abs=1e-4)
    assert model.posteriors()[1] == pytest.approx(variance, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("relevance", {"table": 4}, "expected table=1, table=2 or table=3"),
        ("relevance", {"delta": 0.5}, "expected one of mean, correlation, table"),
        ("independent", {"p11": 0.3}, "second moment 0.3"),
        ("random", {"mean": 0.5}, "expected one of none"),
    ],
)
def test_impossible_options_are_said_in_words(pairs, name, options, said):
    with pytest.raises(UserError, match=said):
        MODELS[name](pairs, options)
