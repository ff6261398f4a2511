"""Searches of four Enron networks (section 5.3).

The paper's networks have 234/275, 448/630, 669/1133 and 1641/1957 participants and edges; ours are the nearest that
public copies of the corpus give by the same rules. The Markov random field searches wherever exact inference is
within reach: on all but the largest, where the paper has it on the smallest alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from haystream.events import TABLE_2
from haystream_service.bench.graphs import data_path
from haystream_service.experiments import enron_figures
from haystream_service.experiments.parallel import workers
from haystream_service.experiments.searches import GOOD, POLICIES, Rival, Trace, rows, thinned, traces
from haystream_service.study.models.mrf import MrfModel, moment_factor
from haystream_service.study.network import Network, read_network

FILES: Mapping[str, str] = MappingProxyType(
    {
        "253/271": "enron/dyadic_n253_e271.csv.gz",
        "453/502": "enron/dyadic_n453_e502.csv.gz",
        "642/731": "enron/dyadic_n642_e731.csv.gz",
        "1444/1836": "enron/dyadic_n1444_e1836.csv.gz",
        "multi": "enron/multi.csv.gz",
    }
)
"""By participants and edges, where every item has two parties; `MULTI` has items with many recipients."""
MULTI = "multi"
"""5,585 participants, 31,313 edges. The paper has no such network."""
NETWORKS = tuple(name for name in FILES if name != MULTI)
"""Those of section 5.3."""
SMALL, DETAILED, LARGE = "253/271", "642/731", "1444/1836"
"""The small network of 5.3.1; the one that 5.3.2 looks at closely; the one where the field is out of reach."""
MEAN = 0.25
"""E[Z] of every model's prior."""
P11 = (0.0, 0.04, 0.08, 0.13, 0.17, 0.21)
MIDDLE = 0.13
"""The paper's choice for its figures."""
HUB = 10
"""Contacts of a participant whom the field is sure of before any data."""
REALISATIONS = 10
"""Searches drawn one by one, as in the paper."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run."""

    runs: int
    steps: int
    networks: tuple[str, ...] = NETWORKS
    p11: tuple[float, ...] = P11

    @property
    def tasks(self) -> int:
        """How often `advance` is called."""
        return len(self.networks) * self.runs


FULL = Size(runs=50, steps=1000)
"""The paper's, but for 50 repetitions in place of 30 on the small network."""
QUICK = Size(runs=4, steps=400, networks=(SMALL, DETAILED), p11=(0.0, MIDDLE))


@dataclass(frozen=True, slots=True)
class Case:
    """One repetition on one network."""

    network: str
    seed: int
    k: int


def run(
    *, size: Size = FULL, seed: int = 0, processes: int = 1, advance: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Every model under every policy on every network; JSON-ready.

    Raises:
        UserError: the data are not there.
    """
    networks, results, details = [], [], {}
    with workers(processes, advance) as spread:
        for name in size.networks:
            runs = spread(partial(repeat, size=size), [Case(name, seed, k) for k in range(size.runs)])
            results += [{"network": name, **row} for row in rows(runs)]
            networks.append(_described(name, load(name)))
            if name == DETAILED:
                details = _details(runs)
    return {
        "experiment": "enron",
        "section": "5.3",
        "seed": seed,
        "runs": size.runs,
        "steps": size.steps,
        "networks": networks,
        "results": results,
        "details": details,
    }


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """Totals, the small network's curves, and the close look at one network."""
    drawn = [
        enron_figures.totals(result, folder / "enron-totals.png"),
        enron_figures.curves(result, SMALL, MIDDLE, folder / "enron-small.png"),
    ]
    if result["details"]:
        drawn.append(enron_figures.details(result, folder / "enron-details.png"))
    return drawn


def repeat(case: Case, *, size: Size) -> dict[Rival, Trace]:
    """All rivals in one random order of the items."""
    seed = int(np.random.SeedSequence([case.seed, case.k]).generate_state(1, np.uint32)[0])
    return traces(load(case.network), rivals(case.network, size.p11), steps=size.steps, seed=seed)


def rivals(name: str, p11: Sequence[float]) -> list[Rival]:
    """Bayes linear (E[Z] = 0.25, δ = 0.8, Table 1c) and the other models, with the paper's priors. Beside them the
    field with a prior that has the mean it is meant to have.
    """
    made = [Rival("relevance", policy) for policy in POLICIES]
    swept = ("independent",) if name == LARGE else ("independent", "mrf")
    for model in swept:
        # Beyond the small network, where the paper has no field, one prior of it will do.
        values = (MIDDLE,) if model == "mrf" and name != SMALL else p11
        made += [Rival(model, policy, (("p11", value),)) for policy in POLICIES for value in values]
    if name != LARGE:
        made += [Rival("mrf", policy, (("p11", MIDDLE), ("balanced", 1.0))) for policy in POLICIES]
    return made


@cache
def load(name: str) -> Network:
    """A network by its name. Raises `UserError` where its file is not there."""
    return read_network(data_path(FILES[name], "enron"))


def _described(name: str, network: Network) -> dict[str, Any]:
    levels = np.percentile(network.rates, GOOD)
    return {
        "network": name,
        "participants": len(network.participants),
        "edges": network.edges,
        "items": len(network.relevant),
        "relevant": int(network.relevant.sum()),
        "good_above": dict(zip(map(str, GOOD), levels.tolist(), strict=True)),
        "good_items": {
            str(p): int(network.items_on[network.rates > level].sum())
            for p, level in zip(GOOD, levels, strict=True)
        },
        "field": None if name == LARGE else _field_prior(network),
        "pairs": np.column_stack([network.tail, network.head]).tolist(),
        "rates": network.rates.tolist(),
    }


def _field_prior(network: Network) -> dict[str, float]:
    """What the field expects of the participants before any data, with the clique factor that the paper matches by
    its own mean of 0.25: E[Z] on average, and the largest of those with many contacts.
    """
    field = MrfModel(network, factor=moment_factor(MEAN, MIDDLE), conditional=TABLE_2)
    mean = field.marginals().mean
    return {"mean": float(mean.mean()), "hubs": float(mean[network.collection.graph.degree >= HUB].max())}


def _details(runs: Sequence[dict[Rival, Trace]]) -> dict[str, Any]:
    """Of the greedy policy: each search's screenings of good edges, and the curves of the first few searches."""
    chosen = {
        "relevance": Rival("relevance", "greedy"),
        "independent": Rival("independent", "greedy", (("p11", MIDDLE),)),
    }
    made: dict[str, Any] = {}
    for model, rival in chosen.items():
        mine = [run[rival] for run in runs]
        made[model] = {
            "p11": rival.p11,
            "good": {str(p): [float(trace.good[k][-1]) for trace in mine] for k, p in enumerate(GOOD)},
            "realisations": [
                {
                    "found": thinned(trace.found),
                    "changes": thinned(trace.changes),
                    "good": {str(p): thinned(trace.good[k]) for k, p in enumerate(GOOD)},
                }
                for trace in mine[:REALISATIONS]
            ],
        }
    return {"network": DETAILED, "models": made}
