"""Rules that stand in for an analyst: what a message says decides whether it is relevant.

A mail archive holds no verdicts. The demo and experiments need a known truth, and take it from such a rule.
"""

import re
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesParser

MONEY_OR_FINANCE = re.compile(r"\b(money|finance)\b", re.IGNORECASE)
SUBJECT = 10_000
"""Characters of a subject that are read: decoding takes time with the square of their number."""
_TAG = re.compile(r"<[^>]*>")
_PARSER = BytesParser()


def money_or_finance(message: bytes) -> bool:
    """The paper's rule for mail: relevant if the subject or the body has the word "money" or "finance".

    Upper and lower case are the same; parts of longer words ("financed", "moneys") do not count. The body is
    every text part that is no attachment, decoded; of HTML without its tags.
    """
    mail = _PARSER.parsebytes(message)
    return any(MONEY_OR_FINANCE.search(text) for text in (_subject(mail), *map(_text, mail.walk())))


def _subject(mail: Message) -> str:
    raw = str(mail.get("Subject", ""))[:SUBJECT]
    try:
        return str(make_header(decode_header(raw)))
    except (ValueError, LookupError):  # reject nothing for its encoding: as it stands, then
        return raw


def _text(part: Message) -> str:
    if part.get_content_maintype() != "text" or part.get_content_disposition() == "attachment":
        return ""
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    try:
        text = payload.decode(part.get_content_charset("utf-8"), errors="replace")
    except (ValueError, LookupError):  # a charset that nobody knows: the words looked for are ASCII
        text = payload.decode("latin-1")
    return _TAG.sub(" ", text) if part.get_content_subtype() == "html" else text
