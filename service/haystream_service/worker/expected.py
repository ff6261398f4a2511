"""For which queries a verdict is about to come: they take in what their collection got before it does.

A verdict's batch takes in whatever the collection got since the last one, and who gave the verdict waits for that.
Where verdicts come one after the other it is better taken in between two of them, when nobody waits.
"""

from collections.abc import Iterator

EXPECTED_SECONDS = 0.5
"""Seconds. Where the last two verdicts came within them, another one is expected before as long has passed.

A collection gets a slice every quarter of a second. Where verdicts come less often than that, to take in each slice
by itself would be more work than to take in several with the next verdict."""


class Expected:
    """The queries of a collection for which verdicts come one soon after the other."""

    def __init__(self) -> None:
        self._came: dict[str, tuple[float, float]] = {}
        """By query, when the last verdict came and when the one before it, the least recent query first."""

    def __len__(self) -> int:
        """The queries that are remembered."""
        return len(self._came)

    def came(self, query_id: str, now: float) -> None:
        """Take that a verdict came for the query, by the monotonic clock."""
        last, _ = self._came.pop(query_id, (float("-inf"), 0.0))
        self._came[query_id] = now, last

    def queries(self, now: float) -> Iterator[str]:
        """Those for which another one is expected; those that none came for since are forgotten."""
        for query_id, (last, _) in list(self._came.items()):
            if now - last <= EXPECTED_SECONDS:
                break
            del self._came[query_id]
        return (
            query_id for query_id, (_, before) in reversed(self._came.items()) if now - before <= EXPECTED_SECONDS
        )

    def forget(self, query_id: str) -> None:
        """Take that the query is in memory no more."""
        self._came.pop(query_id, None)
