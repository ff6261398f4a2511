"""Which engine serves a query, and which settings none of this version can serve."""

from haystream.collection.collection import Collection
from haystream.engines.contract import Engine
from haystream.engines.local import LocalEngine
from haystream.engines.local.inverse.explicit_precision import ExplicitPrecision
from haystream.engines.local.inverse.prior_inverse import prior_tolerance, shared_precision
from haystream.engines.reference import ReferenceEngine
from haystream.errors import Code, QueryFailed, Rejected
from haystream.events import Query
from haystream.models.ranges import check_ranges
from haystream.models.registry import MODELS
from haystream.models.settings import MODEL_SETTINGS
from haystream.ranking.policies import POLICIES

MOST_FOR_REFERENCE = 1000
"""Participants, or pairs, of a query with the engine `reference`: it is dense, and takes some ten seconds a verdict
with so many pairs."""


def check_supported(settings: Query) -> None:
    """Raise Rejected, UNSUPPORTED or OUT_OF_RANGE, unless this version can serve the settings."""
    if settings.policy.name not in POLICIES:
        known = ", ".join(POLICIES)
        raise Rejected(Code.UNSUPPORTED, f"policy {settings.policy.name!r} is not one of {known}")
    if settings.prior.model not in MODELS:
        raise Rejected(Code.UNSUPPORTED, f"model {settings.prior.model!r} is not one of {', '.join(MODELS)}")
    of_model = MODEL_SETTINGS[settings.prior.model]
    if settings.prior.covariance is not None and "covariance" not in of_model.own_fields:
        raise Rejected(Code.UNSUPPORTED, f"prior.covariance is no setting of the model {settings.prior.model}")
    check_ranges(settings.prior, of_model.ranges)


def check_size(settings: Query, collection: Collection) -> None:
    """Raise QueryFailed(TOO_MUCH_WORK) where the collection's graph is too large for the engine."""
    people, pairs = len(collection.graph), collection.graph.edges
    if settings.engine == "reference" and max(people, pairs) > MOST_FOR_REFERENCE:
        raise QueryFailed(
            Code.TOO_MUCH_WORK,
            f"the engine reference takes up to {MOST_FOR_REFERENCE:,} participants and as many pairs, and"
            f" collection {collection.name!r} has {people:,} and {pairs:,}: use the engine local",
        )


def make_engine(settings: Query, collection: Collection, tolerance: float) -> Engine:
    """The engine that the settings ask for, on the collection's graph."""
    prior, graph = settings.prior, collection.graph
    if settings.engine == "reference":
        return ReferenceEngine(graph, prior)
    if prior.covariance is not None:
        return LocalEngine(graph, prior, ExplicitPrecision(graph, prior.covariance), tolerance=tolerance)
    precision = shared_precision(collection, prior.correlation, prior_tolerance(prior, tolerance))
    return LocalEngine(graph, prior, precision, tolerance=tolerance)
