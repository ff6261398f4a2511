"""What a service says of its work: lines for a person, or JSON objects for a machine."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

from typing_extensions import override

from haystream_service.sparingly import Sparingly

ABOUT: ContextVar[str | None] = ContextVar("query", default=None)
"""The query that this task works on: every line of ours that is written in it is about that query."""
CORRELATION: ContextVar[str | None] = ContextVar("correlation", default=None)
"""The id of the request that this task answers: lines that are written in it bear it, and records as a header."""
OURS = __name__.split(".")[0]
"""Clients of Kafka and Redis keep tasks that were begun on behalf of some query, and serve all."""


def configure(form: Literal["text", "json"]) -> None:
    """Write to standard error from now on, what is said too often only now and then."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    handler.addFilter(Sparingly())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # Faust and aiokafka narrate every step of every rebalance.
    for chatty in ("faust", "mode", "aiokafka"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


@contextmanager
def quiet() -> Iterator[None]:
    """Meanwhile nothing is written of servers that are away: for whoever is told so once, in the end."""
    levels = {"aiokafka": logging.CRITICAL, OURS: logging.ERROR}
    before = {name: logging.getLogger(name).level for name in levels}
    try:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


class JsonLines(logging.Formatter):
    """A line is a JSON object with `time` (UTC), `level`, `logger`, `message`; `query` where it is about one,
    `correlation` where a request led to it, and `error`, a traceback, where there is one."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        query = getattr(record, "query", None) or (ABOUT.get() if record.name.startswith(OURS) else None)
        if query is not None:
            line["query"] = query
        if (correlation := CORRELATION.get()) is not None:
            line["correlation"] = correlation
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
