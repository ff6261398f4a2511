"""The conditionals of P given who is relevant that a model may be given, by number."""

from haystream.events import TABLE_1, TABLE_2, Conditional
from haystream_service.errors import UserError

MAIL = Conditional(a=(0.06, 0.3, 0.3, 0.9), b=(2.94, 2.7, 2.7, 2.1))
"""Rates of 0.02, 0.1, 0.1 and 0.3, each worth three items: what the Enron networks look like in hindsight. Not the
paper's; a comparison's, to see what its tables cost."""
TABLES = {1.0: TABLE_1, 2.0: TABLE_2, 3.0: MAIL}


def table(number: float) -> Conditional:
    """The paper's table 1b or 1c, or 3, `MAIL`. Raises `UserError` for any other number."""
    if number not in TABLES:
        raise UserError(f"there is no prior conditional {number:g}: expected table=1, table=2 or table=3")
    return TABLES[number]
