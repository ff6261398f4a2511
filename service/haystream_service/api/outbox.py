"""How Kafka is told what happened to leases: behind the answers' backs, from the outbox of their query."""

import asyncio
import logging
from collections.abc import Sequence

from haystream_service.api.facts import Facts
from haystream_service.api.problems import Problem
from haystream_service.store.base import StoreUnavailable
from haystream_service.store.claims import Claims, Outgoing, publish_outbox
from haystream_service.worker.records import BrokerUnavailable

log = logging.getLogger(__name__)


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
        self._again.discard(query_id)
        try:
            await publish_outbox(self._claims, self._publish, query_id)
        except (StoreUnavailable, BrokerUnavailable, Problem) as error:
            log.warning("the leases of query %r are told by its owner: %s", query_id, error)

    async def _publish(self, records: Sequence[Outgoing]) -> None:
        pairs = [(record.key.decode(), record.value) for record in records]
        await self._facts.write_all("leases", pairs, partition=records[0].partition)

    async def close(self) -> None:
        """Finish what is under way."""
        await asyncio.gather(*self._telling.values(), return_exceptions=True)
