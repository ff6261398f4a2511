"""The mark that a store in use carries: it was begun once, from topics with so many partitions."""

from uuid import uuid4

from haystream_service.worker.shared import StateLost, TopicsGrown


def described(topic: str, partitions: int) -> str:
    """What a mark says of the topics: the queries topic and its number of partitions."""
    return f"{topic}:{partitions}"


def mark(topics: str) -> str:
    """A new mark."""
    return f"{uuid4().hex}:{topics}"


def check_mark(found: str, topics: str) -> None:
    """Raise `StateLost` or `TopicsGrown` where a store with this mark was not made from these topics."""
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
