"""Where an item can be opened: a URI with what is known of the item filled in."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Self
from urllib.parse import quote

from haystream_service.errors import UserError
from haystream_service.wire.fields import URI_LENGTH


@dataclass(frozen=True, slots=True)
class UriTemplate:
    """A URI with names in braces, as `https://mail.example.org/{message_id}`; a brace itself is doubled."""

    template: str
    _parts: tuple[tuple[str, str | None], ...]
    """What is copied, and the name whose value follows it."""

    @classmethod
    def parse(cls, template: str) -> Self:
        """The template. Raises `UserError` where it is none."""
        try:
            parts = list(Formatter().parse(template))
        except ValueError as error:
            raise UserError(f"--uri {template}: {error}") from None
        if any(not text.isprintable() or " " in text for text, *_ in parts):
            raise UserError(f"--uri {template!r}: a URI has neither spaces nor control characters")
        for _, name, spec, conversion in parts:
            if name == "" or spec or conversion:
                raise UserError(f"--uri {template}: braces should hold a name alone, like {{message_id}}")
        return cls(template, tuple((text, name) for text, name, _, _ in parts))

    @property
    def names(self) -> frozenset[str]:
        """The names in braces."""
        return frozenset(name for _, name in self._parts if name is not None)

    def check(self, known: Collection[str]) -> None:
        """Raise `UserError` where a name is none of those that are known."""
        for name in sorted(self.names - set(known)):
            raise UserError(f"--uri {self.template}: there is no {name}; there are {', '.join(sorted(known))}")

    def filled(self, values: Mapping[str, str | None]) -> str | None:
        """The URI, its values percent-encoded; None where one of them is empty, or it would be too long."""
        if not all(values.get(name) for name in self.names):
            return None
        uri = "".join(
            text + ("" if name is None else quote(str(values[name]), safe="", errors="replace"))
            for text, name in self._parts
        )
        return uri if len(uri) <= URI_LENGTH else None
