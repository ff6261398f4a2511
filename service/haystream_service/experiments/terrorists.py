"""The network of section 5.1.2: the bombers' network, and as many irrelevant participants.

The paper's own network of 17 is not public. Ours is CASOS Kenya-Tanzania 1998: 18 people by the tasks they shared.
"""

import csv
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from haystream.events import TABLE_1, TABLE_2, Conditional, Item, Pair, Prior
from haystream_service.bench.graphs import data_path
from haystream_service.errors import UserError
from haystream_service.experiments.lemmas import LemmaEngine, Moments, prior_of_field
from haystream_service.study.models import mrf
from haystream_service.study.models.base import Floats
from haystream_service.study.network import Network, network

FILE = "tanzania_kenya/person_person_shared_tasks.csv"
"""λ₁ = λ₂ = 0.5, as in the paper."""
CONDITIONALS = {1: TABLE_1, 2: TABLE_2}
EDGES_OF_IRRELEVANT = 2
"""Edges that each irrelevant participant is added with; the paper does not say how many it drew."""
STRONG = 2
"""Shared tasks that make an edge in the `sparse` network."""

Density = Literal["sparse", "dense"]
"""`dense`: everyone who shared a task (82 edges). `sparse`: two tasks or more, and all pairs of three people who
share two with nobody (36 edges), which couples the field as weakly as a network like the paper's."""


@dataclass(frozen=True, slots=True)
class World:
    """A network, who is relevant, and what an item on each edge is worth."""

    people: tuple[str, ...]
    relevant: NDArray[np.bool_]
    """Z, shape (participants,): the terrorists."""
    pairs: NDArray[np.int64]
    """Shape (edges, 2), indexes of `people`."""
    rates: Floats
    """The true P, shape (edges,), drawn from the prior conditional given the true Z."""
    conditional: Conditional

    def network(self, items: NDArray[np.int64], rng: np.random.Generator) -> Network:
        """`items` items on each edge (at least one, so that edges keep their numbers), each relevant with
        probability P.
        """
        edge = np.repeat(np.arange(len(self.pairs)), items)
        outcome = (rng.random(len(edge)) < self.rates[edge]).tolist()
        made = (Item(str(k), "study", None, self.names(e)) for k, e in enumerate(edge.tolist()))
        return network("tanzania", made, lambda item_id: outcome[int(item_id)])

    def names(self, edge: int) -> Pair:
        """The ids at the edge's ends, sorted."""
        u, v = (self.people[end] for end in self.pairs[edge])
        return (u, v) if u < v else (v, u)


@cache
def world(density: Density, conditional: int, seed: int) -> World:
    """The network of this seed; `conditional` is the number of the prior conditional, which also draws P.

    Raises:
        UserError: the data are not there.
    """
    rng = np.random.default_rng([seed, 0])
    pairs = bombers(density)
    terrorists = sorted({name for pair in pairs for name in pair})
    count = len(terrorists)
    others = [f"irrelevant-{k:02}" for k in range(1, count + 1)]
    place = {name: k for k, name in enumerate(terrorists)}
    edges = {(place[a], place[b]) for a, b in pairs}
    for k in range(count):
        newcomer = count + k
        edges |= {(int(other), newcomer) for other in rng.choice(newcomer, EDGES_OF_IRRELEVANT, replace=False)}
    links = np.array(sorted(edges))
    relevant = np.arange(2 * count) < count
    table = CONDITIONALS[conditional]
    state = 2 * relevant[links[:, 0]] + relevant[links[:, 1]]
    rates = np.random.default_rng([seed, 1]).beta(np.asarray(table.a)[state], np.asarray(table.b)[state])
    return World((*terrorists, *others), relevant, links, rates, table)


@cache
def linear_prior(density: Density, conditional: int, seed: int) -> tuple[Prior, Moments]:
    """The Bayes linear prior with the mean and covariance of the field on that network, and its further moments."""
    made = world(density, conditional, seed)
    network = made.network(np.ones(len(made.pairs), dtype=np.int64), np.random.default_rng(0))
    prior = prior_of_field(network, factor=mrf.HOMOPHILY, conditional=made.conditional)
    return prior, LemmaEngine(network.collection.graph, prior).moments


def bombers(density: Density) -> list[Pair]:
    """Pairs of the people in the plot. Raises `UserError` where the data are not there."""
    path = data_path(FILE, "tanzania")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            shared = {(row["a"], row["b"]): int(row["shared_tasks"]) for row in csv.DictReader(file)}
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if density == "dense":
        return list(shared)
    strong = Counter(name for pair, tasks in shared.items() if tasks >= STRONG for name in pair)
    return [pair for pair, tasks in shared.items() if tasks >= STRONG or not all(strong[name] for name in pair)]
