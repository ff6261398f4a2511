"""The search loop, against a slow plain version of it."""

from fractions import Fraction

import numpy as np
import pytest
from support.set_scores import Edge, Record, by_set

from haystream.events import Policy
from haystream.ranking.policies import POLICIES, Posteriors
from haystream_service.study.models import MODELS
from haystream_service.study.models.base import Learning
from haystream_service.study.network import Network
from haystream_service.study.search import search


def plain_edge_scores(network: Network, score) -> list[float]:
    """The mean over each set's edges."""
    edges_of = map(network.collection.sets.edges, range(len(network.collection.sets)))
    return [sum(score[edge] for edge in edges) / len(edges) for edges in edges_of]


def plain_set_scores(network: Network, model, now: Posteriors, screened: list[int], horizon: int) -> list[float]:
    """By the definition, from the items screened so far."""
    slope, base_rate = model.common() if isinstance(model, Learning) else (np.zeros(network.edges), 0.0)
    seen = [Fraction(0)] * network.edges
    for item in screened:
        for edge in network.edges_of(item):
            seen[edge] += Fraction(1, len(network.edges_of(item)))
    scores = []
    for which in range(len(network.collection.sets)):
        members = network.collection.members.ordered(which)
        done = [item for item in members if item in screened]
        relevant = sum(bool(network.relevant[item]) for item in done)
        record = Record(len(members) - len(done), len(members), len(done), relevant)
        if len(done) == len(members):
            scores.append(-np.inf)
            continue
        on = network.collection.sets.edges(which)
        edges = [Edge(now.mean[e], now.variance[e], slope[e], float(seen[e])) for e in on]
        scores.append(by_set(edges, record, base_rate, horizon))
    return scores


def plain_search(network: Network, model, policy: Policy, *, steps: int, seed: int) -> list[int]:
    """Rank all unscreened items afresh for every screening: by score, then by the run's random order."""
    items = len(network.relevant)
    place = {int(item): i for i, item in enumerate(np.random.default_rng(seed).permutation(items))}
    unscreened, screened = set(range(items)), []
    policy = Policy(policy.name, epsilon=policy.epsilon, seed=seed, horizon=policy.horizon)
    while unscreened and len(screened) < steps:
        left = [Fraction(0)] * network.edges
        for item in unscreened:
            for edge in network.edges_of(item):
                left[edge] += Fraction(1, len(network.edges_of(item)))
        mean, variance = model.posteriors()
        now = Posteriors(
            mean.copy(),
            variance.copy(),
            network.collection.graph.edge_key,
            np.array([float(amount) for amount in left]),
            len(screened) + 1,
        )
        if POLICIES[policy.name].score is None:
            of_set = plain_set_scores(network, model, now, screened, policy.horizon)
        else:
            of_set = plain_edge_scores(network, POLICIES[policy.name].score(now, policy))

        def rank(item: int, of_set=of_set) -> tuple[float, int]:
            return -round(of_set[network.item_set[item]] * 2**30), place[item]

        item = min(unscreened, key=rank)
        unscreened.remove(item)
        screened.append(item)
        model.observe(network.edges_of(item), bool(network.relevant[item]))
    return screened


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("model", ["rates", "relevance", "independent", "neighbour-rate", "random"])
@pytest.mark.parametrize("which", ["pairs", "parties"])
def test_a_search_is_the_plain_search(request, which, model, policy):
    network = request.getfixturevalue(which)
    how = Policy(policy, epsilon=0.4, horizon=5)
    run = search(network, MODELS[model](network), how, steps=1000, seed=7)
    expected = plain_search(network, MODELS[model](network), how, steps=1000, seed=7)
    assert run.item.tolist() == expected
    assert sorted(expected) == list(range(len(network.relevant)))  # every item once: edges were exhausted


def test_what_a_run_says_of_itself(pairs):
    run = search(pairs, MODELS["participant-rate"](pairs), Policy("greedy"), steps=50, seed=3)
    edges = [pairs.edges_of(item)[0] for item in run.item]
    changes = [sum(edges[s] != edges[s - 1] for s in range(1, t + 1)) for t in range(50)]
    assert run.choice.tolist() == edges
    assert run.changes.tolist() == changes
    assert run.edge_changes == changes[-1]
    assert run.curve.tolist() == [int(pairs.relevant[run.item[: t + 1]].sum()) for t in range(50)]
    assert run.found == run.curve[-1]


@pytest.mark.parametrize("model", ["relevance", "rates"])
def test_a_search_does_not_depend_on_those_before_it(model, parties):
    def posteriors(seed: int) -> tuple[list[float], list[float]]:
        leads = MODELS[model](parties)
        search(parties, leads, Policy("greedy"), steps=60, seed=seed)
        mean, variance = leads.posteriors()
        return mean.tolist(), variance.tolist()

    first = posteriors(1)
    posteriors(2)
    assert posteriors(1) == first


def test_a_seed_decides_all_chance(pairs):
    def items(seed: int) -> list[int]:
        model = MODELS["relevance"](pairs)
        return search(pairs, model, Policy("thompson", seed=99), steps=60, seed=seed).item.tolist()

    assert items(5) == items(5)
    assert items(5) != items(6)


@pytest.mark.parametrize("policy", POLICIES)
def test_random_order_is_random_under_every_policy(policy, parties):
    """Each item is equally likely to be screened first: chi-squared, 5 standard deviations."""
    items, runs = len(parties.relevant), 1500
    how = Policy(policy, epsilon=0.0)
    first = [
        int(search(parties, MODELS["random"](parties), how, steps=1, seed=seed).item[0]) for seed in range(runs)
    ]
    counts = np.bincount(first, minlength=items)
    statistic = ((counts - runs / items) ** 2).sum() / (runs / items)
    assert abs(statistic - (items - 1)) < 5 * np.sqrt(2 * (items - 1))
