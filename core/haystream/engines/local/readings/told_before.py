"""What readers were told of until a moment ago: scores are made of it, so that what a score was made of can be read
once more, and no score of those that do not lead has to be kept."""

from collections.abc import Iterator
from contextlib import contextmanager

from haystream.engines.local.state.state import Data, Told
from haystream.memory.arrays import Floats, Ints
from haystream.memory.overlay import entries, put_all, put_rows, rows


class ToldBefore:
    """What readers were told of, and what was counted on edges, when scores were last made of it.

    What changes is noted, in order, until scores are made again: right after a `settle`.
    """

    def __init__(self) -> None:
        self._people: list[tuple[Ints, Floats]] = []
        self._edges: list[tuple[Ints, Floats]] = []
        self._counts: list[tuple[Ints, Floats, Floats]] = []
        self.lost = False
        """Whether everything was told anew."""
        self._settled = False

    def begin(self) -> None:
        """Note from now on what a `settle` changes: what came before the last one is in the scores."""
        if self._settled:
            self.forget()

    def forget(self) -> None:
        """Take that scores have been made of what is told now."""
        self._people, self._edges, self._counts = [], [], []
        self._settled = self.lost = False

    def settled(self, *, lost: bool = False) -> None:
        """Take that scores are made now. `lost`: of what they were made before is not known."""
        self._settled = True
        self.lost |= lost

    def note_people(self, participants: Ints, rows_before: Floats) -> None:
        """These had other rows until now, shape (k, 3); each is named once."""
        if len(participants):
            self._people.append((participants, rows_before))

    def note_edges(self, edges: Ints, covariances_before: Floats) -> None:
        """The ends of these had other covariances until now, shape (k,); each is named once."""
        if len(edges):
            self._edges.append((edges, covariances_before))

    def note_counts(self, edges: Ints, screened: Floats, relevant: Floats) -> None:
        """So many items were counted on these edges until now, shape (k,); each is named once."""
        self.begin()
        self._counts.append((edges, screened, relevant))

    @contextmanager
    def restored(self, told: Told, data: Data) -> Iterator[None]:
        """Have what was told and counted be what it was before, until the end of the block."""
        people = [(which, rows(told.people, which)) for which, _ in self._people]
        edges = [(which, entries(told.covariance, which)) for which, _ in self._edges]
        counts = [(which, data.n[which], data.y[which]) for which, _, _ in self._counts]
        _put_all_of(told, data, self._people[::-1], self._edges[::-1], self._counts[::-1])
        try:
            yield
        finally:
            _put_all_of(told, data, people, edges, counts)


def _put_all_of(
    told: Told,
    data: Data,
    people: list[tuple[Ints, Floats]],
    edges: list[tuple[Ints, Floats]],
    counts: list[tuple[Ints, Floats, Floats]],
) -> None:
    for which, values in people:
        put_rows(told.people, which, values)
    for which, covariances in edges:
        put_all(told.covariance, which, covariances)
    for which, screened, relevant in counts:
        data.n[which], data.y[which] = screened, relevant
