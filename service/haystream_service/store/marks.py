"""The mark that a store in use carries: it was begun once, in a format, from topics with so many partitions."""

from uuid import uuid4

FORMAT = 4
"""Of what the store holds. To be raised with whatever a worker of an earlier version would misread: that one ends.
Since format 2 a collection's log may say more of an item that it has, and that it is withdrawn. Since format 3
it is noted of each partition how far it is in the store, from the first record on (`progress`). Since format 4 a
query's tables are the rows that differ from the prior.

Facts of every format up to this one have to be read. The rest (ranking, tables) is computed from them and written
anew whenever a query is loaded."""

NOTES_PROGRESS = 3
"""The first format in which partitions of which nothing is noted have to be read from their beginnings."""


class StateLost(Exception):  # noqa: N818 - it names a state of the store, not a bug of ours
    """The store does not hold what it held. Only `haystream rebuild` helps; nothing may be acknowledged."""


class StateNewer(Exception):  # noqa: N818
    """A later version has written into the store what this one cannot read."""


class TopicsGrown(Exception):  # noqa: N818
    """The topics have other partitions than when the store was made: a query's records come on another than it."""


def described(topic: str, partitions: int) -> str:
    """What a mark says of the topics: the queries topic and its number of partitions."""
    return f"{topic}:{partitions}"


def mark(topics: str) -> str:
    """A new mark."""
    return f"{uuid4().hex}.{FORMAT}:{topics}"


def notes_progress(found: str) -> bool:
    """Whether a store with this mark has all of a partition noted that was ever committed."""
    return _format(found) >= NOTES_PROGRESS


def raised(found: str) -> str:
    """The mark for a store that this version works on from now on: the same where its format is this one's."""
    return found if _format(found) == FORMAT else f"{_begun(found)}.{FORMAT}:{found.partition(':')[2]}"


def check_mark(found: str, topics: str) -> None:
    """Raise where a store with this mark is not one to work on.

    Raises:
        StateLost: it was made from other topics.
        TopicsGrown: these topics had another number of partitions.
        StateNewer: a later version writes into it.
    """
    if _format(found) > FORMAT:
        raise StateNewer(
            f"a later version of haystream has written to Redis (format {_format(found)}, and this one reads up to "
            f"{FORMAT}): run that version, or stop all workers and run `haystream rebuild` with this one"
        )
    before = found.partition(":")[2]
    if not before or not topics or before == topics:
        return
    (old, had), (new, have) = before.rsplit(":", 1), topics.rsplit(":", 1)
    if old != new:
        raise StateLost(f"the store was made from {old}, and records come from {new}: run `haystream rebuild`")
    raise TopicsGrown(
        f"{new} had {had} partitions and has {have}: new records of a query may come on another partition than its "
        "old ones. Copy the topics to new ones with `haystream repartition`"
    )


def check_kept(begun: str | None, found: str | None) -> None:
    """Raise where the store's mark is not the one any more with which a worker began.

    Raises:
        StateLost: the store was emptied, or begun anew.
        StateNewer: a worker of a later version has begun to write into it.
    """
    if found == begun:
        return
    if found is None or begun is None or _begun(found) != _begun(begun):
        raise StateLost("the store was emptied: run `haystream rebuild`")
    check_mark(found, "")


def _begun(found: str) -> str:
    return found.partition(":")[0].partition(".")[0]


def _format(found: str) -> int:
    """The format that the mark names; one that names none is of the first. Raises `StateLost` if it is no mark."""
    named = found.partition(":")[0].partition(".")[2]
    if named and not named.isdecimal():
        raise StateLost(
            f"Redis has something else than a mark of haystream's ({found!r:.80}): run `haystream rebuild`"
        )
    return int(named or 1)
