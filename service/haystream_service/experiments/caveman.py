"""Relaxed caveman networks with infected relevance, and Moran's I (section 5.2).

`one`: as in the paper, one network for each ρ, and new items on it in every repetition. `many`: a network of its
own for every repetition, since a single one says as much about itself as about ρ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from haystream.events import Item
from haystream_service.experiments import caveman_figures
from haystream_service.experiments.parallel import workers
from haystream_service.experiments.searches import POLICIES, Rival, Trace, rows, traces
from haystream_service.experiments.summary import mean_se
from haystream_service.sources import ITEMS_PER_EDGE, RELEVANT_GIVEN, SyntheticSource, synthetic
from haystream_service.study.models.base import Floats
from haystream_service.study.network import Network, network

EDGES = 280
"""Of each network, about: ten caves of eight. The paper does not say how large its own were."""
MEANS = (0.25, 0.5)
P11 = {0.25: (0.0, 0.04, 0.08, 0.13, 0.17, 0.21), 0.5: (0.0, 0.08, 0.17, 0.25, 0.33, 0.42)}
"""Second moments for the independent model, by mean: the paper's of section 5.3.2, and as many steps for 0.5."""
MIDDLE = {0.25: 0.13, 0.5: 0.25}
"""Those used beside the greedy policy, which alone gets the whole sweep, as in the paper's figure."""

Networks = Literal["one", "many"]
BOTH: tuple[Networks, ...] = ("one", "many")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run."""

    rhos: tuple[float, ...]
    runs: int
    steps: int
    edges: int = EDGES

    @property
    def tasks(self) -> int:
        """How often `advance` is called."""
        return 2 * len(self.rhos) * len(MEANS) * self.runs


FULL = Size(rhos=(0.5, 0.6, 0.7, 0.8, 0.9), runs=50, steps=500)
QUICK = Size(rhos=(0.5, 0.7, 0.9), runs=2, steps=250)


@dataclass(frozen=True, slots=True)
class Case:
    """One repetition."""

    networks: Networks
    rho: float
    mean: float
    seed: int
    k: int

    def source(self, edges: int) -> SyntheticSource:
        """The network; its own items are not used."""
        seed = self.seed if self.networks == "one" else self.seed + 1 + self.k
        return synthetic(seed=seed, edges=edges, rho=self.rho)


def run(
    *, size: Size = FULL, seed: int = 0, processes: int = 1, advance: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Every ρ and prior mean, on one network and on many; JSON-ready."""
    results: list[dict[str, Any]] = []
    work = partial(repeat, steps=size.steps, edges=size.edges)
    with workers(processes, advance) as spread:
        for networks, rho, mean in product(BOTH, size.rhos, MEANS):
            cases = [Case(networks, rho, mean, seed, k) for k in range(size.runs)]
            runs = spread(work, cases)
            results += [{"networks": networks, "rho": rho, "mean": mean, **row} for row in rows(runs, curves=False)]
    return {
        "experiment": "caveman",
        "section": "5.2",
        "seed": seed,
        "runs": size.runs,
        "steps": size.steps,
        "networks": [_network(Case("one", rho, 0.25, seed, 0).source(size.edges), rho) for rho in size.rhos],
        "moran": [_moran_of_many(rho, size, seed) for rho in size.rhos],
        "results": results,
    }


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """The networks and the totals."""
    return [
        caveman_figures.networks(result, folder / "caveman-networks.png"),
        caveman_figures.totals(result, "one", folder / "caveman-one.png"),
        caveman_figures.totals(result, "many", folder / "caveman-many.png"),
    ]


def repeat(case: Case, *, steps: int, edges: int) -> dict[Rival, Trace]:
    """All rivals on one draw of items."""
    source = case.source(edges)
    rng = np.random.default_rng([case.seed, case.k, round(100 * case.rho)])
    return traces(items_on(source, rng), rivals(case.mean), steps=steps, seed=case.k)


def rivals(mean: float) -> list[Rival]:
    """Bayes linear under every policy; the independent model swept under greedy, in the middle under the others."""
    given = (("mean", mean),)
    made = [Rival("relevance", policy, given) for policy in POLICIES]
    for policy in POLICIES:
        swept = P11[mean] if policy == "greedy" else (MIDDLE[mean],)
        made += [Rival("independent", policy, (*given, ("p11", p11))) for p11 in swept]
    return made


def items_on(source: SyntheticSource, rng: np.random.Generator) -> Network:
    """New items on the source's edges: Poisson(30) on each, relevant with its P."""
    rates = true_rates(source)
    edge = np.repeat(np.arange(len(rates)), rng.poisson(ITEMS_PER_EDGE, len(rates)))
    outcome = (rng.random(len(edge)) < rates[edge]).tolist()
    made = (Item(str(k), "study", None, source.pairs[e]) for k, e in enumerate(edge.tolist()))
    return network(source.name, made, lambda item_id: outcome[int(item_id)])


def true_rates(source: SyntheticSource) -> Floats:
    """P of every edge: 0, 0.2 or 0.9 with none, one or two relevant participants."""
    return np.asarray(np.array(RELEVANT_GIVEN)[source.relevance[_links(source)].sum(axis=1)])


def morans_i(links: Sequence[tuple[int, int]], values: Floats) -> float:
    """Spatial autocorrelation of `values` between those that `links` join (section 5.2.1); NaN if all are equal."""
    deviation = values - values.mean()
    square = float((deviation**2).sum())
    if square == 0.0 or not links:
        return float("nan")
    first, second = np.array(links).T
    return float(len(values) / len(links) * (deviation[first] * deviation[second]).sum() / square)


def moran(source: SyntheticSource) -> tuple[float, float]:
    """Of the participants' relevance, and of the edges' P, where edges that share a participant are neighbours."""
    links = _links(source)
    at: dict[int, list[int]] = {}
    for e, pair in enumerate(links.tolist()):
        for end in pair:
            at.setdefault(end, []).append(e)
    meeting = [(e, f) for edges in at.values() for i, e in enumerate(edges) for f in edges[:i]]
    nodes = morans_i([(u, v) for u, v in links.tolist()], source.relevance.astype(np.float64))
    return nodes, morans_i(meeting, true_rates(source))


def _links(source: SyntheticSource) -> Any:
    """Shape (edges, 2): participants are named by their numbers."""
    return np.array([[int(name[1:]) for name in pair] for pair in source.pairs])


def _network(source: SyntheticSource, rho: float) -> dict[str, Any]:
    nodes, edges = moran(source)
    return {
        "rho": rho,
        "participants": len(source.relevance),
        "pairs": _links(source).tolist(),
        "relevant": source.relevance.tolist(),
        "moran_nodes": nodes,
        "moran_edges": edges,
    }


def _moran_of_many(rho: float, size: Size, seed: int) -> dict[str, Any]:
    values = [moran(Case("many", rho, 0.25, seed, k).source(size.edges)) for k in range(size.runs)]
    nodes, edges = (mean_se([v for v in column if np.isfinite(v)]) for column in zip(*values, strict=True))
    return {"rho": rho, "nodes": nodes, "edges": edges}
