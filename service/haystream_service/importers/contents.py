"""What a message says, as a person would read it: its subject, and its text without attachments.

The text is the message's plain text; of parts that say the same in several ways (multipart/alternative) the plain
one, or, where that is empty, the last; of HTML what is to be seen. Attachments, and messages in messages, are left
out.
"""

import re
from codecs import lookup
from email.errors import HeaderParseError, InvalidBase64LengthDefect
from email.header import decode_header
from email.message import Message
from email.parser import BytesParser
from itertools import count
from typing import Any, NamedTuple

from typing_extensions import override

from haystream_service.importers.html import HTML_LENGTH, plain_text
from haystream_service.wire.fields import SUBJECT_LENGTH, TEXT_LENGTH

MOST_LINES, MOST_PARTS = 2_000_000, 10_000
"""Of a message: some 50 bytes of memory each while it is read, and a thousand. What is encoded by lines of 76
characters has 900,000 where a message is as long as it may be."""
HTML_READ = 4 * HTML_LENGTH
"""Characters of HTML that are read of one message, in whatever parts: some seconds."""
SUBJECT_READ = 10_000
"""Characters of a subject that are read: decoding takes time with the square of their number."""
CUT = "\n[cut here when it was imported: the message goes on]"
ANY_BYTES = "cp1252"
"""What Latin-1 is taken for, and what nobody knows."""
WIDE = "utf-16"
"""How charsets of two bytes a character begin."""
NO_CHARSETS = ("idna", "punycode", "raw-unicode-escape", "unicode-escape")
"""Python has these among its charsets. No mail means them, and the first two take long."""
OTHERWISE_CALLED = {
    "iso-8859-8-e": "iso8859-8",
    "iso-8859-8-i": "iso8859-8",
    "unknown-8bit": "ascii",
    "windows-31j": "cp932",
    "windows-874": "cp874",
    "windows-949": "cp949",
    "x-euc-jp": "euc_jp",
    "x-gbk": "gb18030",
    "x-mac-roman": "mac_roman",
    "x-sjis": "cp932",
}
"""Names of charsets in mail that Python does not know, and its own."""
WIDER = {
    "ascii": ANY_BYTES,
    "big5": "big5hkscs",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso8859-1": ANY_BYTES,
    "iso8859-11": "cp874",
    "iso8859-9": "cp1254",
    "shift_jis": "cp932",
    "tis-620": "cp874",
    **dict.fromkeys(NO_CHARSETS, ANY_BYTES),
}
"""What is meant where mail says less than it holds, by Python's names, as browsers take it (WHATWG Encoding)."""
_ENCODED_WORD = r"=\?[^?\s]*\?[bBqQ]\?(?:(?!=\?[^=]).)*?\?="
_ENCODED_WORDS = re.compile(rf"{_ENCODED_WORD}(?:\s*{_ENCODED_WORD})*")
"""What a header says beyond ASCII (RFC 2047): white space between two of them is not part of it. One that does not
end is not looked through beyond where the next begins: a header may have 40,000 of them."""
_LAST_DIGIT = re.compile(r"[A-Za-z0-9+/][^A-Za-z0-9+/]*\Z")
"""Of a text in base64."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_EMPTY_LINES = re.compile(r"\n\s*\n\s*\n")


class Contents(NamedTuple):
    """What a message or a row says; None where it says nothing."""

    subject: str | None = None
    text: str | None = None


class Mail(Message):
    """A message whose parameters are as good as absent where Python cannot read them, and whose encoding is the one
    that is named, whatever blanks follow it."""

    @override
    def get_param(self, *given: Any, **named: Any) -> Any:
        """As the base class does; that raises for a number of 5,000 digits, and for one name with and without."""
        try:
            return super().get_param(*given, **named)
        except (TypeError, ValueError):
            return given[1] if len(given) > 1 else named.get("failobj")

    @override
    def get(self, name: str, failobj: Any = None) -> Any:
        found = super().get(name, failobj)  # by this name the base class asks before it decodes
        return found.strip() if name == "content-transfer-encoding" and isinstance(found, str) else found


class TooMuch(Exception):  # noqa: N818 - it becomes a `Skipped`
    """The message has more than any mail has: to read it would take all memory."""


def parsed(message: bytes) -> Message:
    """The message with its parts. Raises `TooMuch`, and RecursionError where parts are nested too deeply."""
    lines = message.count(b"\n") + message.count(b"\r") - message.count(b"\r\n")
    if lines > MOST_LINES:
        raise TooMuch(f"the message has {lines} lines, at most {MOST_LINES} are taken")
    numbers = count()

    def part(**named: Any) -> Mail:
        if next(numbers) > MOST_PARTS:  # the first is the message
            raise TooMuch(f"the message has more than {MOST_PARTS} parts")
        return Mail(**named)

    # The parser that never raises; the modern policy's structured headers do, on mail as it is found.
    return BytesParser(part).parsebytes(message)


def contents(message: bytes) -> Contents:
    """What the message says. Raises what `parsed` does."""
    mail = parsed(message)
    return bounded(subject(mail), text(mail))


def bounded(subject: str, text: str) -> Contents:
    """The two without control characters, no longer than an item's may be. A text that is cut says so."""
    line = _CONTROLS.sub("", " ".join(_characters(subject).split()))[:SUBJECT_LENGTH]
    whole = _EMPTY_LINES.sub("\n\n", _CONTROLS.sub("", _characters(text))).strip()
    return Contents(line or None, cut(whole, TEXT_LENGTH) or None)


def cut(text: str, length: int) -> str:
    """The text in at most so many characters, of which the last say where it was cut."""
    return text if len(text) <= length else text[: max(0, length - len(CUT))] + CUT


def subject(mail: Message) -> str:
    """The message's subject, decoded; as it stands where it cannot be."""
    raw = next((str(value) for name, value in mail.raw_items() if name.lower() == "subject"), "")[:SUBJECT_READ]
    return decoded(unescaped(raw, _charset(mail)))


def decoded(header: str) -> str:
    """What the header says, with its encoded words as they stand where they cannot be read."""
    return _ENCODED_WORDS.sub(lambda words: _words(words[0]), header)


def _words(encoded: str) -> str:
    """What encoded words in a row say; the words themselves where that cannot be read."""
    try:
        return _decoded_words(encoded)
    except (LookupError, HeaderParseError):
        return encoded


def _decoded_words(encoded: str) -> str:
    """What encoded words in a row say. Raises LookupError for a charset that nobody knows, and HeaderParseError."""
    said = ""
    for raw, charset in decode_header(encoded):
        codec = _known(str(charset).partition("*")[0])  # a language may follow (RFC 2231)
        if codec is None:
            raise LookupError(charset)
        said += _decoded(raw, codec)
    return said


def unescaped(escaped: str, charset: str = ANY_BYTES) -> str:
    """The characters of a text in which bytes that nobody has decoded stand as lone surrogates.

    They are UTF-8 (RFC 6532), or else of the charset.
    """
    if escaped.isascii():
        return escaped
    raw = escaped.encode("utf-8", "surrogateescape")
    try:
        return raw.decode()
    except ValueError:
        return _decoded(raw, _known(charset) or ANY_BYTES)


def text(mail: Message) -> str:
    """The message's text, as the head of this file says."""
    return "\n\n".join(said.text for said in _Reader().shown(mail))


def part_text(part: Message) -> str:
    """What a text part says, of HTML what is to be seen; nothing where the part is no text."""
    kind = _kind(part)
    if not kind.startswith("text/") or part.get_content_disposition() == "attachment":
        return ""
    payload = part.get_payload(decode=True)
    if any(isinstance(defect, InvalidBase64LengthDefect) for defect in part.defects):
        # A digit over, where a text was cut off, is less than a byte; Python decodes nothing for it.
        part.set_payload(_LAST_DIGIT.sub("", str(part.get_payload())))
        payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    found = _decoded(payload, _known(_charset(part)) or ANY_BYTES)
    return plain_text(found) if kind == "text/html" else found


def _kind(part: Message) -> str:
    """The content type; plain text where parts should be and are none, as in archives that kept the text alone."""
    kind = part.get_content_type()
    return "text/plain" if kind.startswith("multipart/") and not part.is_multipart() else kind


def _charset(part: Message) -> str:
    """What the part names; ASCII where it names none."""
    return part.get_content_charset("us-ascii")


class _Said(NamedTuple):
    """What a part says, without white space around it."""

    plain: bool
    text: str


class _Reader:
    """Reads each part of one message once, and no more HTML than `HTML_READ`."""

    def __init__(self) -> None:
        self._html_left = HTML_READ

    def shown(self, part: Message) -> list[_Said]:
        """What a reader is shown of the part, in its order; nothing empty."""
        inside = [one for one in part.get_payload() if isinstance(one, Message)] if part.is_multipart() else []
        if not inside:
            return self._leaf(part)
        if part.get_content_type() == "multipart/alternative":
            return _best([self.shown(way) for way in inside])
        if part.get_content_type() == "multipart/related":
            return self.shown(inside[0])  # the others are what it shows: images, styles
        if part.get_content_maintype() == "multipart" and part.get_content_disposition() != "attachment":
            return [said for one in inside for said in self.shown(one)]
        return []

    def _leaf(self, part: Message) -> list[_Said]:
        kind = _kind(part)
        plain = kind == "text/plain"
        if not plain:
            if kind != "text/html" or self._html_left <= 0:
                return []
            self._html_left -= len(part.get_payload())
        found = part_text(part).strip()
        return [_Said(plain, found)] if found else []


def _best(ways: list[list[_Said]]) -> list[_Said]:
    """Of several ways to say the same, the plain one, or the last: senders put the richest there."""
    saying = [way for way in ways if way]
    return next((way for way in saying if all(said.plain for said in way)), saying[-1] if saying else [])


def _decoded(raw: bytes, codec: str) -> str:
    """The characters: as the codec has them if it can, else UTF-8, else by the codec as far as they go."""
    # What claims to be ASCII or Latin-1 is often UTF-8, and Latin-1 hardly ever looks like it.
    # What claims to be UTF-16, and has no byte that is 0, is UTF-8 where it can be.
    narrow = codec == ANY_BYTES or (codec.startswith(WIDE) and 0 not in raw)
    for strict in ("utf-8" if narrow else codec, "utf-8"):
        try:
            return raw.decode(strict)
        except ValueError:
            continue
    return raw.decode(codec, errors="replace")


def _known(charset: str) -> str | None:
    """Python's name of the charset, or of the one that is meant; None where nobody knows it."""
    try:
        name = lookup(OTHERWISE_CALLED.get(charset.lower(), charset)).name
        "a".encode(name)  # some codecs are none of text
    except (LookupError, ValueError):
        return None
    return WIDER.get(name, name)


def _characters(text: str) -> str:
    """The text with ends of lines as one character, and none that UTF-8 does not have (lone surrogates)."""
    whole = text.encode("utf-8", "replace").decode() if not text.isascii() else text
    return whole.replace("\r\n", "\n").replace("\r", "\n")
