"""JSON that holds every number it was given: orjson would write NaN and infinities as null."""

from typing import Any

import orjson


def dumps(value: Any) -> bytes:
    """JSON of a value that holds no None.

    Raises:
        ValueError: a number is not finite; the message says where it stands. It is a bug of whoever made it.
    """
    raw = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" in raw:  # or somebody is called so
        place = _null(orjson.loads(raw))
        if place is not None:
            raise ValueError(f"{place.removeprefix('.')} is not a finite number")
    return raw


def _null(value: Any) -> str | None:
    """The path of the first null."""
    if value is None:
        return ""
    members: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        members = [(f".{name}", member) for name, member in value.items()]
    elif isinstance(value, list):
        members = [(f"[{i}]", member) for i, member in enumerate(value)]
    for name, member in members:
        below = _null(member)
        if below is not None:
            return name + below
    return None
