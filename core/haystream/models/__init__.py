"""The models: what a participant's variable means and how an edge's probability depends on it.

To add one, write its file and give it a line in `MODELS` (docs/extending.md).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from haystream.events import Prior
from haystream.models.base import Model
from haystream.models.rates import Rates
from haystream.models.relevance import Relevance

MODELS: Mapping[str, Callable[[Prior], Model]] = MappingProxyType({"rates": Rates, "relevance": Relevance})
