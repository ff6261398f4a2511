"""The models that a search can be led by: haystream's, and what would be used in its place.

To add one, write its `Build` and give it a line in `MODELS`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from haystream_service.study.models.bandit import BANDIT
from haystream_service.study.models.base import Build, Model, Options
from haystream_service.study.models.bayes_linear import RATES, RELEVANCE
from haystream_service.study.models.independent import INDEPENDENT
from haystream_service.study.models.label_propagation import LABEL_PROPAGATION
from haystream_service.study.models.mrf import MRF
from haystream_service.study.models.neighbour_rate import NEIGHBOUR_RATE
from haystream_service.study.models.order import RANDOM
from haystream_service.study.models.participant_rate import PARTICIPANT_RATE

__all__ = ["MODELS", "Build", "Model", "Options"]

MODELS: Mapping[str, Build] = MappingProxyType(
    {
        "relevance": RELEVANCE,
        "rates": RATES,
        "independent": INDEPENDENT,
        "mrf": MRF,
        "participant-rate": PARTICIPANT_RATE,
        "neighbour-rate": NEIGHBOUR_RATE,
        "label-propagation": LABEL_PROPAGATION,
        "bandit": BANDIT,
        "random": RANDOM,
    }
)
