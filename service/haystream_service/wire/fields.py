"""The types of the wire's fields, with their ranges."""

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)

from haystream_service.wire.labels import LABEL_LENGTH, canonical

ID_LENGTH = 512
URI_LENGTH = 4096
SUBJECT_LENGTH = 1024
TEXT_LENGTH = 262_144
NO_CONTROL_CHARACTERS = r"^[^\x00-\x1f\x7f-\x9f]*$"

Id = Annotated[str, StringConstraints(min_length=1, max_length=ID_LENGTH, pattern=NO_CONTROL_CHARACTERS)]
"""1 to 512 characters, none of them a control character: ids end up in keys, logs and terminals."""
Text = Annotated[str, StringConstraints(max_length=URI_LENGTH)]
Subject = Annotated[str, StringConstraints(max_length=SUBJECT_LENGTH)]
Body = Annotated[str, StringConstraints(max_length=TEXT_LENGTH)]
"""What an item says. The bound of the whole message may be reached before: a character may take four bytes."""
LabelKey = Annotated[str, StringConstraints(max_length=LABEL_LENGTH)]


def _askable(value: Any) -> Any:
    if canonical(value) is None:
        raise ValueError(f"should be a string of at most {LABEL_LENGTH} characters, a number, true or false")
    return value


LabelValue = Annotated[
    Any,
    AfterValidator(_askable),
    WithJsonSchema({"type": ["string", "number", "boolean"], "maxLength": LABEL_LENGTH}),
]
"""A label's value that a scope can ask for."""
# These three are what any version took; a model's own ranges (`Model.ranges`) are closer.
Probability = Annotated[float, Field(gt=0, lt=1)]
"""Strictly between 0 and 1: certainty could never be moved by a verdict."""
Concentration = Annotated[float, Field(gt=0, le=1e6)]
Correlation = Annotated[float, Field(gt=-1, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**64)]
Top = Annotated[int, Field(ge=1, le=10_000)]
Count = Annotated[int, Field(ge=0)]
Rank = Annotated[int, Field(ge=1, le=2**53)]
"""Up to where every reader of JSON, and the store, tells whole numbers apart."""


class JsonObject(BaseModel):
    """A JSON object: types are strict (a number is no string), unknown fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


_ID = TypeAdapter(Id)


def as_id(key: bytes | None) -> str | None:
    """The id that a record's key is, or None where it is none."""
    try:
        return None if key is None else _ID.validate_python(key.decode())
    except (UnicodeDecodeError, ValidationError):
        return None
