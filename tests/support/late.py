"""Late scores as on a large graph, on a small one."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from haystream.ranking import set_ranking, unowned


@contextmanager
def late_sets(*, candidates: int) -> Iterator[None]:
    """Score `candidates` / 4 of the sets at once where what all share moves; all others are late."""
    with (
        mock.patch.multiple(set_ranking, AT_ONCE=0, CANDIDATES=candidates, LATE_AT_ONCE=64),
        mock.patch.multiple(unowned, MADE_AT_ONCE=0),
    ):
        yield
