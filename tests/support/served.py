"""Whether anybody was given what somebody had, from what the topics say."""

from collections.abc import Sequence

from haystream.events import LeaseFact, Verdict


def check_served(claimed: Sequence[LeaseFact], facts: Sequence[LeaseFact], verdicts: Sequence[Verdict]) -> None:
    """Every claim that was answered is in the topic, and each item was one analyst's at a time."""
    assert {lease.lease_id for lease in claimed} <= {fact.lease_id for fact in facts}, "a lease is not in the topic"
    until = {lease.lease_id: _end(lease, facts, verdicts) for lease in claimed}
    for a in claimed:
        for b in claimed:
            if a.lease_id != b.lease_id and (a.query_id, a.item_id) == (b.query_id, b.item_id) and a.at <= b.at:
                assert until[a.lease_id] <= b.at, f"{a.item_id!r} was served to two at a time"


def _end(lease: LeaseFact, facts: Sequence[LeaseFact], verdicts: Sequence[Verdict]) -> float:
    whose = lease.query_id, lease.item_id, lease.analyst
    ends = [fact.at for fact in facts if fact.lease_id == lease.lease_id and fact.action.ends]
    said = [
        verdict.decided_at
        for verdict in verdicts
        if (verdict.query_id, verdict.item_id, verdict.analyst) == whose and verdict.decided_at >= lease.at
    ]
    return min([*ends, *said], default=float("inf"))
