"""What a query may say of its model: the prior that it has by default, the model's own fields, and all ranges."""

from collections.abc import Mapping
from typing import NamedTuple

from haystream.events import ModelName, Prior
from haystream.models.ranges import OF_ALL_MODELS, Range, Ranges


class ModelSettings(NamedTuple):
    """What a query may say of one model."""

    defaults: Prior
    """What a query gets that names the model and nothing else."""
    own_fields: tuple[str, ...]
    """The fields of `Prior` that are this model's and not everybody's: others' are left out of its queries."""
    ranges: Ranges
    """Where its engines are good: of everybody's numbers and of its own. Other settings are `out_of_range`."""


MODEL_SETTINGS: Mapping[ModelName, ModelSettings] = {
    "rates": ModelSettings(
        defaults=Prior(),
        own_fields=("weight", "participant", "edge"),
        ranges={
            **OF_ALL_MODELS,
            "weight": Range(0.01, 1e6),
            # Var(R_u − M) = σ²/κₐ: a rate that varies more than σ² about its mean is none.
            "participant": Range(0.5, 1e6),
            "edge": Range(0.01, 1e6),
        },
    ),
    "relevance": ModelSettings(
        defaults=Prior(model="relevance", mean=0.25, correlation=0.8),
        own_fields=("conditional", "covariance"),
        ranges={**OF_ALL_MODELS, "conditional": Range(0.1, 1000.0)},
    ),
}
"""By name, of each model in `registry.MODELS`."""
