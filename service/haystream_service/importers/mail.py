"""Mail archives: mbox files, Maildirs, and trees with one message a file.

Of a message its headers become part of an item, and what it says where that is asked for (`Making.text`). A URI
(`Making.uri`) may name `message_id`, `item_id` and `file`.

Every reader takes a `rule`: it is asked about each whole message, and its answer kept in the item's labels as
`relevant`, where the column of that name of a table is kept too.
"""

import email.utils
import hashlib
import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC
from email.message import Message
from email.parser import BytesHeaderParser
from email.utils import getaddresses, parsedate_to_datetime
from functools import partial
from gzip import GzipFile
from io import BufferedReader, BytesIO, TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from haystream.errors import Code
from haystream_service.importers.contents import TooMuch, contents, decoded, unescaped
from haystream_service.importers.making import PLAIN, Making
from haystream_service.importers.results import (
    UNREADABLE,
    Imported,
    ImportFailed,
    Skipped,
    opened,
    reason,
    too_large,
    unpacked,
)
from haystream_service.wire import times
from haystream_service.wire.fields import ID_LENGTH, URI_LENGTH

Rule = Callable[[bytes], bool]
"""Whether a message is relevant."""

MESSAGE_BYTES = 64 << 20
"""Of a message, with its attachments. Mail servers take up to 50 MB or so."""
HEADER_BYTES = 256 << 10
"""Of all headers of a message: what mail servers take, and room for 1,000 recipients. Parsing addresses takes half
a second a megabyte."""
LINE_BYTES = 64 << 10
"""Read at once: a line may be longer, and what follows is more of it."""

HEADER_LINE = re.compile(rb"[!-9;-~]+[ \t]*:")
"""What the line after it begins with."""
BLANK_BEFORE_COLON = re.compile(rb"^([!-9;-~]+)[ \t]+:", re.MULTILINE)
"""Of a header as it was written once (RFC 5322, 4.5): Python takes it, and all that follows, for text."""
FROM_AMID_HEADERS = re.compile(rb"^>From [^\n]*\n", re.MULTILINE)
"""What programs that passed a message on added to its headers, for which Python does the same."""
ESCAPED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)
"""A line of text as an mbox has it, so that it is not taken for one between messages."""
HEAD_ENDS = re.compile(rb"\n\r*\n|(?<!\r)\r\r(?![\r\n])")
"""An empty line, however lines end."""
CR_TWICE = re.compile(rb"(?<!\r)\r\r++\n")
"""How a line ends that was twice made one of Windows; to Python an empty line follows it."""
CR_ALONE = re.compile(rb"[^\r\n]*\r[^\r\n]")
"""A line that ends as old Macs wrote it, and the beginning of the next one."""
FROM_LINE = re.compile(rb"From \S+ +\w{3} +\w{3} +\d?\d +\d?\d:\d\d(:\d\d)?( +\S+){0,2} +\d{4}\s*$")
"""The line before a message of an mbox as it is written: an address, and a time with a zone or without."""

MESSAGE_FOLDERS = {"cur", "new"}
"""Of a Maildir: the folders that have its messages. Copies often lack one of them, as it was empty."""
BESIDE_MESSAGES = re.compile("tmp$|dovecot|maildirfolder$")
"""What else a Maildir has: beside one of these folders it tells that they are what they are called."""

OFFSET = re.compile(r"(\d\d:\d\d) *+(?:GMT|UTC?)? *+([+-]\d\d):?(\d\d)\b")
"""A time of day and how far it is from UTC, as dates have it that are not quite mail's: `GMT+0100`, `+01:00`."""

SHORT_YEAR, YEARS_LEFT_OUT = 1000, 1900
"""A year of three digits lacks so much (RFC 5322, 4.3): programs that counted from 1900 wrote 101 for 2001."""

BRACKETED = re.compile(r"<++([^>]*+)>")
"""A Message-ID. What may follow is a comment: `(added by postmaster@example.org)`."""

NAME_WITH_AT = re.compile(r'(?<![^<>,;:"()])[^<>,;:"()]++<(?=[^<>]*@)')
"""What is before an address in brackets is a name, also one with an @ and no quotes: `ann@home.example <ann@…>`."""
ESCAPED = re.compile(r"\\.")
"""A character between quotes that ends nothing."""

LOST = "\ufffd"
"""What stands for bytes that are no character: two ids that have it may have been different ones."""

NAMES = ("message_id", "item_id", "file")
"""What a URI may name."""

# The parser that never raises; the modern policy's structured headers do, on mail as it is found.
_PARSER = BytesHeaderParser()

# Where Python can be strict it is by default, and gives up on a whole header for one error in it.
_LENIENT_PARSING = {"strict": False} if getattr(email.utils, "supports_strict_parsing", False) else {}


def read_mbox(path: Path, making: Making = PLAIN, *, rule: Rule | None = None) -> Iterator[Imported]:
    """The messages of an mbox file (or .gz of one), in their order. Raises `ImportFailed`."""
    making.check(NAMES)
    with opened(path) as file:
        try:
            for number, message in enumerate(_messages(_lines(file)), start=1):
                yield _item(f"{path.name}#{number}", message, making=making, rule=rule, escaped=True)
        except NoMbox:
            raise ImportFailed(f"{path} is not an mbox: it does not begin with a line 'From …'") from None


class NoMbox(Exception):  # noqa: N818 - it becomes an `ImportFailed`
    """Something precedes the first line `From …`."""


def _messages(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The messages after lines `From …`; of one that is too large no more than tells that. Raises `NoMbox`."""
    message: bytearray | None = None
    begins, blank_before = True, True
    line = next(lines, b"").removeprefix(BOM_UTF8)
    while line:
        following = next(lines, b"")
        if begins and line.startswith(b"From ") and (message is None or _is_between(blank_before, line, following)):
            if message is not None:
                yield bytes(message)
            message = bytearray()
        elif message is not None:
            if len(message) <= MESSAGE_BYTES:
                message += line
        elif line.strip():
            raise NoMbox
        blank_before = begins and not line.strip()
        begins = line.endswith(b"\n")
        line = following
    if message is not None:
        yield bytes(message)


def _lines(file: BufferedReader | GzipFile) -> Iterator[bytes]:
    """The file's lines, with what ends them; of one that is longer, `LINE_BYTES` at once.

    Where its first one ends as old Macs wrote them, all end with a newline.
    """
    if CR_ALONE.match(file.peek(LINE_BYTES)):
        with TextIOWrapper(file, encoding="latin-1") as text:
            yield from (line.encode("latin-1") for line in iter(partial(text.readline, LINE_BYTES), ""))
    else:
        yield from iter(partial(file.readline, LINE_BYTES), b"")


def _is_between(blank_before: bool, line: bytes, following: bytes) -> bool:
    """Whether a line that begins with `From ` is between two messages, and no text: two of three signs say so.

    Where the end of one mbox lacks its empty line, and another follows, there is none before a message. And not all
    programs escape a paragraph that begins so.
    """
    signs = (blank_before, FROM_LINE.match(line), HEADER_LINE.match(following))
    return sum(map(bool, signs)) > 1


def read_maildir(path: Path, making: Making = PLAIN, *, rule: Rule | None = None) -> Iterator[Imported]:
    """The messages in the `cur` and `new` folders of a Maildir, folders of it included, sorted by path.

    A tree in which no folder has both is read as one with a message in every file, as Enron's `maildir` is.
    """
    making.check(NAMES)
    tree, item = _tree(path), partial(_item, making=making, rule=rule)
    if not tree.maildirs:
        return chain(tree.unread, _read_files(tree.files, path, item))
    # A name that begins with a dot is no message's there.
    kept = [file for file in tree.files if file.parent.name in MESSAGE_FOLDERS and file.name[0] != "."]
    others = (
        Skipped(_where(file, path), "unreadable", "neither in cur nor in new, where a Maildir has its messages")
        for file in tree.files
        if file.parent.name not in MESSAGE_FOLDERS and not tree.is_bookkeeping(file)
    )
    return chain(tree.unread, others, _read_files(kept, path, item))


def read_eml(path: Path, making: Making = PLAIN, *, rule: Rule | None = None) -> Iterator[Imported]:
    """One .eml file (or .gz of one, or a pipe), or all of them under a folder, sorted by path.

    Raises `ImportFailed`.
    """
    making.check(NAMES)
    alone = path.exists() and not path.is_dir()
    tree = _Tree() if alone else _tree(path)
    files = [path] if alone else tree.emls()
    return chain(tree.unread, _read_files(files, path, partial(_item, making=making, rule=rule)))


def mail_reader(path: Path) -> Callable[..., Iterator[Imported]] | None:
    """Which of the readers the path is for, from its name and first bytes; None if it is no mail.

    A folder with .eml files and no Maildir is a tree of those; any other folder is a Maildir or a tree with a
    message in every file. Raises `ImportFailed`.
    """
    if path.is_dir():
        tree = _tree(path)
        return read_eml if tree.emls() and not tree.maildirs else read_maildir
    if _is_eml(path):
        return read_eml
    with opened(path) as file:
        begins = file.read(len(BOM_UTF8) + 5).removeprefix(BOM_UTF8)
        mbox = begins.startswith(b"From ") or path.name.lower().removesuffix(".gz").endswith(".mbox")
    return read_mbox if mbox else None


@dataclass(frozen=True, slots=True)
class _Tree:
    """The files in a folder and in those below it, sorted by path."""

    files: list[Path] = field(default_factory=list)
    maildirs: set[Path] = field(default_factory=set)
    """The folders with both a `cur` and a `new`, or with one of them and something else that only a Maildir has: a
    folder of one of these names alone is anybody's."""
    unread: list[Skipped] = field(default_factory=list)
    """The folders that nobody looked into."""

    def emls(self) -> list[Path]:
        """The files whose names end in .eml, or .eml.gz."""
        return list(filter(_is_eml, self.files))

    def is_bookkeeping(self, file: Path) -> bool:
        """Whether a Maildir has the file for itself: beside its `cur` and `new`, or in its `tmp`."""
        folder = file.parent
        return folder in self.maildirs or (folder.name == "tmp" and folder.parent in self.maildirs)


def _is_eml(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").endswith(".eml")


def _tree(root: Path) -> _Tree:
    """What is in the folder. Raises `ImportFailed` where it is none, or cannot be read itself."""
    if not root.is_dir():
        raise ImportFailed(f"{root} is not a folder" if root.exists() else f"there is no {root}")
    tree = _Tree()

    def leave_out(error: OSError) -> None:
        folder, problem = Path(error.filename), error.strerror or str(error)
        if folder == root:
            raise ImportFailed(f"cannot read {root}: {problem}")
        tree.unread.append(Skipped(_where(folder, root), "unreadable", problem))

    for parent, folders, names in os.walk(root, onerror=leave_out):
        folders.sort()
        here = Path(parent)
        tree.unread.extend(
            Skipped(_where(here / name, root), "unreadable", "a link to a folder: it is not followed")
            for name in folders
            if (here / name).is_symlink()
        )
        of_messages = MESSAGE_FOLDERS & set(folders)
        if of_messages == MESSAGE_FOLDERS or (of_messages and any(map(BESIDE_MESSAGES.match, [*folders, *names]))):
            tree.maildirs.add(here)
        tree.files.extend(here / name for name in sorted(names))
    return tree


def _where(path: Path, root: Path) -> str:
    """The path below the root, to be shown."""
    # A file name need not be text (a Maildir on a Latin-1 system): what is shown of it must be.
    return os.fsencode(path.relative_to(root) if path != root else path.name).decode(errors="replace")


def _read_files(files: list[Path], root: Path, item: Callable[[str, bytes], Imported]) -> Iterator[Imported]:
    for file in files:
        where = _where(file, root)
        try:
            # To open a pipe that nobody writes to takes for ever; the one that was asked for is meant.
            if file != root and file.exists() and not file.is_file():
                yield Skipped(where, "unreadable", "no file: a pipe, a socket or a device")
                continue
            with file.open("rb") as opened_file:
                message = unpacked(opened_file, file).read(MESSAGE_BYTES + 1).removeprefix(BOM_UTF8)
        except UNREADABLE as error:
            yield Skipped(where, "unreadable", reason(error))
            continue
        if message.startswith(b"From ") and _are_several(message):
            if file == root:
                raise ImportFailed(f"{file} is an mbox of several messages: haystream import mbox")
            yield Skipped(where, "unreadable", "an mbox of several messages: haystream import mbox")
            continue
        yield item(where, message)


def _are_several(message: bytes) -> bool:
    """Whether what begins as an mbox does has more than one message."""
    return len(list(islice(_messages(_lines(BufferedReader(BytesIO(message)))), 2))) > 1


def _item(where: str, message: bytes, *, making: Making, rule: Rule | None, escaped: bool = False) -> Imported:
    """What the message becomes; `escaped` as an mbox has it."""
    if len(message) > MESSAGE_BYTES:
        return too_large(where, f"the message has more than {MESSAGE_BYTES} bytes")
    head = _head(message)
    if len(head) > HEADER_BYTES:
        return too_large(where, f"the headers have {len(head)} bytes, at most {HEADER_BYTES} are taken")
    mended = _mended(head)
    headers = _PARSER.parsebytes(mended)
    try:
        fields = _fields(headers, message, rule)
        if making.text:
            body = message[len(head) :]
            body = CR_TWICE.sub(b"\r\n", body) if CR_TWICE.search(head) else body
            fields |= contents(mended + (ESCAPED_FROM.sub(rb"\1", body) if escaped else body))._asdict()
    except RecursionError:  # Python's parsers call themselves for comments in comments, and for parts in parts
        return Skipped(where, Code.INVALID_VALUE.value, "comments, groups or parts are nested too deeply")
    except TooMuch as too_much:
        return too_large(where, str(too_much))
    if fields["sender"] is None:
        return Skipped(where, Code.MISSING_FIELD.value, "sender: needed: there is no address in From or Sender")
    named = {"message_id": _message_id(headers), "item_id": fields["item_id"], "file": where}
    return making.item(where, fields, named)


def _fields(headers: Message, message: bytes, rule: Rule | None) -> dict[str, Any]:
    senders = _addresses(headers, "From") or _addresses(headers, "Sender")
    fields: dict[str, Any] = {
        **_identity(headers, message),
        "sender": senders[0] if senders else None,
        "recipients": _addresses(headers, "To", "Cc", "Bcc"),
        "sent_at": _sent_at(headers),
    }
    if rule is not None:
        fields["labels"] = {"relevant": rule(message)}
    return fields


def _head(message: bytes) -> bytes:
    """The headers: what comes before the first empty line that is not above all of them."""
    end = HEAD_ENDS.search(message, len(message) - len(message.lstrip(b"\r\n")))
    return message if end is None else message[: end.end()]


def _mended(head: bytes) -> bytes:
    """The headers without what would make Python take all that follows for text."""
    head = FROM_AMID_HEADERS.sub(b"", CR_TWICE.sub(b"\r\n", head.lstrip(b"\r\n")))
    return BLANK_BEFORE_COLON.sub(rb"\1:", head)


def _identity(headers: Message, message: bytes) -> dict[str, str]:
    """The Message-ID and a URI for it; without a usable one, a digest that does not depend on line ends."""
    if message_id := _message_id(headers):
        uri = "mid:" + quote(message_id, safe="@$.+-_!*")
        return {"item_id": message_id} | ({"uri": uri} if len(uri) <= URI_LENGTH else {})
    text = message.replace(b"\r\n", b"\n").strip()
    return {"item_id": f"sha256:{hashlib.sha256(text).hexdigest()}"}


def _message_id(headers: Message) -> str | None:
    """The Message-ID without its brackets, or None where no id can be made of it."""
    given = next(_values(headers, "Message-ID"), "").strip()
    bracketed = BRACKETED.match(given)
    message_id = (bracketed[1] if bracketed else given.strip("<>")).strip()
    usable = message_id.isprintable() and LOST not in message_id and 0 < len(message_id) <= ID_LENGTH
    return message_id if usable else None


def _addresses(headers: Message, *names: str) -> tuple[str, ...]:
    """Distinct addresses, lower-cased, in their order. Groups are spelled out; what has no @ is no address."""
    found: dict[str, None] = {}
    for name in names:
        for value in _values(headers, name):
            # Nobody's program should encode an address, but some encode the whole header.
            found |= _in_header(value) or _in_header(decoded(value))
    return tuple(found)


def _in_header(value: str) -> dict[str, None]:
    """The addresses that a header names."""
    if ESCAPED.sub("", value).count('"') % 2:  # one that nobody closes would make one address of all that follow
        value = value.replace('"', "")
    # Python takes a name with an @ for an address of its own.
    plain = NAME_WITH_AT.sub(lambda named: named[0].replace("@", " "), value)
    given = ("".join(address.split()).lower() for _, address in getaddresses([plain], **_LENIENT_PARSING))
    return {address: None for one in given if (address := _address(one)) is not None}


def _address(given: str) -> str | None:
    """The address, without the apostrophes that Outlook puts around one; None where it is none."""
    ways = (given[1:-1], given) if given[:1] == "'" == given[-1:] else (given,)
    return next((way for way in ways if "@" in way[1:-1]), None)


def _values(headers: Message, name: str) -> Iterator[str]:
    """The header's values. What is not ASCII in them is UTF-8 (RFC 6532), or what nobody knows."""
    # Elsewhere the parser puts one character for all such bytes, and different ids become one.
    return (unescaped(str(value)) for key, value in headers.raw_items() if key.lower() == name.lower())


def _sent_at(headers: Message) -> str | None:
    """The date in ISO 8601, or None where there is none that can be read: that costs no message."""
    try:
        moment = parsedate_to_datetime(OFFSET.sub(r"\1 \2\3", str(headers["Date"])))
        if moment.year < SHORT_YEAR:
            moment = moment.replace(year=moment.year + YEARS_LEFT_OUT)
        return moment.isoformat() if times.has_year(moment.replace(tzinfo=moment.tzinfo or UTC)) else None
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
