"""The models by name, as classes that compute. What a query may say of each stands in `settings`."""

from collections.abc import Mapping

from haystream.events import ModelName
from haystream.models.base import Model
from haystream.models.rates import Rates
from haystream.models.relevance import Relevance

MODELS: Mapping[ModelName, type[Model]] = {"rates": Rates, "relevance": Relevance}
"""`settings.MODEL_SETTINGS` has the same names."""
