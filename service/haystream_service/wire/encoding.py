"""From the core's values to the wire's bytes. Decoding what these write gives the same values back."""

from __future__ import annotations

import base64
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import orjson
from pydantic_core import to_json

from haystream.errors import Code, QueryFailed
from haystream.events import ItemFact, Withdrawal
from haystream.models.settings import MODEL_SETTINGS
from haystream_service.wire import finite, limits, times
from haystream_service.wire.fitting import FEW_NAMED, fit_ranking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from haystream.errors import Rejected
    from haystream.events import LeaseFact, Prior, Query, Verdict
    from haystream.ranking.ranked import RankedItem, Ranking, Share
    from haystream.scope import Scope
    from haystream_service.wire.records import ItemRecord

DETAIL_CHARACTERS = 2000
"""Characters of a dead letter's detail: some say what was sent, and nobody bounds that."""

FEW_ITEMS = 100
"""A ranking of no more has its length looked at when it is encoded."""


def encode_query(query: Query) -> bytes:
    """A value of the topic `queries`. Raises ValueError for an explicit covariance, which the wire has not, and
    for a number that is not finite."""
    value = {
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
    raw = finite.dumps(value)
    # A scope has no number that could be other than finite, and may have nulls, which stand for those elsewhere.
    return raw if query.scope is None else orjson.dumps({**value, "scope": _scope(query.scope)})


def who_is_on(item: ItemFact) -> dict[str, Any]:
    """The fields of an item that say which it is and who is on it; of a withdrawal, which item and that."""
    value: dict[str, Any] = {"item_id": item.item_id, "collection": item.collection}
    if isinstance(item, Withdrawal):
        return {**value, "withdrawn": True}
    if item.sender is None:
        return {**value, "participants": item.participants}
    return {**value, "sender": item.sender, "recipients": item.participants}


def encode_item(item: ItemFact) -> bytes:
    """A value of the topic `items`, with all that is known but subject and text."""
    value = who_is_on(item)
    if isinstance(item, Withdrawal):
        return orjson.dumps(value)
    if item.sent_at is not None:
        value["sent_at"] = times.to_text(item.sent_at)
    if item.uri is not None:
        value["uri"] = item.uri
    if item.labels:
        value["labels"] = {key: orjson.Fragment(label) for key, label in item.labels}
    if item.withdrawn:
        value["withdrawn"] = True
    return orjson.dumps(value)


def encode_record(record: ItemRecord) -> bytes:
    """A value of the topic `items` with all that the record has, such as `sent_at` and `labels`."""
    value = record.model_dump(exclude_none=True, exclude=None if record.withdrawn else {"withdrawn"})
    return to_json(value, inf_nan_mode="null")  # labels may have whole numbers of more than 64 bits


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


def encode_lease(fact: LeaseFact) -> bytes:
    """A value of the topic `leases`. Raises ValueError for a number that is not finite."""
    served = {
        name: value for name in ("rank", "score", "mean", "level") if (value := getattr(fact, name)) is not None
    }
    return finite.dumps(
        {
            "lease_id": fact.lease_id,
            "query_id": fact.query_id,
            "item_id": fact.item_id,
            "analyst": fact.analyst,
            "action": fact.action,
            "at": times.to_text(fact.at),
            "until": times.to_text(fact.until),
            **{name: value for name, value in served.items() if value is not None},
            "by": fact.by,
        }
    )


def encode_ranking(query_id: str, ranking: Ranking, *, revision: int, published_at: int) -> bytes:
    """A value of the topic `next-items`; `published_at` in microseconds since the epoch.

    Of an item with more participants than `limits.NAMED` the others are counted, and so are items that do not fit
    into `limits.RANKING_BYTES`.

    Raises:
        QueryFailed: NOT_FINITE; nothing that could be mistaken for a ranking is published.
    """
    named, kept = limits.NAMED, len(ranking.items)
    if kept > FEW_ITEMS and _first(ranking.items, named, limits.RANKING_BYTES) < kept:
        named = FEW_NAMED
        kept = _first(ranking.items, named, limits.RANKING_BYTES)
    reasons = _reasons(ranking.items[:kept])
    value = _dumped(
        {
            "query_id": query_id,
            "revision": revision,
            "published_at": times.to_text(published_at),
            "policy": ranking.policy,
            "screened": ranking.screened,
            "found": ranking.found,
            "expected_remaining": ranking.expected_remaining,
            "discrepancy": ranking.discrepancy,
            "items": [_ranked(item, named, reasons[id(item.because)]) for item in ranking.items[:kept]],
            "items_cut": len(ranking.items) - kept,
        }
    )
    return fit_ranking(value, limits.RANKING_BYTES)


def encode_dead_letter(
    error: Rejected,
    payload: bytes | None,
    *,
    topic: str,
    partition: int,
    offset: int,
    key: bytes | None = None,
) -> bytes:
    """A value of the topic `dead-letters`. A payload or key above its limit is cut there; its length is told."""
    payload = payload or b""
    return orjson.dumps(
        {
            "source": {"topic": topic, "partition": partition, "offset": offset},
            "error": {"code": error.code, "detail": error.detail[:DETAIL_CHARACTERS]},
            "key_base64": None if key is None else base64.b64encode(key[: limits.KEY_BYTES]).decode("ascii"),
            "key_bytes": len(key or b""),
            "payload_base64": base64.b64encode(payload[: limits.DEAD_LETTER_BYTES]).decode("ascii"),
            "payload_bytes": len(payload),
        }
    )


def dead_letter_key(key: bytes | None) -> bytes | None:
    """The key of a dead letter: its source's, or none where that is longer than a key may be."""
    return key if key is not None and len(key) <= limits.KEY_BYTES else None


def _dumped(ranking: dict[str, Any]) -> bytes:
    try:
        return finite.dumps(ranking)
    except ValueError as error:
        raise QueryFailed(Code.NOT_FINITE, f"the ranking cannot be told: {error}") from None


def _first(items: Sequence[RankedItem], named: int, limit: int) -> int:
    """How many of the first items may fit into so many bytes: the texts of more have more characters.

    Thousands of wide items would else be encoded only to be cut, hundreds of megabytes at each verdict.
    """
    return bisect_right(list(accumulate(_characters(item, named) for item in items)), limit)


def _characters(item: RankedItem, named: int) -> int:
    because = (person for share in item.because for person in share.participants)
    return sum(map(len, (item.item_id, item.uri or "", *item.participants[:named], *because)))


def _reasons(items: Sequence[RankedItem]) -> dict[int, orjson.Fragment]:
    """What `because` says, by the identity of the shares: items of one set have them in common."""
    shares = {id(item.because): item.because for item in items}
    return {which: _encoded(each) for which, each in shares.items()}


def _encoded(because: Sequence[Share]) -> orjson.Fragment:
    """What shares say, as JSON."""
    told = [{"participants": participants, "share": share} for participants, share in because]
    return orjson.Fragment(orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY))


def _ranked(item: RankedItem, named: int, because: orjson.Fragment) -> dict[str, Any]:
    """What is said of an item: of what nobody knows, nothing."""
    value: dict[str, Any] = {
        "item_id": item.item_id,
        "rank": item.rank,
        "score": item.score,
        "mean": item.mean,
        "sd": item.sd,
        "participants": item.participants,
        "because": because,
    }
    more = len(item.participants) - named
    if more > 0:
        value |= {"participants": item.participants[:named], "participants_cut": more}
    if item.sent_at is not None:
        value["sent_at"] = times.to_text(item.sent_at)
    if item.uri is not None:
        value["uri"] = item.uri
    return value


def _scope(scope: Scope) -> dict[str, Any]:
    sent = scope.since, scope.before
    value = {
        "sent": None if sent == (None, None) else [None if at is None else times.to_text(at) for at in sent],
        "with": sorted(scope.anybody),
        "without": sorted(scope.nobody),
        "labels": {key: orjson.Fragment(text) for key, text in scope.labels},
    }
    return {name: what for name, what in value.items() if what}


def _prior(prior: Prior) -> dict[str, Any]:
    if prior.covariance is not None:
        raise ValueError("a prior covariance cannot be said over the wire")
    own = {name: getattr(prior, name) for name in MODEL_SETTINGS[prior.model].own_fields if name != "covariance"}
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
