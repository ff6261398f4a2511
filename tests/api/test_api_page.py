"""docs/api.md: its routes, roles and codes are those of the code."""

import re
from pathlib import Path

from haystream_service.api.access import OPEN, ROUTES, Role
from haystream_service.api.problems import ApiCode, Problem

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()


def test_it_has_every_route() -> None:
    section = PAGE.split("\n## Routes\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    found = {name for row in rows for name in re.findall("`(.*?)`", row)}
    assert found == {*ROUTES, *OPEN}


def test_it_has_every_role() -> None:
    section = PAGE.split("\n| role | may |\n")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == [role.value for role in Role]


def test_it_has_every_code_with_its_status() -> None:
    section = PAGE.split("\n## Problems\n")[1].split("\n## ")[0]
    found = {code: int(status) for code, status in re.findall(r"^\| `(\w+)` \| (\d+) \|", section, re.MULTILINE)}
    assert found == {code.value: Problem(code, "").status for code in ApiCode}
