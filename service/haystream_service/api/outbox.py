"""How Kafka is told what happened to leases: behind the answers' backs, from the outbox of their query."""

import asyncio
import logging

from haystream_service.api.facts import Facts
from haystream_service.api.problems import Problem
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.store.base import StoreUnavailable
from haystream_service.store.claims import Claims, publish_outbox

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.05
"""What happens within so long is told in one go: the way through Kafka and the worker costs as much for one fact as
for ten. Nobody waits for it: the store knows already who has what."""


class Outbox:
    """Tells Kafka what happened to leases: one writer a query, which looks again when it is told to meanwhile."""

    def __init__(self, claims: Claims, facts: Facts) -> None:
        self._claims = claims
        self._facts = facts
        self._again: set[str] = set()
        self._telling: dict[str, asyncio.Task[None]] = {}

    def tell(self, query_id: str) -> None:
        """See to it that what is in the query's outbox gets to Kafka soon."""
        self._again.add(query_id)
        if query_id not in self._telling:
            task = self._telling[query_id] = asyncio.create_task(self._tell(query_id))
            task.add_done_callback(lambda _: self._told(query_id))

    def _told(self, query_id: str) -> None:
        del self._telling[query_id]
        if query_id in self._again:
            self.tell(query_id)

    async def _tell(self, query_id: str) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        self._again.discard(query_id)
        try:
            await publish_outbox(self._claims, self._facts.write_leases, query_id)
        except (StoreUnavailable, BrokerUnavailable, Problem) as error:
            log.warning("the leases of query %r are told by its owner: %s", query_id, error)

    async def close(self) -> None:
        """Finish what is under way, and what it was told of meanwhile."""
        while self._telling:
            await asyncio.gather(*self._telling.values(), return_exceptions=True)
