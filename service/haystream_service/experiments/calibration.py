"""Expected remaining against what does remain: how often mean ± 2 sd holds it, and the bias.

On the Enron networks, of which one has items with many recipients; on simulated mail (the paper's, P = 0, 0.2 or
0.9); and on networks drawn from `rates`: there all that the model supposes is true, so that what is missed is
missing from the arithmetic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from haystream.events import Item, ModelName, Outcome, Policy, Prior, Query, Verdict
from haystream.models import DEFAULT_PRIORS
from haystream.models.concentration import LOG_FACTOR_SD
from haystream.models.graph_prior import dense_precision
from haystream.query.state import QueryState
from haystream_service.experiments import calibration_figure, caveman, enron
from haystream_service.experiments.parallel import workers
from haystream_service.experiments.summary import mean_se
from haystream_service.sources import ITEMS_PER_EDGE, synthetic
from haystream_service.study.models import MODELS
from haystream_service.study.models.base import Floats
from haystream_service.study.models.bayes_linear import BayesLinear
from haystream_service.study.network import Network, network
from haystream_service.study.search import Run, search

CAVEMAN, DRAWN = "caveman", "drawn"
"""Grounds beside the networks of `enron.FILES`; each repetition has a network of its own."""

DRAWN_PRIOR = replace(DEFAULT_PRIORS["rates"], mean=0.3, weight=30.0, participant=30.0, edge=30.0)
"""What `DRAWN` networks are drawn from, and searched with. Second moments are all that the model has; with these
normal distributions keep nearly every P inside [0, 1]."""

RANDOM = "random"
"""In place of a policy: items in random order."""


class Rival(NamedTuple):
    """A model, and what chose the items that it learned from."""

    model: ModelName
    policy: str


RIVALS = (
    *(Rival("rates", policy) for policy in ("look-ahead-by-set", "look-ahead", "greedy", RANDOM)),
    *(Rival("relevance", policy) for policy in ("look-ahead", "greedy")),
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run. `screened`: when it is asked what remains, ascending."""

    runs: int
    screened: tuple[int, ...] = (100, 300, 1000)
    grounds: tuple[str, ...] = (*enron.FILES, CAVEMAN, DRAWN)
    edges: int = caveman.EDGES
    """Of simulated networks, about."""

    @property
    def tasks(self) -> int:
        """How often `advance` is called."""
        return len(self.grounds) * self.runs


FULL = Size(runs=20)
QUICK = Size(runs=4, screened=(100, 300), grounds=(enron.SMALL, DRAWN))


@dataclass(frozen=True, slots=True)
class Case:
    """One repetition on one ground."""

    ground: str
    seed: int
    k: int


class Reading(NamedTuple):
    """What is expected to remain, and what does."""

    mean: float
    sd: float
    truth: int
    plain_mean: float
    """With the prior's concentrations as they are set, instead of learned."""
    plain_sd: float
    log_c: float
    """What was learned of them, in octaves."""


def run(
    *, size: Size = FULL, seed: int = 0, processes: int = 1, advance: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """A row for every ground, rival and number of screenings; JSON-ready.

    Raises:
        UserError: the data are not there.
    """
    results = []
    with workers(processes, advance) as spread:
        for ground in size.grounds:
            runs = spread(partial(repeat, size=size), [Case(ground, seed, k) for k in range(size.runs)])
            results += [
                {"network": ground, **rival._asdict(), "screened": screened, **row([r[rival][i] for r in runs])}
                for rival in runs[0]
                for i, screened in enumerate(size.screened)
            ]
    return {"experiment": "calibration", "seed": seed, "runs": size.runs, "results": results}


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """Expected over true remaining."""
    return [calibration_figure.ratios(result, folder / "calibration.png")]


def row(readings: Sequence[Reading]) -> dict[str, Any]:
    """Over repetitions. `covered`: how often mean ± 2 sd holds the truth; `below`: how often the truth lies below,
    `above`: above it, so that more remains than a lead is told.
    """
    mean, sd, truth, plain_mean, plain_sd, log_c = np.array(readings).T
    return {
        "truth": mean_se(truth),
        "expected": mean_se(mean),
        "bias": mean_se(mean - truth),
        "ratio": float(mean.sum() / truth.sum()) if truth.any() else None,
        "sd": mean_se(sd),
        "error": float(np.sqrt(((mean - truth) ** 2).mean())),
        "covered": float((np.abs(mean - truth) <= 2.0 * sd).mean()),
        "below": float((truth < mean - 2.0 * sd).mean()),
        "above": float((truth > mean + 2.0 * sd).mean()),
        "concentration": mean_se(log_c),
        "plain": {
            "ratio": float(plain_mean.sum() / truth.sum()) if truth.any() else None,
            "sd": mean_se(plain_sd),
            "error": float(np.sqrt(((plain_mean - truth) ** 2).mean())),
            "covered": float((np.abs(plain_mean - truth) <= 2.0 * plain_sd).mean()),
        },
        "readings": [reading._asdict() for reading in readings],
    }


def repeat(case: Case, *, size: Size) -> dict[Rival, list[Reading]]:
    """Each rival's search over the same items in the same random order."""
    seed = int(np.random.SeedSequence([case.seed, case.k]).generate_state(1, np.uint32)[0])
    searched = ground(case, size.edges)
    rivals = [rival for rival in RIVALS if case.ground != DRAWN or rival.model == "rates"]
    made = {}
    for rival in rivals:
        prior = DRAWN_PRIOR if case.ground == DRAWN else DEFAULT_PRIORS[rival.model]
        chosen = _search(searched, prior, rival.policy, steps=size.screened[-1], seed=seed)
        made[rival] = readings(searched, prior, chosen, size.screened)
    return made


def ground(case: Case, edges: int) -> Network:
    """The network of a repetition. Raises `UserError` where its file is not there."""
    if case.ground in enron.FILES:
        return enron.load(case.ground)
    rng = np.random.default_rng([case.seed, case.k])
    source = synthetic(seed=case.seed + 1 + case.k, edges=edges)
    if case.ground == CAVEMAN:
        return caveman.items_on(source, rng)
    return drawn(source.pairs, DRAWN_PRIOR, rng)


def drawn(pairs: Sequence[tuple[str, str]], prior: Prior, rng: np.random.Generator) -> Network:
    """A network whose rates are a draw from `prior`: M, x and η normal, Poisson(30) items on each pair, but one at
    least: the graph is the one that the rates are drawn on.
    """
    bare = network(DRAWN, (Item(str(e), "study", None, pair) for e, pair in enumerate(pairs)), lambda _: False)
    rates = draw_rates(bare, prior, rng)
    edge = np.repeat(np.arange(bare.edges), np.maximum(rng.poisson(ITEMS_PER_EDGE, bare.edges), 1))
    outcome = (rng.random(len(edge)) < rates[edge]).tolist()
    names = bare.collection.graph.names
    items = (Item(str(k), "study", None, names(e)) for k, e in enumerate(edge.tolist()))
    return network(DRAWN, items, lambda item_id: outcome[int(item_id)])


def draw_rates(bare: Network, prior: Prior, rng: np.random.Generator) -> Floats:
    """P of every edge: R_u = M + x_u, P = (R_u + R_v)/2 + η, kept inside [0, 1]; shape (edges,)."""
    sd = np.sqrt(prior.mean * (1.0 - prior.mean))
    sigma = np.linalg.inv(dense_precision(bare.collection.graph, prior.correlation))
    scale = np.sqrt(prior.participant * sigma.diagonal())
    x = np.linalg.cholesky(sigma) @ rng.normal(size=len(sigma)) / scale
    common = rng.normal() / np.sqrt(prior.weight)
    own = rng.normal(size=bare.edges) / np.sqrt(prior.edge)
    P = prior.mean + sd * (common + 0.5 * (x[bare.tail] + x[bare.head]) + own)
    return np.asarray(np.clip(P, 0.0, 1.0))


def readings(searched: Network, prior: Prior, chosen: Run, screened: Sequence[int]) -> list[Reading]:
    """What a query that got these verdicts says after so many of them, and the truth."""
    collection = searched.collection
    collection.shared.clear()
    query = QueryState(Query("study", collection=collection.name, prior=prior), collection)
    made, left = [], int(searched.relevant.sum())
    for step, item in enumerate(chosen.item[: screened[-1]].tolist(), start=1):
        relevant = bool(searched.relevant[item])
        left -= relevant
        outcome = Outcome.RELEVANT if relevant else Outcome.IRRELEVANT
        query.apply_verdict(Verdict(str(step), "study", collection.item_ids[item], "study", outcome, step))
        if step in screened:
            query.finish()
            estimate = query.queue.remaining(query.engine)
            (log_c, doubt), slope = (
                query.engine.readings.concentration(),
                query.engine.readings.concentration_slope(),
            )
            plain_sd = float(np.sqrt(estimate.sd**2 - slope**2 * doubt))
            made.append(
                Reading(
                    estimate.mean, estimate.sd, left, estimate.mean - slope * log_c, plain_sd, log_c / LOG_FACTOR_SD
                )
            )
    return made


def _search(searched: Network, prior: Prior, policy: str, *, steps: int, seed: int) -> Run:
    if policy == RANDOM:
        return search(searched, MODELS["random"](searched), Policy("greedy"), steps=steps, seed=seed)
    return search(searched, BayesLinear(searched, prior), Policy(policy), steps=steps, seed=seed)
