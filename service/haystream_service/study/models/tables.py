"""The paper's prior conditionals, by number."""

from haystream.events import TABLE_1, TABLE_2, Conditional
from haystream_service.errors import UserError

TABLES = {1.0: TABLE_1, 2.0: TABLE_2}


def table(number: float) -> Conditional:
    """Table 1b or 1c of the paper. Raises `UserError` for any other number."""
    if number not in TABLES:
        raise UserError(f"there is no prior conditional {number:g}: expected table=1 or table=2")
    return TABLES[number]
