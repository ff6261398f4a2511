"""Searches by several models on one network, and what the paper reports of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from haystream.events import Policy
from haystream_service.experiments.summary import mean_se, paired
from haystream_service.study.models import MODELS
from haystream_service.study.models.base import Floats
from haystream_service.study.network import Network
from haystream_service.study.search import Run, search

POLICIES = ("greedy", "epsilon-greedy", "bayes-ucb")
"""The paper's; ε is 0.1."""
GOOD = (95, 90)
"""Percentiles of the edges' true rates: an edge above is a good one (section 5.3.2)."""
THINNED = 10
"""Curves are kept at every tenth screening."""


class Rival(NamedTuple):
    """A model with its options, under a policy."""

    model: str
    policy: str
    options: tuple[tuple[str, float], ...] = ()

    @property
    def p11(self) -> float | None:
        """E[Z_u Z_v] of its prior, where it has one."""
        return dict(self.options).get("p11")

    @property
    def label(self) -> str:
        """The model's name in results: `mrf-balanced` is the field whose prior has the mean that was asked for."""
        return self.model + ("-balanced" if dict(self.options).get("balanced") else "")


@dataclass(frozen=True, slots=True)
class Trace:
    """One search; curves of shape (screened,)."""

    found: Floats
    changes: Floats
    """How often it had gone to another edge."""
    good: tuple[Floats, ...]
    """Items screened on edges above each of `GOOD`."""


def traces(network: Network, rivals: Iterable[Rival], *, steps: int, seed: int) -> dict[Rival, Trace]:
    """Each rival's search over the same items in the same random order. Items have two parties."""
    levels = np.percentile(network.rates, GOOD)
    found = {}
    for rival in rivals:
        model = MODELS[rival.model](network, dict(rival.options))
        run = search(network, model, Policy(rival.policy), steps=steps, seed=seed)
        found[rival] = _trace(network, run, levels)
    return found


def rows(runs: Sequence[dict[Rival, Trace]], *, curves: bool = True) -> list[dict[str, Any]]:
    """A row for each rival: means and standard errors over runs, and how much less it found than Bayes linear."""
    made = []
    for rival in runs[0]:
        mine = [run[rival] for run in runs]
        found = [trace.found[-1] for trace in mine]
        led = [run[Rival("relevance", rival.policy, _matching(run, rival))].found[-1] for run in runs]
        row: dict[str, Any] = {
            "model": rival.label,
            "policy": rival.policy,
            "p11": rival.p11,
            "found": mean_se(found),
            "less_than_relevance": paired(led, found),
            "edge_changes": mean_se([trace.changes[-1] for trace in mine]),
            "good": {str(p): mean_se([trace.good[k][-1] for trace in mine]) for k, p in enumerate(GOOD)},
        }
        if curves:
            row["curve"] = thinned(np.mean([trace.found for trace in mine], axis=0))
            row["changes_curve"] = thinned(np.mean([trace.changes for trace in mine], axis=0))
        made.append(row)
    return made


def thinned(curve: Floats) -> list[float]:
    """The curve at the 10th, 20th, … screening."""
    return [float(value) for value in curve[THINNED - 1 :: THINNED]]


def _matching(run: dict[Rival, Trace], rival: Rival) -> tuple[tuple[str, float], ...]:
    """The options of the Bayes linear rival under the same policy."""
    (options,) = (r.options for r in run if r.model == "relevance" and r.policy == rival.policy)
    return options


def _trace(network: Network, run: Run, levels: Floats) -> Trace:
    rates = network.rates[run.choice]
    return Trace(
        found=run.curve.astype(np.float64),
        changes=run.changes.astype(np.float64),
        good=tuple(np.cumsum(rates > level).astype(np.float64) for level in levels),
    )
