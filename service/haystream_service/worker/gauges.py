"""What a worker's gauges show of its queries and collections."""

from collections import Counter
from collections.abc import Callable, Iterable

from haystream.footprint import bytes_of
from haystream.query.state import QueryState
from haystream_service.labelled_gauges import LABELLED_COLLECTIONS, show_largest
from haystream_service.metrics import Metrics
from haystream_service.worker.followers import Followers
from haystream_service.worker.holding import Away, Loaded
from haystream_service.worker.query_owner import QueryOwner


class Gauges:
    """Counts when Prometheus asks. What collections take is weighed now and then instead: that takes longer."""

    def __init__(self, metrics: Metrics, owners: Callable[[], Iterable[QueryOwner]], followers: Followers) -> None:
        self._metrics = metrics
        self._owners = owners
        self._collections = collections = followers.collections

        def count(holds: Callable[[QueryOwner], bool]) -> Callable[[], int]:
            return lambda: sum(map(holds, list(owners())))

        metrics.owned_queries.set_function(count(lambda owner: isinstance(owner.held, Loaded | Away)))
        metrics.queries_in_memory.set_function(count(lambda owner: isinstance(owner.held, Loaded)))
        metrics.queries_put_away.set_function(count(lambda owner: isinstance(owner.held, Away)))
        metrics.quarantined_queries.set_function(count(lambda owner: owner.stopped))
        metrics.queries_slim.set_function(lambda: sum(state.is_slim for state in self._states()))
        metrics.growth_backlog.set_function(lambda: sum(state.lag for state in self._states()))
        metrics.tending_backlog.set_function(lambda: sum(state.unfinished for state in self._states()))
        metrics.collections.labels("all").set_function(lambda: sum(c.scope is None for c in collections()))
        metrics.collections.labels("scope").set_function(lambda: sum(c.scope is not None for c in collections()))
        metrics.collection_items.set_function(lambda: sum(map(len, collections())))
        metrics.collection_edges.set_function(lambda: sum(c.graph.edges for c in collections()))

    def weigh(self) -> None:
        """Bring what collections take up to date."""
        weights: Counter[str] = Counter()
        for collection in self._collections():
            weights[collection.name] += bytes_of(collection)
        show_largest(self._metrics.collection_memory, weights, limit=LABELLED_COLLECTIONS)

    def _states(self) -> list[QueryState]:
        return [state for owner in list(self._owners()) if (state := owner.state) is not None]
