"""What a simulation is to run: settings of models under settings of policies, over again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from haystream.events import Policy
from haystream.ranking.policies import POLICIES
from haystream_service.errors import UserError
from haystream_service.study.models import MODELS

POLICY_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "epsilon-greedy": ("epsilon",),
    "look-ahead": ("horizon",),
    "look-ahead-by-set": ("horizon",),
}

Given = Mapping[str, tuple[float, ...]]
"""The values to try of each option, by its name, or by model.name."""


class Setting(NamedTuple):
    """A model or a policy, and those of its options that were given (the rest are at their defaults)."""

    name: str
    options: tuple[tuple[str, float], ...] = ()

    @property
    def label(self) -> str:
        """As it is called in tables."""
        return " ".join([self.name, *(f"{name}={value:g}" for name, value in self.options)])


Pair = tuple[Setting, Setting]
"""A model and a policy."""


def pair_label(pair: Pair) -> str:
    """As it is called in tables."""
    return f"{pair[0].label}, {pair[1].label}"


class Task(NamedTuple):
    """One search."""

    model: Setting
    policy: Setting
    query: str
    run: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The searches of a simulation. Run r has the same seed, so the same order of items, under every setting."""

    pairs: tuple[Pair, ...]
    queries: tuple[str, ...]
    runs: int

    @property
    def models(self) -> tuple[Setting, ...]:
        """The pairs', in order."""
        return tuple(dict.fromkeys(model for model, _ in self.pairs))

    @property
    def policies(self) -> tuple[Setting, ...]:
        """The pairs', in order."""
        return tuple(dict.fromkeys(policy for _, policy in self.pairs))

    def tasks(self) -> list[Task]:
        """All searches, run by run, so that early results are of every setting."""
        whats = product(range(self.runs), self.queries, self.pairs)
        return [Task(model, policy, query, run) for run, query, (model, policy) in whats]


def plan(models: Sequence[str], policies: Sequence[str], queries: Iterable[str], runs: int, given: Given) -> Plan:
    """Every model of these names with every policy.

    An option with several values makes as many settings of all that have it.

    Raises:
        UserError: an unknown name, an option that none of the named have, or a value that a policy cannot have.
    """
    _check("model", models, MODELS)
    _check("policy", policies, POLICIES)
    model_options = {name: tuple(MODELS[name].defaults) for name in models}
    policy_options = {name: POLICY_OPTIONS.get(name, ()) for name in policies}
    known = {
        spelt
        for name, options in (model_options | policy_options).items()
        for option in options
        for spelt in (option, f"{name}.{option}")
    }
    for spelt in given:
        if spelt not in known:
            names = ", ".join(sorted(name for name in known if "." not in name)) or "none"
            raise UserError(f"there is no option {spelt!r} to what is simulated: expected one of {names}")
    pairs = product(_settings(model_options, given), _settings(policy_options, given))
    made = Plan(tuple(pairs), tuple(queries), runs)
    for setting in made.policies:
        policy(setting)
    return made


def pair(text: str) -> Pair:
    """`MODEL:POLICY`, or with options `MODEL OPTION=VALUE …:POLICY OPTION=VALUE …`. Raises `UserError`."""
    sides = [side.split() for side in text.split(":")]
    if len(sides) != 2 or not all(sides):
        raise UserError(f"{text!r} is no pair: expected MODEL:POLICY")
    given = {}
    for name, *options in sides:
        for option in options:
            spelt, _, value = option.partition("=")
            try:
                given[f"{name}.{spelt}"] = (float(value),)
            except ValueError:
                raise UserError(f"{text!r}: expected name=number, not {option!r}") from None
    (model, *_), (policy, *_) = sides
    (made,) = plan([model], [policy], (), 0, given).pairs
    return made


def policy(setting: Setting) -> Policy:
    """The core's policy. Raises `UserError` for values that it cannot have."""
    values = {"epsilon": Policy().epsilon, "horizon": Policy().horizon, **dict(setting.options)}
    if not 0.0 <= values["epsilon"] <= 1.0:
        raise UserError(f"epsilon is {values['epsilon']:g}: expected a probability")
    if values["horizon"] < 1 or values["horizon"] != int(values["horizon"]):
        raise UserError(f"horizon is {values['horizon']:g}: expected a whole number of items")
    return Policy(setting.name, epsilon=values["epsilon"], horizon=int(values["horizon"]))


def seed_of(seed: int, run: int) -> int:
    """The seed of a run's own chance."""
    return int(np.random.SeedSequence([seed, run]).generate_state(1, np.uint64)[0])


def _check(what: str, names: Sequence[str], known: Iterable[str]) -> None:
    if not names:
        raise UserError(f"name a {what}: one of {', '.join(known)}")
    for name in names:
        if name not in known:
            raise UserError(f"there is no {what} {name!r}: expected one of {', '.join(known)}")


def _settings(options: Mapping[str, Sequence[str]], given: Given) -> tuple[Setting, ...]:
    made = []
    for name, known in options.items():
        values = {o: given.get(f"{name}.{o}", given.get(o)) for o in known}
        swept = {option: tried for option, tried in values.items() if tried is not None}
        made += [Setting(name, tuple(zip(swept, chosen, strict=True))) for chosen in product(*swept.values())]
    return tuple(made)
