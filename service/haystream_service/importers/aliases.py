"""Who is meant by which address: somebody with three addresses is one participant, not three.

An alias file is a CSV table with the columns `address` and `person`, or has a JSON object a line with these two.
It may be packed (.gz). Addresses are compared without regard to case and white space.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from haystream_service.importers.results import ImportFailed, opened
from haystream_service.wire import as_id
from haystream_service.wire.reading import short

COLUMNS = ("address", "person")


class Aliases(NamedTuple):
    """The people of addresses."""

    people: Mapping[str, str] = MappingProxyType({})
    """By address, as `comparable` makes it."""

    def person(self, address: str) -> str:
        """Whoever has the address: the address itself, where nobody is said to."""
        return self.people.get(comparable(address), address) if self.people else address


NO_ALIASES = Aliases()


class _Line(NamedTuple):
    number: int
    address: str
    person: str


def comparable(address: str) -> str:
    """The address in lower case, without white space."""
    return "".join(address.split()).lower()


def read_aliases(path: Path) -> Aliases:
    """The file's aliases.

    Raises:
        ImportFailed: a line says nothing that can be used, gives an address to a second person, or names as a
            person what another line says is an address of somebody else (a chain, a cycle).
    """
    lines: dict[str, _Line] = {}
    with opened(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape") as text:
        for line in _lines(path, text.readlines()):
            earlier = lines.setdefault(comparable(line.address), line)
            if earlier.person != line.person:
                raise _wrong(path, line, f"{line.address!r} is {earlier.person!r} in line {earlier.number}")
    people: dict[str, str] = {}
    spelt: dict[str, _Line] = {}
    for line in lines.values():
        further = lines.get(comparable(line.person), line)
        if further.person != line.person:
            raise _wrong(
                path,
                line,
                f"the person {line.person!r} is an address of {further.person!r} in line {further.number}: "
                "name who it is in the end",
            )
        # The person's name may be an address, too, that no line gives: whatever case mail writes it in, it is hers.
        earlier = spelt.setdefault(comparable(line.person), line)
        if earlier.person != line.person:
            raise _wrong(path, line, f"the person {line.person!r} is {earlier.person!r} in line {earlier.number}")
        people[comparable(line.address)] = people[comparable(line.person)] = line.person
    return Aliases(MappingProxyType(people))


def _lines(path: Path, text: list[str]) -> Iterator[_Line]:
    first = next((line for line in text if line.strip()), "")
    rows = _objects(path, text) if first.lstrip().startswith("{") else _cells(path, text)
    for number, row in rows:
        found = [str(row.get(name) or "").strip() for name in COLUMNS]
        for name, value in zip(COLUMNS, found, strict=True):
            if as_id(value.encode("utf-8", "surrogateescape")) is None:
                raise ImportFailed(
                    f"{path}, line {number}: {name} should be 1 to 512 characters, got {short(value)}"
                )
        yield _Line(number, *found)


def _objects(path: Path, text: list[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text, start=1):
        if line.strip():
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise ImportFailed(f"{path}, line {number}: no JSON: {error}") from None
            if not isinstance(value, dict) or not all(isinstance(value.get(name), str) for name in COLUMNS):
                raise ImportFailed(f"{path}, line {number}: should be an object with the strings address, person")
            yield number, value


def _cells(path: Path, text: list[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    rows = csv.DictReader(text)
    try:
        if not set(COLUMNS) <= set(rows.fieldnames or ()):
            raise ImportFailed(f"{path} should be a table with the columns address and person, or JSON lines")
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise ImportFailed(f"{path}, line {rows.line_num}: no CSV: {error}") from None


def _wrong(path: Path, line: _Line, problem: str) -> ImportFailed:
    return ImportFailed(f"{path}, line {line.number}: {problem}")
