"""Analysts who claim items and give verdicts, beside the workers. Some die before anybody knows what they have."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from haystream.events import LeaseFact, Outcome, Verdict
from haystream_service.store.claims import ClaimRefused
from haystream_service.store.memory import MemoryStore
from haystream_service.wire import decode_lease, decode_verdict, encode_verdict
from haystream_service.worker.memory_broker import Message
from support.served import check_served
from support.simulated.process import at_once
from support.simulated.servers import Broker

MOST_CLAIMS = 6
"""Of one analyst."""
SECOND = 1_000_000


class Desk:
    """Analysts on one store and broker. Their own links never fail: what they leave behind is enough."""

    def __init__(self, store: MemoryStore, broker: Broker, rng: Random, now: Callable[[], float]) -> None:
        self._store = store
        self._broker = broker
        self._rng = rng
        self._now = now
        self._said = 0
        store.claims.clock = lambda: int(now() * SECOND)
        store.claims.new_id = lambda: f"{rng.getrandbits(64):016x}"
        self.claimed: list[LeaseFact] = []

    async def work(self, name: str) -> None:
        """Claim, publish, judge, extend and give back, or forget to."""
        for _ in range(self._rng.randrange(MOST_CLAIMS)):
            await asyncio.sleep(self._rng.expovariate(1 / 2.0))
            queries = sorted(at_once(self._store.query_ids()))
            if not queries:
                continue
            query_id = self._rng.choice(queries)
            seconds = self._rng.choice((0.5, 5.0, 600.0))
            try:
                leases = at_once(self._store.claims.claim(query_id, name, self._rng.randint(1, 3), seconds))
            except ClaimRefused:
                continue
            self.claimed += leases
            await asyncio.sleep(self._rng.choice((0.0, 0.01, 1.0)))
            if self._rng.random() < 0.7:  # else it dies between the two
                self._publish(query_id)
            for lease in leases:
                await self._act(lease)

    async def _act(self, lease: LeaseFact) -> None:
        await asyncio.sleep(self._rng.uniform(0.0, 3.0))
        claims, where = self._store.claims, (lease.query_id, lease.lease_id, lease.analyst)
        try:
            match self._rng.choice(("judge", "judge", "extend", "release", "forget")):
                case "judge":
                    self._judge(lease)
                case "extend":
                    at_once(claims.extend(*where, 30.0))
                case "release":
                    at_once(claims.release(*where))
        except ClaimRefused:
            return
        if self._rng.random() < 0.7:
            self._publish(lease.query_id)

    def _judge(self, lease: LeaseFact) -> None:
        self._said += 1
        outcome = self._rng.choice(list(Outcome))
        at = self._store.claims.clock()
        verdict = Verdict(f"d{self._said}", lease.query_id, lease.item_id, lease.analyst, outcome, at)
        self._broker.produce("verdicts", lease.query_id.encode(), encode_verdict(verdict))

    def _publish(self, query_id: str) -> None:
        out = at_once(self._store.claims.outbox(query_id, 100))
        for each in out:
            self._broker.append(("leases", each.partition), Message(each.key, each.value, self._now()))
        at_once(self._store.claims.published(query_id, [each.entry for each in out]))

    def unpublished(self) -> bool:
        """Whether anything lies in an outbox."""
        claims = self._store.claims
        return any(at_once(claims.outbox(query_id, 1)) for query_id in sorted(at_once(self._store.query_ids())))

    def check(self) -> None:
        """From the topics alone: nobody was given what somebody had, and what was claimed is there."""
        told, said = (self._broker.messages(topic) for topic in ("leases", "verdicts"))
        facts = [decode_lease(m.value, m.key) for m in told if b'"at"' in (m.value or b"")]
        verdicts = [decode_verdict(m.value, m.key) for m in said if b'"decided_at"' in (m.value or b"")]
        check_served(self.claimed, facts, verdicts)
        for lease in self.claimed:
            until = max([lease.until, *(fact.until for fact in facts if fact.lease_id == lease.lease_id)])
            for verdict in verdicts:
                if _is_by(verdict, lease) and verdict.decided_at <= until and not _is_taken_back(verdict, verdicts):
                    again = [c for c in self.claimed if _is_on(verdict, c) and c.at > verdict.decided_at]
                    assert not again, f"{verdict.item_id!r} was judged in time and served again"


def _is_on(said: Verdict, lease: LeaseFact) -> bool:
    return (said.query_id, said.item_id) == (lease.query_id, lease.item_id)


def _is_by(said: Verdict, lease: LeaseFact) -> bool:
    return _is_on(said, lease) and said.analyst == lease.analyst and said.decided_at >= lease.at


def _is_taken_back(said: Verdict, verdicts: Sequence[Verdict]) -> bool:
    """Whether anybody took back what was said of the item, then or later: it is there to be served once more."""
    return any(
        other.outcome is Outcome.RETRACTED
        and (other.query_id, other.item_id) == (said.query_id, said.item_id)
        and other.decided_at >= said.decided_at
        for other in verdicts
    )
