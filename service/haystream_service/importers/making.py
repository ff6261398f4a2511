"""What an import makes of every row and message, wherever they come from."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from haystream.errors import Rejected
from haystream_service.importers.aliases import NO_ALIASES, Aliases
from haystream_service.importers.contents import cut
from haystream_service.importers.results import Imported, Skipped, too_large
from haystream_service.importers.uris import UriTemplate
from haystream_service.wire import ItemRecord, encode_record, item_record, limits

FRAME_BYTES = 100
"""Of a record in Kafka, at most, besides its key and its value."""


@dataclass(frozen=True, slots=True)
class Making:
    """How items are made."""

    collection: str = "default"
    text: bool = False
    """Whether subject and text are taken."""
    aliases: Aliases = NO_ALIASES
    uri: UriTemplate | None = None

    def check(self, names: Collection[str]) -> None:
        """Raise `UserError` where the URI asks for what the source, which has these names, has not."""
        if self.uri is not None:
            self.uri.check({*names, "collection"})

    def item(self, where: str, fields: Mapping[str, Any], named: Mapping[str, str | None]) -> Imported:
        """The item with these fields, or why it is none. `named` is what a URI may ask for."""
        made = {**fields, "collection": self.collection, **self._people(fields)}
        if self.uri is not None:
            made["uri"] = self.uri.filled({**named, "collection": self.collection}) or made.get("uri")
        try:
            record = item_record(made)
        except Rejected as rejected:
            return Skipped(where, rejected.code.value, rejected.detail)
        return self._fitted(where, record)

    def _people(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        person, found = self.aliases.person, dict[str, Any]()
        if fields.get("sender"):
            found["sender"] = person(fields["sender"])
        for name in ("recipients", "participants"):
            if fields.get(name):
                found[name] = tuple(dict.fromkeys(map(person, fields[name])))
        return found

    def _fitted(self, where: str, record: ItemRecord) -> Imported:
        """The record, its text cut to what a message that is keyed by its id has room for."""
        most = limits.MESSAGE_BYTES - len(record.item_id.encode()) - FRAME_BYTES
        size = len(encode_record(record))
        if size > most and record.text:
            # A character that goes takes with it at least as many bytes as it has in UTF-8. The end of a line has
            # two in JSON, and there is one in the note that says where the text was cut.
            kept = len(record.text.encode()[: most - size - 2].decode(errors="ignore"))
            record = record.model_copy(update={"text": cut(record.text, kept)})
            size = len(encode_record(record))
        if size > most:
            return too_large(where, f"the item would have {size} bytes, at most {most} are taken")
        return record


PLAIN = Making()
