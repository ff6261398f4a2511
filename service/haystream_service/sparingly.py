"""Logs that stay readable while a server is away: its clients say so a hundred times a second."""

import logging
import re
import time
from collections.abc import Callable

FIRST_OF_A_KIND = 3
"""So many of one kind are let through in each stretch."""
STRETCH_SECONDS = 60.0
KINDS_REMEMBERED = 1000
"""Kinds that are remembered; then it begins anew."""


class Sparingly(logging.Filter):
    """Lets the first few of one kind through in every minute; the first of the next says how many there were."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        """When the stretch of this kind began, and how many there were in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be shown; a failure that ends the process always is."""
        if record.levelno >= logging.CRITICAL:
            return True
        text = record.getMessage()
        kind = record.name, re.sub(r"\d+", "0", text)[:100]
        now = self._clock()
        began, count = self._kinds.get(kind, (now, 0))
        if now - began > STRETCH_SECONDS:
            if count > FIRST_OF_A_KIND:
                record.msg, record.args = f"{text} ({count - FIRST_OF_A_KIND} more of the kind since)", ()
            began, count = now, 0
        if len(self._kinds) >= KINDS_REMEMBERED:
            self._kinds.clear()
        self._kinds[kind] = began, count + 1
        return count < FIRST_OF_A_KIND
