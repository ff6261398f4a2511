"""What is published, cut so that it fits into a message of so many bytes: a topic may take less than we would say.

Both functions take what was encoded and return it as it is where it fits.
"""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import orjson

FEW_NAMED = 8
"""Participants of an item that a ranking names which does not fit with more of them: rather names go than items."""


def fit_ranking(value: bytes, limit: int) -> bytes:
    """The ranking with fewer participants named, or then with fewer items, the first ones; it counts what is cut.

    It takes some 4 KiB at least, without any item.
    """
    if len(value) <= limit:
        return value
    ranking = orjson.loads(value)
    items = [_with_few_named(item) for item in ranking["items"]]
    cut: int = ranking["items_cut"]
    frame = len(orjson.dumps({**ranking, "items": [], "items_cut": cut + len(items)}))
    ends = list(accumulate(len(orjson.dumps(item)) + len(",") for item in items))
    kept = bisect_right(ends, limit - frame)
    return orjson.dumps({**ranking, "items": items[:kept], "items_cut": cut + len(items) - kept})


def fit_letter(value: bytes, limit: int) -> bytes:
    """The dead letter with as much of its payload as fits. It takes some 20 KiB at least, without any."""
    if len(value) <= limit:
        return value
    letter = orjson.loads(value)
    payload = letter["payload_base64"]
    room = max(limit - (len(value) - len(payload)), 0) // 4 * 4  # whole groups of base64
    return orjson.dumps({**letter, "payload_base64": payload[:room]})


def _with_few_named(item: Mapping[str, Any]) -> dict[str, Any]:
    people = item["participants"]
    more = len(people) - FEW_NAMED
    if more <= 0:
        return dict(item)
    return {**item, "participants": people[:FEW_NAMED], "participants_cut": item.get("participants_cut", 0) + more}
