"""The line network of section 5.1.1: three participants, two edges, seven screenings, followed one by one.

The Bayes linear prior is the mean and covariance of the Markov random field's own prior.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from haystream.collection.collection import Collection
from haystream.engines.reference import ReferenceEngine
from haystream.events import TABLE_1, Covariance, Prior, Query
from haystream.query.engine_choice import make_engine
from haystream_service.experiments import line_figure
from haystream_service.study.models import mrf
from haystream_service.study.models.base import Floats

PEOPLE = ("z0", "z1", "z2")
PAIRS = np.array([[0, 1], [1, 2]])
CONDITIONAL = TABLE_1
SETS: dict[str, tuple[tuple[int, int], ...]] = {
    "mixed": ((0, 0), (1, 0), (1, 1), (1, 0), (0, 0), (1, 1), (0, 1)),
    "all-relevant": ((0, 1), (1, 1), (1, 1), (1, 1), (0, 1), (1, 1), (0, 1)),
}
"""The two sets of observations, in order: (edge, relevant). Edge 0 joins Z₀ and Z₁, edge 1 joins Z₁ and Z₂."""
MODELS = ("mrf", "constrained", "unconstrained", "local")
TOLERANCE = 1e-10
"""Of the local engine, so that what parts it from the reference engine is the linear form and nothing else."""


QUANTITIES = ("z_mean", "z_variance", "p_mean", "p_variance")


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Means and variances, shapes (3,) for Z and (2,) for P."""

    z_mean: Floats
    z_variance: Floats
    p_mean: Floats
    p_variance: Floats


def run() -> dict[str, Any]:
    """Every model's beliefs after 0, 1, … 7 observations of both sets; JSON-ready, no chance in it."""
    followed = {name: [follow(seen[:k]) for k in range(len(seen) + 1)] for name, seen in SETS.items()}
    return {
        "experiment": "line",
        "section": "5.1.1",
        "observations": {name: [{"edge": e, "relevant": r} for e, r in seen] for name, seen in SETS.items()},
        "results": [
            {"observations": name, "model": model, **_series([step[model] for step in steps])}
            for name, steps in followed.items()
            for model in MODELS
        ],
        "differences": [
            {"observations": name, "model": model, **_differences(steps[1:], model)}
            for name, steps in followed.items()
            for model in MODELS[1:]
        ],
    }


def follow(seen: Sequence[tuple[int, int]]) -> dict[str, Beliefs]:
    """What each model believes after these observations."""
    n, y = np.zeros(2), np.zeros(2)
    for edge, relevant in seen:
        n[edge] += 1
        y[edge] += relevant
    collection, prior = Collection("line"), bayes_linear_prior()
    collection.graph.intern((PEOPLE[u], PEOPLE[v]) for u, v in PAIRS.tolist())
    reference = ReferenceEngine(collection.graph, prior)
    local = make_engine(Query("line", prior=prior), collection, TOLERANCE)
    for engine in (reference, local):
        for edge in range(2):
            engine.record(edge, screened=n[edge], relevant=y[edge])
        engine.settle()
    everyone, edges = np.arange(3, dtype=np.int32), np.arange(2, dtype=np.int32)
    return {
        "mrf": _exact(n, y),
        "constrained": Beliefs(*reference.participants(everyone), *reference.edges(edges)),
        "unconstrained": _unconstrained(reference, n, y),
        "local": Beliefs(*local.readings.participants(everyone), *local.readings.edges(edges)),
    }


def bayes_linear_prior() -> Prior:
    """The field's prior mean and covariance, as a prior of the core."""
    mean, covariance = mrf.prior_moments(3, PAIRS, mrf.HOMOPHILY)
    rows = tuple(tuple(row) for row in covariance.tolist())
    return Prior(
        model="relevance",
        conditional=CONDITIONAL,
        participants=dict(zip(PEOPLE, mean.tolist(), strict=True)),
        covariance=Covariance(PEOPLE, rows),
    )


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """One figure for each set of observations."""
    return [line_figure.draw(result, name, folder / f"line-{name}.png") for name in SETS]


def _exact(n: Floats, y: Floats) -> Beliefs:
    marginals = mrf.enumerated(3, PAIRS, mrf.potentials(mrf.HOMOPHILY, CONDITIONAL, n, y))
    mean = marginals.mean
    return Beliefs(mean, mean * (1.0 - mean), *mrf.mixture(CONDITIONAL, marginals.joint, n, y))


def _unconstrained(engine: ReferenceEngine, n: Floats, y: Floats) -> Beliefs:
    """Before Lemma 2. Ĉ is the constrained covariance less v vᵀ/(1 + q), v what the constraint took off the mean.

    The pair's joint is p11 = cov + E_u E_v whatever its sign, as the unconstrained update has it.
    """
    mean, variance = engine.readings.unconstrained(np.arange(3, dtype=np.int32))
    v = mean - engine.mean
    covariance = engine.covariance - np.outer(v, v) / (1.0 + engine.readings.discrepancy())
    tail, head = mean[PAIRS[:, 0]], mean[PAIRS[:, 1]]
    both = covariance[PAIRS[:, 0], PAIRS[:, 1]] + tail * head
    joint = np.stack([1.0 - tail - head + both, head - both, tail - both, both], axis=1)
    return Beliefs(mean, variance, *mrf.mixture(CONDITIONAL, joint, n, y))


def _series(beliefs: Sequence[Beliefs]) -> dict[str, list[list[float]]]:
    """For each quantity one list a variable, over the number of observations."""
    return {name: np.array([getattr(each, name) for each in beliefs]).T.tolist() for name in QUANTITIES}


def _differences(steps: Sequence[dict[str, Beliefs]], model: str) -> dict[str, Any]:
    """The mean and the largest absolute difference from the field, over variables and numbers of observations."""
    gaps = {
        name: np.abs([getattr(step["mrf"], name) - getattr(step[model], name) for step in steps])
        for name in QUANTITIES
    }
    return {name: {"mean": float(gap.mean()), "max": float(gap.max())} for name, gap in gaps.items()}
