"""When a collection's items were sent and where they are to be had, packed: an item of which neither is known costs
nothing, and none has an object of its own."""

import numpy as np

from haystream.events import Item
from haystream.memory.arrays import Growing

UNKNOWN = int(np.iinfo(np.int64).min)
"""The `sent_at` of an item that says none: no year has it."""
NO_DETAILS = (None, None)


class ItemDetails:
    """By the items' places in their collection."""

    def __init__(self) -> None:
        self._sent_at = Growing(np.int64, fill=UNKNOWN)
        self._begin = Growing(np.int64)
        self._length = Growing(np.int32)
        """Of its address in `_text`, in bytes; 0 where there is none."""
        self._text = bytearray()
        """UTF-8. What an address was before another took its place stays in between: that is rare."""

    def tell(self, place: int, item: Item) -> bool:
        """Take what is known of an item now; True if it is new."""
        before = self.of(place)
        if before == (item.sent_at, item.uri):
            return False
        if item.sent_at is not None:
            self._sent_at.resize(place + 1)
            self._sent_at.data[place] = item.sent_at
        if item.uri is not None and item.uri != before[1]:
            text = item.uri.encode()
            self._begin.resize(place + 1)
            self._length.resize(place + 1)
            self._begin.data[place], self._length.data[place] = len(self._text), len(text)
            self._text += text
        return True

    def of(self, place: int) -> tuple[int | None, str | None]:
        """When it was sent, and where it is to be had."""
        known = self._sent_at.size or self._length.size
        return (self.sent_at(place), self.uri(place)) if known else NO_DETAILS

    def sent_at(self, place: int) -> int | None:
        """When it was sent, in microseconds since the Unix epoch; None where that is not known."""
        known = int(self._sent_at.data[place]) if place < self._sent_at.size else UNKNOWN
        return None if known == UNKNOWN else known

    def uri(self, place: int) -> str | None:
        """Where it is to be had; None where that is not known."""
        length = int(self._length.data[place]) if place < self._length.size else 0
        begin = int(self._begin.data[place]) if length else 0
        return self._text[begin : begin + length].decode() if length else None
