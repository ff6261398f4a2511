"""What several records say of one item, as one: the same in whatever order they come, and however often."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from haystream.errors import Code, Rejected
from haystream.events import MOST_LABELS, Item, ItemFact, Labels, RecordPlace, Withdrawal

T = TypeVar("T", int, str, RecordPlace)


class ItemLog:
    """What a collection's log says: of each item, what all its records together do."""

    def __init__(self) -> None:
        self._known: dict[str, ItemFact] = {}

    def __len__(self) -> int:
        """The number of items, also those of which it is only known that they are withdrawn."""
        return len(self._known)

    def __iter__(self) -> Iterator[ItemFact]:
        """What is known of each, in the order in which they came."""
        return iter(self._known.values())

    def get(self, item_id: str) -> ItemFact | None:
        """What is known of the item, or None."""
        return self._known.get(item_id)

    def add(self, fact: ItemFact) -> ItemFact | None:
        """Take what a record says; the log's next entry, which is all that is known of the item now, or None where
        that is what was known.

        Raises:
            Rejected: ITEM_CONFLICT, as `merge`.
        """
        known = self._known.get(fact.item_id)
        entry = fact if known is None else merge(known, fact)
        if entry == known:
            return None
        self._known[fact.item_id] = entry
        return entry


def merge(known: ItemFact, new: ItemFact) -> ItemFact:
    """All that is known of an item, given what was known and what another record of the same id says.

    What is missing is filled. Where the two differ, the earlier `sent_at` holds, the lesser `uri`, of each label
    the lesser value, the lesser place of subject and of text; and an item that was withdrawn stays so. This is a
    join: commutative, associative, idempotent.

    Raises:
        Rejected: ITEM_CONFLICT where the two have other people. Who is on it is what an item is, so the first
            people stand, with all that was known.
    """
    if isinstance(known, Withdrawal):
        return new if isinstance(new, Withdrawal) else _withdrawn(new)
    if isinstance(new, Withdrawal):
        return _withdrawn(known)
    if (known.sender, known.participants) != (new.sender, new.participants):
        raise Rejected(
            Code.ITEM_CONFLICT,
            f"item {known.item_id!r} is already in collection {known.collection!r} with other participants",
        )
    return Item(
        known.item_id,
        known.collection,
        known.sender,
        known.participants,
        sent_at=_lesser(known.sent_at, new.sent_at),
        uri=_lesser(known.uri, new.uri),
        labels=_joined(known.labels, new.labels),
        subject_at=_lesser(known.subject_at, new.subject_at),
        text_at=_lesser(known.text_at, new.text_at),
        withdrawn=known.withdrawn or new.withdrawn,
    )


def _withdrawn(item: Item) -> Item:
    return item if item.withdrawn else replace(item, withdrawn=True)


def _lesser(one: T | None, other: T | None) -> T | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _joined(one: Labels, other: Labels) -> Labels:
    """Of all keys the first `MOST_LABELS`: a key that is left out has so many before it, and those stay."""
    if one == other or not other:
        return one
    values = dict(one)
    for key, value in other:
        values[key] = min(value, values.get(key, value))
    return tuple(sorted(values.items())[:MOST_LABELS])
