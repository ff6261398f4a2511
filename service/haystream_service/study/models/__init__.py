"""The models that a search can be led by: haystream's, and what would be used in its place.

To add one, write its `Build` and give it a line in `MODELS`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from haystream_service.study.models.base import Build, Model, Options
from haystream_service.study.models.bayes_linear import RELEVANCE
from haystream_service.study.models.order import RANDOM

__all__ = ["MODELS", "Build", "Model", "Options"]

MODELS: Mapping[str, Build] = MappingProxyType(
    {
        "relevance": RELEVANCE,
        "random": RANDOM,
    }
)
