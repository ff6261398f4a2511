"""What a model of the edges' rates offers to a search, and how one is made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from haystream.collection.item_sets import share_of
from haystream_service.errors import UserError
from haystream_service.study.network import Network

Floats = NDArray[np.float64]
Options = Mapping[str, float]

NO_OPTIONS: Options = MappingProxyType({})


class Model(Protocol):
    """What is believed of P, the rate at which an edge's items turn out relevant."""

    def observe(self, edges: Sequence[int], relevant: bool) -> None:
        """Take in the verdict on an item of k edges: 1/k screened on each, outcome/k of it relevant."""
        ...

    def posteriors(self) -> tuple[Floats, Floats]:
        """Mean and variance of P, each of shape (edges,); not to be written to, good until the next verdict."""
        ...


@runtime_checkable
class Learning(Protocol):
    """A model that learns a mean that all edges share."""

    def common(self) -> tuple[Floats, float]:
        """d E[P] / d mean, shape (edges,), and the mean, of the last `posteriors`."""
        ...


@dataclass(frozen=True, slots=True)
class Build:
    """Makes a model for a network. `defaults` names the model's constants."""

    make: Callable[[Network, Options], Model]
    """Gets every option. Imports what is an extra only when it is called, and raises `UserError` without it."""
    defaults: Options = field(default_factory=lambda: NO_OPTIONS)

    def __call__(self, network: Network, options: Options = NO_OPTIONS) -> Model:
        """The model before any verdict. Raises `UserError` for an option that it does not have."""
        for name in options:
            if name not in self.defaults:
                known = ", ".join(self.defaults) or "none"
                raise UserError(f"there is no option {name!r} here: expected one of {known}")
        return self.make(network, {**self.defaults, **options})


class Counts:
    """Screened n and relevant y, of edges or of participants."""

    def __init__(self, size: int) -> None:
        self.n = np.zeros(size)
        self.y = np.zeros(size)

    def add(self, edges: Sequence[int], relevant: bool, *, at: NDArray[np.int32] | None = None) -> None:
        """One item more, on these edges; counted at `at[edge]` where that is given, one end of each edge."""
        share = share_of(len(edges))
        for edge in edges:
            place = edge if at is None else at[edge]
            self.n[place] += share
            self.y[place] += share * relevant


def beta_moments(mean: Floats, concentration: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of Beta(m c, (1 − m) c)."""
    return mean, mean * (1.0 - mean) / (concentration + 1.0)
