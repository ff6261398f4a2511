"""Bayes linear beside the exact Markov random field that made the data (sections 5.1.2 and 5.1.3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from haystream.events import Policy
from haystream_service.experiments import tanzania_figures
from haystream_service.experiments.lemmas import LemmaModel
from haystream_service.experiments.parallel import workers
from haystream_service.experiments.summary import mean_se, paired
from haystream_service.experiments.terrorists import Density, World, linear_prior, world
from haystream_service.study.models.base import Floats, Model
from haystream_service.study.models.mrf import HOMOPHILY, MrfModel
from haystream_service.study.network import Network
from haystream_service.study.search import search

QUANTITIES = ("z_mean", "z_variance", "p_mean", "p_variance")
QUANTILES = (0.025, 0.25, 0.5, 0.75, 0.975)
"""The paper's boxes and whiskers."""
NEAR = 0.1
"""What the paper calls a small difference."""
ITEMS_PER_EDGE = 30.0
POLICIES = ("greedy", "epsilon-greedy", "bayes-ucb")
MODELS = ("mrf", "relevance")
Advance = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run. `checkpoints`: the numbers of observations at which models are compared."""

    sets: int
    checkpoints: tuple[int, ...]
    runs: int
    steps: int
    densities: tuple[Density, ...] = ("sparse", "dense")

    @property
    def tasks(self) -> int:
        """How often `advance` is called."""
        return 2 * (len(self.densities) * self.sets + self.runs)


FULL = Size(sets=250, checkpoints=(10, 50, 100, 150, 200, 250, 300), runs=50, steps=500)
"""The paper's numbers; it does not say how long its searches were."""
QUICK = Size(sets=20, checkpoints=(50, 150, 300), runs=4, steps=200)


def run(*, size: Size = FULL, seed: int = 0, processes: int = 1, advance: Advance = lambda: None) -> dict[str, Any]:
    """Both experiments under both prior conditionals; JSON-ready.

    Raises:
        UserError: the data are not there.
    """
    accuracy: list[dict[str, Any]] = []
    decisions: list[dict[str, Any]] = []
    with workers(processes, advance) as spread:
        for density, conditional in product(size.densities, (1, 2)):
            cases = [Case(density, conditional, seed, k) for k in range(size.sets)]
            differences = spread(partial(compare, checkpoints=size.checkpoints), cases)
            accuracy += _boxes(density, conditional, size.checkpoints, differences)
        for conditional in (1, 2):
            cases = [Case("sparse", conditional, seed, k) for k in range(size.runs)]
            decisions += _curves(conditional, spread(partial(decide, steps=size.steps), cases))
    return {
        "experiment": "tanzania",
        "section": "5.1.2, 5.1.3",
        "seed": seed,
        "sets": size.sets,
        "runs": size.runs,
        "steps": size.steps,
        "networks": [_network(world(density, c, seed), density, c) for density in size.densities for c in (1, 2)],
        "accuracy": accuracy,
        "decisions": decisions,
    }


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """The networks, the box plots of each prior conditional, and the curves."""
    boxes = [
        tanzania_figures.boxes(
            result, density, conditional, folder / f"tanzania-differences-{density}-{conditional}.png"
        )
        for density, conditional in sorted({(row["density"], row["conditional"]) for row in result["accuracy"]})
    ]
    return [
        tanzania_figures.networks(result, folder / "tanzania-networks.png"),
        *boxes,
        tanzania_figures.curves(result, folder / "tanzania-decisions.png"),
    ]


@dataclass(frozen=True, slots=True)
class Case:
    """One set of observations, or one set of items to search: the number `k` of those of a network."""

    density: Density
    conditional: int
    seed: int
    k: int

    @property
    def world(self) -> World:
        """The network, the same for every k."""
        return world(self.density, self.conditional, self.seed)

    def rng(self, purpose: int) -> np.random.Generator:
        """Chance that nothing but the case decides."""
        return np.random.default_rng([self.seed, self.conditional, self.k, purpose])

    def models(self, network: Network) -> tuple[MrfModel, LemmaModel]:
        """The field, and Bayes linear with the field's mean and covariance."""
        linear = linear_prior(self.density, self.conditional, self.seed)
        field = MrfModel(network, factor=HOMOPHILY, conditional=self.world.conditional)
        return field, LemmaModel(network, *linear)


def compare(case: Case, *, checkpoints: Sequence[int]) -> dict[str, Floats]:
    """Field less Bayes linear after so many observations on random edges: shapes (checkpoints, variables)."""
    made, rng = case.world, case.rng(purpose=2)
    network = made.network(np.ones(len(made.pairs), dtype=np.int64), rng)
    field, linear = case.models(network)
    everyone = np.arange(len(network.participants), dtype=np.int32)
    rows: dict[str, list[Floats]] = {name: [] for name in QUANTITIES}
    for k in range(1, max(checkpoints) + 1):
        edge = int(rng.integers(len(made.pairs)))
        relevant = bool(rng.random() < made.rates[edge])
        field.observe((edge,), relevant)
        linear.observe((edge,), relevant)
        if k in checkpoints:
            z = field.marginals().mean
            exact = (z, z * (1.0 - z), *field.posteriors())
            p = linear.posteriors()
            adjusted = (*linear.engine.readings.participants(everyone), *p)
            for name, a, b in zip(QUANTITIES, exact, adjusted, strict=True):
                rows[name].append(a - b)
    return {name: np.array(values) for name, values in rows.items()}


def decide(case: Case, *, steps: int) -> dict[tuple[str, str], Floats]:
    """Relevant items found by each screening, for each (model, policy): the same items and ties for all."""
    made, rng = case.world, case.rng(purpose=3)
    network = made.network(np.maximum(rng.poisson(ITEMS_PER_EDGE, len(made.pairs)), 1), rng)
    curves = {}
    for name in POLICIES:
        models: tuple[Model, Model] = case.models(network)
        for model_name, model in zip(MODELS, models, strict=True):
            found = search(network, model, Policy(name), steps=steps, seed=case.k)
            curves[model_name, name] = found.curve.astype(np.float64)
    return curves


def _boxes(
    density: Density, conditional: int, checkpoints: Sequence[int], sets: Sequence[dict[str, Floats]]
) -> list[dict[str, Any]]:
    rows = []
    for name in QUANTITIES:
        values = np.stack([differences[name] for differences in sets], axis=1)  # (checkpoints, sets, variables)
        for observations, each in zip(checkpoints, values, strict=True):
            rows.append(
                {
                    "density": density,
                    "conditional": conditional,
                    "quantity": name,
                    "observations": observations,
                    "quantiles": np.quantile(each, QUANTILES).tolist(),
                    "mean": float(each.mean()),
                    "mean_absolute": mean_se(np.abs(each).mean(axis=1)),
                    "near": float((np.abs(each) < NEAR).mean()),
                }
            )
    return rows


def _curves(conditional: int, runs: Sequence[dict[tuple[str, str], Floats]]) -> list[dict[str, Any]]:
    rows = []
    for policy in POLICIES:
        found = {model: np.array([run[model, policy] for run in runs]) for model in MODELS}
        totals = {model: curves[:, -1] for model, curves in found.items()}
        rows += [
            {
                "conditional": conditional,
                "policy": policy,
                "model": model,
                "found": mean_se(totals[model]),
                "less_than_mrf": paired(totals["mrf"], totals[model]),
                "curve": found[model].mean(axis=0).tolist(),
            }
            for model in MODELS
        ]
    return rows


def _network(made: World, density: Density, conditional: int) -> dict[str, Any]:
    return {
        "density": density,
        "conditional": conditional,
        "participants": list(made.people),
        "relevant": made.relevant.tolist(),
        "pairs": made.pairs.tolist(),
        "rates": made.rates.tolist(),
    }
