"""What a part of the store's contents has to look like: one that cannot be what was written there is `Unreadable`.

Nothing else is raised of what was read, so that a bug of ours is never called damage. Whoever reads knows the key.
"""

import re
import reprlib
from collections.abc import Mapping
from typing import Any

import orjson

MOST = 1 << 53
"""No number of ours is larger, but points in time: beyond it the scripts, and other readers of JSON, round."""
FIRST_TIME, LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds since the epoch of the years 1 and 9999: only what lies between can be written down again."""
MOST_DIGITS = 20
_WHOLE = re.compile(rb"0|-?[1-9][0-9]*")


class Unreadable(Exception):  # noqa: N818 - it is about what was found
    """What was read cannot be what was written: which part of it, and what should be there."""

    def __init__(self, part: str, wanted: str, found: object) -> None:
        super().__init__(f"{part}: {wanted} should be there, and not {reprlib.repr(found)}")


def read_number(raw: object, part: str, *, least: int = 0, most: int = MOST) -> int:
    """The whole number that the text is. Only as it is written: the scripts compare it as text."""
    text = raw.encode() if isinstance(raw, str) else raw
    if isinstance(text, bytes) and len(text) <= MOST_DIGITS and _WHOLE.fullmatch(text):
        number = int(text)
        if least <= number <= most:
            return number
    raise Unreadable(part, f"a number from {least} to {most}", raw)


def read_time(raw: object, part: str) -> int:
    """The point in time, in microseconds since the epoch."""
    return read_number(raw, part, least=FIRST_TIME, most=LAST_TIME)


def read_text(raw: bytes, part: str) -> str:
    """The text in UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Unreadable(part, "text", raw) from None


def read_object(raw: bytes, part: str) -> dict[str, Any]:
    """The JSON object that the bytes are."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise Unreadable(part, "JSON", raw) from None
    if not isinstance(value, dict):
        raise Unreadable(part, "a JSON object", raw)
    return value


def text_in(value: Mapping[str, Any], field: str, part: str) -> str:
    """The text that a field of a JSON object has."""
    found = value.get(field)
    if not isinstance(found, str):
        raise Unreadable(f"{field} of {part}", "text", found)
    return found


def number_in(value: Mapping[str, Any], field: str, part: str) -> float:
    """The number that a field of a JSON object has."""
    found = value.get(field)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise Unreadable(f"{field} of {part}", "a number", found)
    return found
