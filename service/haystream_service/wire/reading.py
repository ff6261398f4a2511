"""From bytes to a record, or to a `Rejected` that names the field and what was expected there."""

import math
import reprlib
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from haystream.errors import Code, Rejected
from haystream_service.wire.fields import JsonObject
from haystream_service.wire.records import BY_NAME, BY_VALUE

PLAIN_NAME = 64
"""Characters of a field's name in a detail; a longer one is shortened. Watch-lists make ids into names."""

SAYING = frozenset({"subject", "text"})
"""Fields of which nothing is repeated: what is wrong with a record ends up in logs and dead letters."""

R = TypeVar("R", bound=JsonObject)

# Parts that pydantic puts into an error's path and that are in nobody's JSON.
_NOT_IN_THE_JSON = {BY_NAME, BY_VALUE, "[key]"}

_CODES = {
    "json_invalid": Code.MALFORMED_JSON,
    "missing": Code.MISSING_FIELD,
    "finite_number": Code.NOT_FINITE,
    "greater_than": Code.OUT_OF_RANGE,
    "greater_than_equal": Code.OUT_OF_RANGE,
    "less_than": Code.OUT_OF_RANGE,
    "less_than_equal": Code.OUT_OF_RANGE,
    "string_too_long": Code.TOO_LARGE,
    "string_too_short": Code.INVALID_VALUE,
    "string_pattern_mismatch": Code.INVALID_VALUE,
    "string_unicode": Code.INVALID_VALUE,  # a lone surrogate, from Python: JSON with one is malformed
    "value_error": Code.INVALID_VALUE,
    "too_long": Code.INVALID_VALUE,  # of a tuple of fixed length; lists are bounded by `limits`
}

_PLAIN = {
    "missing": "a required field is missing",
    "string_pattern_mismatch": "should have no control characters",
    "string_too_short": "should not be empty",
    "too_long": "should have exactly 2 elements",
}


def read(record: type[R], value: bytes | None, *, limit: int) -> R:
    """The record that the bytes hold; raises `Rejected`."""
    if value is None:
        raise Rejected(Code.MALFORMED_JSON, "the record has no value")
    if len(value) > limit:
        raise Rejected(Code.TOO_LARGE, f"the message has {len(value)} bytes, at most {limit} are taken")
    if not value.strip():
        raise Rejected(Code.MALFORMED_JSON, "there is nothing, where a JSON object should be")
    try:
        return record.model_validate_json(value)
    except ValidationError as error:
        raise rejection(error) from None


def rejection(error: ValidationError) -> Rejected:
    """The first of the errors, in words."""
    return rejection_of(error.errors(include_url=False, include_context=False))


def rejection_of(errors: Sequence[ErrorDetails]) -> Rejected:
    """The same of a list of them."""
    first, *others = errors
    code, problem = _explain(first)
    path = _path(first["loc"])
    more = f" (and {len(others)} more)" if others else ""
    return Rejected(code, f"{path}: {problem}{more}" if path else f"{problem}{more}")


def short(value: object) -> str:
    """The value as text that fits on a line."""
    return reprlib.repr(value)


def _explain(error: ErrorDetails) -> tuple[Code, str]:
    kind, loc, given = error["type"], error["loc"], error["input"]
    if kind == "json_invalid":
        return Code.MALFORMED_JSON, error["msg"]
    if not loc:
        return Code.MALFORMED_JSON, f"the message should be a JSON object, got {short(given)}"
    if kind == "missing":
        if isinstance(loc[-1], int):  # an element of a tuple of fixed length
            return Code.INVALID_VALUE, _PLAIN["too_long"]
        return Code.MISSING_FIELD, _PLAIN["missing"]
    problem = _PLAIN.get(kind) or error["msg"].removeprefix("Input ").removeprefix("String ")
    got = "" if loc[0] in SAYING else f", got {short(given)}"
    return _code(kind, given), f"{problem}{got}"


def _code(kind: str, given: Any) -> Code:
    if isinstance(given, float) and not math.isfinite(given):
        return Code.NOT_FINITE
    if kind in {"literal_error", "enum"}:
        return Code.INVALID_VALUE if isinstance(given, str) else Code.WRONG_TYPE
    return _CODES.get(kind, Code.WRONG_TYPE)


def _path(loc: tuple[int | str, ...]) -> str:
    parts = [part for part in loc if part not in _NOT_IN_THE_JSON]
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            plain = part.isidentifier() and len(part) <= PLAIN_NAME
            text += ("." if text else "") + (part if plain else short(part))
    return text
