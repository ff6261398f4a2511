"""What ends a worker as a bug does, but is said in a line: only a person, or a new process, can help."""

from haystream_service.store.marks import StateLost, StateNewer, TopicsGrown


class StateBack(Exception):  # noqa: N818 - it names a state of the store, not a bug of ours
    """The store is as it was before: what it held since is read once more, by a process that begins anew."""


class ReadTooFar(StateBack):
    """The store did not answer when partitions were assigned, and is behind from where they are read."""


def shorter(collection: str, entries: int, query_id: str, seen: int) -> StateBack:
    """What to raise where a query has seen more of its collection's log than there is."""
    return StateBack(
        f"the store has gone back to an earlier state: the log of {collection!r} has {entries} entries and query "
        f"{query_id!r} saw {seen}. Reading all items again"
    )


def another_entry(collection: str, entry: int) -> StateBack:
    """What to raise where an entry of a collection's log is another than it was."""
    return StateBack(
        "the store has gone back to an earlier state: another entry than it was is number"
        f" {entry} in the log of {collection!r}. Reading all items again"
    )


class TopicsReplaced(Exception):  # noqa: N818
    """The topics are not those that the store was made from: offsets begin anew. A person has to decide."""


class Stalled(Exception):  # noqa: N818
    """Something does not move, and nobody is to blame: only a new process helps."""


class ShortOfMemory(Exception):  # noqa: N818
    """The process gets no more memory: a query waits for it, and what cannot wait ends the process."""

    def __init__(self, error: MemoryError) -> None:
        said = f" ({error})" if str(error) else ""
        super().__init__(
            f"the process gets no more memory{said}: allow it more, or set HAYSTREAM_MEMORY_MIB to less"
        )


NO_BUGS = (StateLost, StateBack, StateNewer, TopicsReplaced, TopicsGrown, Stalled, ShortOfMemory)
"""All of them."""
