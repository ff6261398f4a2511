"""The pages of docs/ for whoever runs haystream, as tests read what stands in them."""

from pathlib import Path

PAGES = ("operations", "kubernetes", "settings", "monitoring", "growing", "recovery", "erasure")
"""In the order in which their commands can be run."""


def operator_pages() -> str:
    """The text of all the pages, one after the other."""
    docs = Path(__file__).parents[2] / "docs"
    return "\n".join((docs / f"{page}.md").read_text() for page in PAGES)
