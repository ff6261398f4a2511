"""From the core's values to the wire's bytes. Decoding what these write gives the same values back."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import orjson

from haystream.models import MODELS
from haystream_service.wire import finite, times
from haystream_service.wire.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from haystream.errors import Rejected
    from haystream.events import Item, Prior, Query, Verdict
    from haystream.ranking import Ranking
    from haystream_service.wire.records import ItemRecord


def encode_query(query: Query) -> bytes:
    """A value of the topic `queries`. Raises ValueError for an explicit covariance, which the wire has not, and
    for a number that is not finite."""
    return finite.dumps(
        {
            "query_id": query.query_id,
            "collection": query.collection,
            "prior": _prior(query.prior),
            "policy": {
                "name": query.policy.name,
                "epsilon": query.policy.epsilon,
                "seed": query.policy.seed,
                "horizon": query.policy.horizon,
            },
            "engine": query.engine,
            "top": query.top,
            "status": query.status,
        }
    )


def encode_item(item: Item) -> bytes:
    """A value of the topic `items`."""
    value: dict[str, Any] = {"item_id": item.item_id, "collection": item.collection}
    if item.sender is None:
        value["participants"] = item.participants
    else:
        value["sender"] = item.sender
        value["recipients"] = item.participants
    return orjson.dumps(value)


def encode_record(record: ItemRecord) -> bytes:
    """A value of the topic `items` with all that the record has, such as `sent_at` and `labels`."""
    return orjson.dumps(record.model_dump(exclude_none=True))


def encode_verdict(verdict: Verdict) -> bytes:
    """A value of the topic `verdicts`."""
    return orjson.dumps(
        {
            "verdict_id": verdict.verdict_id,
            "query_id": verdict.query_id,
            "item_id": verdict.item_id,
            "analyst": verdict.analyst,
            "outcome": verdict.outcome,
            "decided_at": times.to_text(verdict.decided_at),
        }
    )


def encode_ranking(query_id: str, ranking: Ranking, *, revision: int, published_at: int) -> bytes:
    """A value of the topic `next-items`; `published_at` in microseconds since the epoch.

    `Ranking` and what it holds have the wire's field names, so orjson writes them as they are: this runs
    once per published verdict.

    Raises:
        ValueError: a number is not finite; nothing that could be mistaken for a ranking is published.
    """
    return finite.dumps(
        {
            "query_id": query_id,
            "revision": revision,
            "published_at": times.to_text(published_at),
            "policy": ranking.policy,
            "screened": ranking.screened,
            "found": ranking.found,
            "expected_remaining": ranking.expected_remaining,
            "discrepancy": ranking.discrepancy,
            "items": ranking.items,
        }
    )


def encode_dead_letter(
    error: Rejected,
    payload: bytes | None,
    *,
    topic: str,
    partition: int,
    offset: int,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """A value of the topic `dead-letters`. A payload above `limits.dead_letter_bytes` is cut there."""
    payload = payload or b""
    return orjson.dumps(
        {
            "source": {"topic": topic, "partition": partition, "offset": offset},
            "error": {"code": error.code, "detail": error.detail},
            "payload_base64": base64.b64encode(payload[: limits.dead_letter_bytes]).decode("ascii"),
            "payload_bytes": len(payload),
        }
    )


def _prior(prior: Prior) -> dict[str, Any]:
    if prior.covariance is not None:
        raise ValueError("a prior covariance cannot be said over the wire")
    own = {name: getattr(prior, name) for name in MODELS[prior.model].settings if name != "covariance"}
    if "conditional" in own:
        a, b = prior.conditional.a, prior.conditional.b
        own["conditional"] = {name: (a[z], b[z]) for z, name in enumerate(("00", "01", "10", "11"))}
    return {
        "model": prior.model,
        "mean": prior.mean,
        "correlation": prior.correlation,
        **own,
        "participants": dict(prior.participants),
    }
