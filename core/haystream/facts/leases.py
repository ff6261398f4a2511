"""The leases of one query: who has which item, as a function of the set of facts.

Of the facts of one lease a release or an expiry wins over all. So does its analyst's own verdict on the item, if it
was given no earlier than the lease began: whoever has said something of an item has it no more, also if that is
retracted. Else the greatest `until` holds. A lease that is over stays over: only a new one hands the item out anew.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from haystream.errors import Code, Rejected
from haystream.events import LeaseFact, Verdict


@dataclass(slots=True)
class _Lease:
    item_id: str
    analyst: str
    begin: int
    """The earliest time of all that is known of it."""
    until: int
    over: bool


class Leases:
    """All leases that there ever were, and what analysts said when."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        """Leases that ended with a verdict, by id, since somebody last cleared the list."""
        self._leases: dict[str, _Lease] = {}
        self._live: dict[str, list[str]] = {}
        """By item, the leases on it that are not over."""
        self._said: dict[tuple[str, str], int] = {}
        """By item and analyst, when the last verdict was given."""

    def __len__(self) -> int:
        """The number of leases that there ever were."""
        return len(self._leases)

    @property
    def live(self) -> int:
        """The number of leases that are not over."""
        return sum(map(len, self._live.values()))

    def held(self, item_id: str) -> bool:
        """Whether anybody has the item."""
        return item_id in self._live

    def until(self) -> Iterator[tuple[str, int]]:
        """(lease, until) of those that are not over."""
        return ((lease, self._leases[lease].until) for leases in self._live.values() for lease in leases)

    def add(self, fact: LeaseFact) -> bool:
        """Take a fact; True if it says something new.

        Raises:
            Rejected: LEASE_CONFLICT if the lease is known to be another item's or analyst's.
        """
        lease_id = fact.lease_id
        lease = self._leases.get(lease_id)
        if lease is None:
            lease = _Lease(fact.item_id, fact.analyst, fact.at, fact.until, over=fact.action.ends)
            self._leases[lease_id] = lease
            if not lease.over:
                self._live.setdefault(lease.item_id, []).append(lease_id)
                self._end_if_said(lease_id, lease)
            return True
        if (lease.item_id, lease.analyst) != (fact.item_id, fact.analyst):
            raise Rejected(
                Code.LEASE_CONFLICT,
                f"lease {lease_id!r} is known to be {lease.analyst!r}'s on item {lease.item_id!r}",
            )
        if lease.over:
            return False
        if fact.action.ends:
            self._end(lease_id, lease)
            return True
        new = fact.until > lease.until or fact.at < lease.begin
        lease.begin, lease.until = min(lease.begin, fact.at), max(lease.until, fact.until)
        self._end_if_said(lease_id, lease)
        return new

    def judge(self, verdict: Verdict) -> bool:
        """Take that an analyst said something of an item; True if a lease of that analyst's on it is over now."""
        said, ended = (verdict.item_id, verdict.analyst), len(self.ended)
        self._said[said] = max(verdict.decided_at, self._said.get(said, 0))
        for lease_id in tuple(self._live.get(verdict.item_id, ())):
            self._end_if_said(lease_id, self._leases[lease_id])
        return len(self.ended) > ended

    def _end_if_said(self, lease_id: str, lease: _Lease) -> None:
        if self._said.get((lease.item_id, lease.analyst), -1) >= lease.begin:
            self._end(lease_id, lease)
            self.ended.append(lease_id)

    def _end(self, lease_id: str, lease: _Lease) -> None:
        lease.over = True
        live = self._live[lease.item_id]
        live.remove(lease_id)
        if not live:
            del self._live[lease.item_id]
