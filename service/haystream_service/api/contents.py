"""What items say: their subjects and texts, read from the records that hold them and kept for a moment.

What is kept is known by its digest, so it is what it was. Whether an item was withdrawn is asked before, each time.
"""

from collections import OrderedDict
from collections.abc import Sequence
from time import perf_counter
from typing import Literal, NamedTuple

from pydantic_core import from_json

from haystream.events import Item, RecordPlace
from haystream_service.api.facts import At
from haystream_service.api.records import Records
from haystream_service.kafka.records import BrokerUnavailable
from haystream_service.metrics import ApiMetrics
from haystream_service.wire.decoding import content_digest

KEPT_CHARACTERS = 4 << 20
"""Of all subjects and texts that are kept: some 16 MB at most, and thousands of ordinary mails."""
TOLD_CHARACTERS = 1 << 20
"""Of one answer about several items: of those beyond it is said that they have more to be asked for."""
READ_AT_ONCE = 8
"""Items: a record has 1 MiB at most, unless the topic takes more."""

State = Literal["none", "here", "unread", "gone"]


class Contents(NamedTuple):
    """What an item says. `unread`: it says something that was not read; `gone`: Kafka keeps it no longer."""

    state: State
    subject: str | None = None
    text: str | None = None

    @property
    def characters(self) -> int:
        """Characters of subject and text."""
        return len(self.subject or "") + len(self.text or "")


def unread(item: Item) -> Contents:
    """The item's contents as far as nothing is read."""
    return Contents("none" if item.subject_at is None and item.text_at is None else "unread")


class ContentReader:
    """Reads contents, and keeps the last."""

    def __init__(self, records: Records, metrics: ApiMetrics) -> None:
        self._records = records
        self._metrics = metrics
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._characters = 0

    async def read(self, item: Item) -> Contents:
        """What the item says. Raises `BrokerUnavailable`."""
        (found,) = await self._read([item])
        return found

    async def read_some(self, items: Sequence[Item]) -> list[Contents]:
        """The same of several, `unread` where an answer has room for no more or Kafka does not answer."""
        found: list[Contents] = []
        left = TOLD_CHARACTERS
        try:
            while len(found) < len(items) and left > 0:
                for contents in await self._read(items[len(found) : len(found) + READ_AT_ONCE]):
                    left -= contents.characters
                    found.append(
                        contents if left >= 0 else contents._replace(state="unread", subject=None, text=None)
                    )
        except BrokerUnavailable:
            pass  # told by the metrics: the items are worth having without
        return [*found, *map(unread, items[len(found) :])]

    async def _read(self, items: Sequence[Item]) -> list[Contents]:
        wanted = dict.fromkeys(
            place for item in items for place in (item.subject_at, item.text_at) if place is not None
        )
        known = {place.digest: kept for place in wanted if (kept := self._kept.get(place.digest)) is not None}
        missing = [place for place in wanted if place.digest not in known]
        self._metrics.records.labels("kept").inc(len(wanted) - len(missing))
        if missing:
            known |= await self._fetched(missing)
        return [_contents(item, known) for item in items]

    async def _fetched(self, places: Sequence[RecordPlace]) -> dict[str, str]:
        """By digest, what the places' records say; nothing of what is not there any more."""
        lying = list(dict.fromkeys(At(place.partition, place.offset) for place in places))
        began = perf_counter()
        try:
            values = await self._records.read(lying)
        except BrokerUnavailable:
            self._metrics.records.labels("unavailable").inc(len(lying))
            raise
        self._metrics.record_read.observe(perf_counter() - began)
        said = {digest: text for value in values if value is not None for digest, text in _said(value).items()}
        found = {place.digest: said[place.digest] for place in places if place.digest in said}
        self._metrics.records.labels("read").inc(len(found))
        self._metrics.records.labels("gone").inc(len({place.digest for place in places}) - len(found))
        for digest, text in found.items():
            self._keep(digest, text)
        return found

    def _keep(self, digest: str, text: str) -> None:
        self._characters += len(text) - len(self._kept.pop(digest, ""))
        self._kept[digest] = text
        while self._characters > KEPT_CHARACTERS:
            self._characters -= len(self._kept.popitem(last=False)[1])


def _said(value: bytes) -> dict[str, str]:
    """The subject and the text of a record, by digest. What is no item was none of ours."""
    try:
        record = from_json(value)  # with the parser that took it: not all take NaN in a field that nobody reads
    except ValueError:
        return {}
    fields = (record.get("subject"), record.get("text")) if isinstance(record, dict) else ()
    return {content_digest(text): text for text in fields if isinstance(text, str)}


def _contents(item: Item, known: dict[str, str]) -> Contents:
    places = [place for place in (item.subject_at, item.text_at) if place is not None]
    if not places:
        return Contents("none")
    subject, text = (known.get(place.digest) if place else None for place in (item.subject_at, item.text_at))
    whole = all(place.digest in known for place in places)
    return Contents("here" if whole else "gone", subject, text)
