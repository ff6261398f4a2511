"""The pages of docs/ and those at the top: each link to a file leads to one, and to a heading that it has."""

import re
from pathlib import Path

CODE = re.compile(r"```.*?```", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_every_link_leads_somewhere(root: Path) -> None:
    links = [
        (page, target)
        for page in (*root.glob("*.md"), *(root / "docs").rglob("*.md"))
        for target in LINK.findall(CODE.sub("", page.read_text()))
        if "://" not in target
    ]
    assert len(links) > 100
    assert [f"{page.name}: {target}" for page, target in links if not leads(page, target)] == []


def leads(page: Path, target: str) -> bool:
    """Whether there is such a file, with such a heading if it is a page."""
    name, _, heading = target.partition("#")
    file = page.parent / name if name else page
    return file.exists() and (not heading or heading in headings(file))


def headings(page: Path) -> set[str]:
    """What links call its headings: in lower case, without punctuation, with hyphens for blanks."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}
