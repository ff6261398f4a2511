"""Points in time: ISO 8601 on the wire, integer microseconds since the Unix epoch inside."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
END = datetime(2100, 1, 1, tzinfo=UTC)
"""The latest verdict holds: one from the year 9999 could never be overruled."""


def parse(text: str) -> datetime:
    """The point in time; UTC where the text names no offset. Raises ValueError if it is not ISO 8601.

    Digits beyond the microsecond are cut off.
    """
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def in_range(moment: datetime) -> bool:
    """Whether the moment lies in 1970 … 2099."""
    return EPOCH <= moment < END


def has_year(moment: datetime) -> bool:
    """Whether the moment, in UTC, lies in the years 1 to 9999: what can be written down again."""
    return FIRST <= moment <= LAST


def to_microseconds(moment: datetime) -> int:
    """Microseconds since the epoch, exact."""
    return (moment - EPOCH) // MICROSECOND


def to_text(microseconds: int) -> str:
    """ISO 8601 in UTC with all six digits of the fraction, so that texts sort as times do."""
    moment = EPOCH + timedelta(microseconds=microseconds)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
