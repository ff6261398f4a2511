"""An item's labels: those that can be asked for, with their values in one form.

A record may carry anything in `labels`. What is no string, number or boolean, or too long, is in the record alone.
"""

import math

import orjson
from pydantic import JsonValue

from haystream.events import MOST_LABELS, Labels

LABEL_LENGTH = 512
"""Characters of a key, and of a value."""

EXACT = 2**53
"""Whole numbers below it are exact as 64-bit floats, which is what JSON's numbers are taken as."""


def labels_of(value: JsonValue) -> Labels:
    """The labels in a record's `labels` that can be asked for, sorted by key."""
    if not isinstance(value, dict):
        return ()
    known = ((key, canonical(label)) for key, label in value.items() if len(key) <= LABEL_LENGTH)
    return tuple(sorted((key, text) for key, text in known if text is not None)[:MOST_LABELS])


def canonical(value: JsonValue) -> str | None:
    """The value as JSON, one text for equal values and for no others; None of what cannot be asked for."""
    if isinstance(value, str) and len(value) <= LABEL_LENGTH:
        return orjson.dumps(value).decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number(value)
    return None


def _number(value: float) -> str | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    whole = number.is_integer() and abs(number) < EXACT
    return str(int(number)) if whole else orjson.dumps(number).decode()
