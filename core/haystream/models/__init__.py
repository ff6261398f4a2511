"""The models: what a participant's variable means and how an edge's probability depends on it.

To add one, write its file and give it a line in `MODELS` (docs/extending.md).
"""

from collections.abc import Mapping

from haystream.events import ModelName, Prior
from haystream.models.base import Model
from haystream.models.rates import Rates
from haystream.models.relevance import Relevance

MODELS: Mapping[ModelName, type[Model]] = {"rates": Rates, "relevance": Relevance}

DEFAULT_PRIORS: Mapping[ModelName, Prior] = {name: model.defaults for name, model in MODELS.items()}
"""What a query gets that names its model and nothing else."""
