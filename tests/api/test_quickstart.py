"""docs/quickstart.md, run: every command, and what it answers."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
import pytest_asyncio
from support.forked import Forked, ForkedApi
from support.pipeline import Pipeline, program, until
from support.queue_api import EVERYTHING, write_keys
from support.shell import sourced

from haystream_service.api.access import Role
from haystream_service.client import Haystream
from haystream_service.settings import PREFIX, variables

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"
MAILS = 60
CHANGING = (
    (r"\b[0-9a-f]{32}\b", "ID"),
    (r"(?<!^sent )\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"\S+ at 127\.0\.0\.1:\d+", "TOPIC"),
)
"""What is another each time; when a mail was sent is not."""


def steps() -> list[tuple[list[str], str]]:
    """Each command of the page's consoles, with what it answers."""
    found = []
    for block in blocks("console"):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, answer = step.partition("\n")
            found.append((command.split(), answer))
    return found


def blocks(language: str) -> list[str]:
    """What the page has in that language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def masked(text: str) -> str:
    for pattern, name in CHANGING:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text


@pytest_asyncio.fixture
async def environment(
    pipeline: Pipeline, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Mapping[str, str]]:
    """What `haystream up` writes down: of all of it, with `--faults all`, else of the tests' own servers."""
    if request.config.getoption("--faults") == "all":
        async for found in up(tmp_path):
            yield found
        return
    await pipeline.worker()
    keys, token = tmp_path / "keys.json", tmp_path / "token"
    write_keys(keys, ("me", [Role.INGEST, Role.ANALYST, Role.LEAD], [EVERYTHING]))
    token.write_text("me\n")
    api = ForkedApi(variables(pipeline.settings), keys)
    try:
        await asyncio.to_thread(api.start)
        where = {"HAYSTREAM_API": api.address, "HAYSTREAM_API_TOKEN_FILE": str(token)}
        yield {**pipeline.environment(), **where}
    finally:
        await asyncio.to_thread(api.close)


async def up(folder: Path) -> AsyncIterator[Mapping[str, str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    log, env = folder / "log", folder / "data" / "env"
    process = await asyncio.to_thread(Forked, ["up", str(folder / "data")], kept, out=log, err=log)
    try:

        async def is_up() -> bool:
            assert process.poll() is None, log.read_text()
            return env.exists() and "Ctrl-C" in log.read_text()

        await until(is_up, "everything is up")
        yield dict(line.split("=", 1) for line in sourced(env, "env -0").split("\0") if line)
    finally:
        os.kill(process.pid, 15)
        await asyncio.to_thread(process.wait, 60)


async def test_every_command_answers_as_it_says(environment: Mapping[str, str], tmp_path: Path) -> None:
    shutil.copy(PAGE.with_suffix(".mbox"), tmp_path / "archive.mbox")
    token = await asyncio.to_thread(Path(environment["HAYSTREAM_API_TOKEN_FILE"]).read_text)

    async def all_in() -> bool:
        def asked() -> bool:
            with Haystream(environment["HAYSTREAM_API"], token.strip()) as client:
                ranked = client.ranking("case-7", limit=60)
                return client.progress("case-7").items == MAILS and len(ranked.items) >= 50

        return await asyncio.to_thread(asked)

    def screened() -> int:
        with Haystream(environment["HAYSTREAM_API"], token.strip()) as client:
            return client.progress("case-7").screened

    answers = {}
    for words, _ in steps():
        if words[:3] == ["haystream", "query", "close"]:
            await run_the_program(environment)
            assert await asyncio.to_thread(screened) == 12
        assert words[0] == "haystream"
        words = [str(tmp_path / word) if word == "archive.mbox" else word for word in words]
        ran = await program(environment, *words[1:])
        assert ran.code == 0, ran.err
        answers[" ".join(words)] = masked(ran.out + ran.err)
        if "open" in words:
            await until(all_in, "all mails are ranked")
    assert list(answers.values()) == [masked(answer) for _, answer in steps()], answers


async def run_the_program(environment: Mapping[str, str]) -> None:
    """The page's Python has ten items with their texts, and decides on them."""
    (source,) = blocks("python")
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", source],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()


async def test_the_commands_of_a_query_go_over_the_api(environment: Mapping[str, str]) -> None:
    there = {name: value for name, value in environment.items() if name.startswith("HAYSTREAM_API")}
    query_id = f"case-{uuid4().hex[:8]}"
    opened = await program(there, "query", "open", query_id, "--top", "7")
    assert opened.code == 0, opened.err

    async def taken_in() -> bool:  # which a busy worker does after `open` has waited for it
        return (await program(there, "query", "show", query_id)).code == 0

    await until(taken_in, "the worker has taken the query in")
    listed = orjson.loads((await program(there, "query", "list", "--json")).out)["queries"]
    assert [(line["state"], line["status"]) for line in listed if line["query_id"] == query_id] == [
        ("running", "open")
    ]
    assert query_id in (await program(there, "query", "list")).out
    assert query_id not in (await program(there, "query", "list", "--stopped")).out
    shown = orjson.loads((await program(there, "query", "show", query_id, "--json")).out)
    assert (shown["settings"]["top"], shown["screened"]) == (7, 0)
    assert "is not stopped" in (await program(there, "query", "release", query_id)).err
    gone = await program(there, "query", "delete", query_id, "--yes")
    assert (gone.code, "is deleted" in gone.err) == (0, True), gone.err
    again = await program(there, "query", "show", query_id)
    assert (again.code, again.out) == (2, "")
    assert query_id not in (await program(there, "query", "list")).out


async def test_the_commands_need_no_api(pipeline: Pipeline, tmp_path: Path) -> None:
    await pipeline.worker()
    mailbox = shutil.copy(PAGE.with_suffix(".mbox"), tmp_path / "archive.mbox")
    here = pipeline.environment()
    for command in (
        ["import", "mbox", str(mailbox), "--to", "kafka"],
        ["query", "open", "case-7", "--watch", "ann@example.org=0.5"],
        ["verdict", "case-7", "mail-04@example.org", "relevant"],
        ["query", "pause", "case-7"],
    ):
        ran = await program(here, *command)
        assert ran.code == 0, ran.err
    exported = (await program(here, "query", "export", "case-7")).out
    assert '"item_id":"mail-04@example.org","outcome":"relevant"' in exported
    stopped = await program(here, "next", "case-7")
    assert (stopped.code, stopped.err) == (2, "haystream: query_not_open: query 'case-7' is paused\n")
    wrong = await program({**here, "HAYSTREAM_API": "http://127.0.0.1:1"}, "next", "case-7")
    assert wrong.code == 2
    assert "HAYSTREAM_API_TOKEN_FILE" in wrong.err
