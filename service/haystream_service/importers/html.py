"""HTML as plain text: what a reader would see of it, without its layout."""

import re
from html import unescape

HTML_LENGTH = 1 << 20
"""Characters that are read: four times of what an item's text may have."""
UNSEEN = frozenset({"head", "template"})
RAW = {tag: re.compile(rf"</{tag}(?![a-z0-9])[^>]*>?", re.IGNORECASE) for tag in ("script", "style", "title")}
"""What is not seen either and has no tags or comments: all is its text, up to its end."""
LINES = frozenset(
    {"address", "article", "blockquote", "body", "br", "dd", "div", "dl", "dt", "footer", "form", "header", "hr"}
    | {"h1", "h2", "h3", "h4", "h5", "h6", "html", "li", "ol", "p", "pre", "section", "table", "tr", "ul"}
)
"""What begins and ends a line; of a row of a table, cells are set apart by a space."""
_NUMBER = re.compile(r"&#0*([0-9]+)")
"""Of a character. Python refuses to read very long ones; eight digits are more than any character has."""
_SPACE = re.compile(r"[ \t\r\n\f]+")
# Python's html.parser takes the square of the length for tags and comments that do not end, before 3.11.14. Here
# every character is in one piece: a comment, a declaration, a tag (which may be cut off), or what is seen.
_PIECE = re.compile(
    r"<!--.*?(?:--!?>|\Z)|<[!?][^>]*(?:>|\Z)|<(?P<end>/?)(?P<tag>[a-zA-Z][a-zA-Z0-9]*)[^<>]*>?|</[^<>]*>?|(?P<seen><?[^<]*)",
    re.DOTALL,
)


def plain_text(html: str) -> str:
    """What the HTML says, its paragraphs as lines."""
    pieces: list[str] = []
    hidden: str | None = None
    html, at = html[:HTML_LENGTH], 0
    while at < len(html) and (piece := _PIECE.match(html, at)):
        at = piece.end()
        tag = (piece["tag"] or "").lower()
        if tag in RAW and not piece["end"]:
            end = RAW[tag].search(html, at)
            at = end.end() if end else len(html)
        elif hidden is not None:
            if tag == "body" or (tag == hidden and piece["end"]):  # a head may end without a word
                hidden = None
        elif tag in UNSEEN and not piece["end"]:
            hidden = tag
        elif tag in LINES:
            pieces.append("\n")
        elif tag in {"td", "th"}:
            pieces.append(" ")
        elif piece["seen"]:
            seen = _NUMBER.sub(lambda number: f"&#{number[1][:8]}", piece["seen"])
            pieces.append(unescape(_SPACE.sub(" ", seen)))
    return "".join(pieces)
