"""The client: what it says is typed, and what gets no answer is asked again without being done twice."""

import asyncio
import json
import os
import random
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import httpx
import orjson
import pytest
from support.queue_api import told
from support.world import World, item

from haystream.events import Outcome, Verdict
from haystream_service import client as client_module
from haystream_service.client import ApiProblem, ApiUnavailable, Haystream
from haystream_service.commands import queue
from haystream_service.demo.bus import ApiBus
from haystream_service.errors import UserError
from haystream_service.settings import Settings
from haystream_service.wire import encode_item

pytestmark = pytest.mark.asyncio
T = TypeVar("T")

ITEMS = [item(n) for n in range(40)]


async def using(address: str, token: str, ask: Callable[[Haystream], T], **given: object) -> T:
    """What the synchronous client answers, in a thread."""

    def asked() -> T:
        with Haystream(address, token, pause=lambda _: None, **given) as client:  # type: ignore[arg-type]
            return ask(client)

    return await asyncio.to_thread(asked)


async def filled(address: str, world: World) -> None:
    """A query on forty items."""
    sent = await using(address, "ingest", lambda c: c.send_items("default", map(encode_item, ITEMS)))
    assert (sent.accepted, sent.rejected) == (40, ())
    opened = await using(address, "lead", lambda c: c.open("team/q", {"top": 20}))
    assert opened.settings["top"] == 20
    await world.processes[0].settled()


async def test_the_demos_analyst_claims_and_decides_over_http(address: str, world: World) -> None:
    await filled(address, world)
    with Haystream(address, "kim") as api:
        bus = ApiBus(Settings(), None, None, api)
        taken = [await bus.take("team/q", "another") for _ in range(2)]
        assert len(set(taken)) == 2
        assert None not in taken
        later = 1_000_001 + int(1e6 * time.time())  # than the lease began, by a clock that is not ours
        await bus.decide(Verdict("v-1", "team/q", str(taken[0]), "kim", Outcome.RELEVANT, later))
        await told(world, "team/q")

        def shown() -> tuple[list[str], int]:
            return [lease.item_id for lease in api.leases("team/q")], api.progress("team/q").found

        assert await asyncio.to_thread(shown) == ([taken[1]], 1)


async def test_items_with_long_texts_are_sent_in_parts_that_the_api_takes(address: str) -> None:
    def line(number: int, text: str) -> bytes:
        return json.dumps({"item_id": f"i{number}", "participants": ["ann", "bob"], "text": text}).encode()

    lines = [line(number, "x" * 200_000) for number in range(100)]
    lines[90] = b"no JSON"
    found = await using(address, "ingest", lambda client: client.send_items("default", lines))
    assert found.accepted == 99
    assert [rejected.line for rejected in found.rejected] == [91]


@pytest.mark.parametrize("wrong", ["", ".", "..", "a\udcffb"])
async def test_what_is_no_id_is_said_to_be_none(address: str, wrong: str) -> None:
    """Nor is another route asked, as for `..`."""
    with pytest.raises(UserError, match=re.escape(repr(wrong))):
        await using(address, "kim", lambda client: client.item("default", wrong))


async def test_settings_may_have_any_number_and_no_other_text_than_utf_8(address: str, world: World) -> None:
    def opened(query_id: str, label: Any) -> Any:
        return using(address, "lead", lambda client: client.open(query_id, {"scope": {"labels": {"k": label}}}))

    assert (await opened("large", 10**30)).settings["scope"] == {"labels": {"k": 1e30}}
    with pytest.raises(UserError, match=r"not UTF-8, at .*custodian \\udcff"):
        await opened("odd", "custodian \udcff")
    with pytest.raises(ApiProblem, match=r"scope\.labels\.k.*got nan"):
        await opened("nan", float("nan"))


async def test_a_day_at_work(address: str, world: World) -> None:
    await filled(address, world)

    def work(client: Haystream) -> None:
        leases = client.next("team/q", count=3)
        assert [lease.rank for lease in leases] == [1, 2, 3]
        assert client.keep(leases[0], 3600).until > leases[0].until
        given = client.decide("team/q", leases[0].item_id, Outcome.RELEVANT, wait="ranking")
        assert given.ranked
        assert client.progress("team/q").found == 1
        assert client.why("team/q", leases[0].item_id).verdicts[0].verdict_id == given.verdict.verdict_id
        client.undo("team/q", given.verdict.verdict_id, wait="ranking")
        assert client.progress("team/q").screened == 0
        client.give_back(leases[1])
        client.give_back(leases[1])  # to give it back twice is to give it back
        people = client.item("default", leases[1].item_id)
        assert client.participant("team/q", str(people.sender)).contacts
        (again,) = client.next("team/q")
        assert again.item_id != leases[2].item_id
        assert {lease.item_id for lease in client.leases("team/q")} >= {again.item_id, leases[2].item_id}
        assert client.ranking("team/q", limit=2).items
        assert client.me().subject == "kim"

    await using(address, "kim", work)

    def lead(client: Haystream) -> None:
        assert [line.query_id for line in client.queries()] == ["team/q"]
        for change, status in ((client.pause, "paused"), (client.close, "closed"), (client.reopen, "open")):
            assert change("team/q").settings["status"] == status
        with client.export("team/q", "decisions") as pieces:
            rows = [orjson.loads(line) for line in b"".join(pieces).splitlines()]
        assert [row["outcome"] for row in rows] == ["relevant", "retracted"]
        with pytest.raises(ApiProblem, match="not_found") as caught:
            client.query("none")
        assert (caught.value.status, caught.value.code) == (404, "not_found")
        assert caught.value.correlation_id

    await using(address, "lead", lead)


class Lossy(httpx.HTTPTransport):
    """Of each two requests the first is lost: by turns before it arrives, on the way back, or by a busy server."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        match self.requests % 6:
            case 1:
                raise httpx.ConnectError("never arrived")
            case 3:
                super().handle_request(request).close()
                raise httpx.ReadError("the answer was lost")
            case 5:
                return httpx.Response(503, headers={"Retry-After": "1"}, content=b"<html>busy</html>")
        return super().handle_request(request)


async def test_what_gets_no_answer_is_asked_again_and_done_once(address: str, world: World) -> None:
    await filled(address, world)

    def work(client: Haystream) -> set[str]:
        items = set()
        for _ in range(12):
            (lease,) = client.next("team/q")
            assert lease.item_id not in items
            items.add(lease.item_id)
            client.decide("team/q", lease.item_id, Outcome.IRRELEVANT)
        return items

    transport = Lossy()
    items = await using(address, "kim", work, transport=transport)
    assert transport.requests > 40
    await world.processes[0].settled()
    stored = await world.store.load_query("team/q")
    assert stored is not None
    assert sorted(verdict.item_id for verdict in stored.verdicts) == sorted(items)
    leased = {lease.item_id for lease in await world.store.claims.live("team/q")}
    assert leased <= items  # no answer that was lost has left an item behind
    assert not world.dead_letters()


class LostOnce(httpx.HTTPTransport):
    """The first answer to a DELETE is lost on the way back."""

    lost = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        if request.method == "DELETE" and not self.lost:
            self.lost = True
            answer.read()
            answer.close()
            raise httpx.ReadError("the answer was lost")
        return answer


async def test_a_query_is_deleted_although_the_answer_was_lost(address: str, world: World) -> None:
    await filled(address, world)
    transport = LostOnce()
    deleted = await using(address, "lead", lambda client: client.delete("team/q"), transport=transport)
    assert (deleted.query_id, deleted.deleted, transport.lost) == ("team/q", True, True)
    with pytest.raises(ApiProblem, match="not_found"):
        await using(address, "lead", lambda client: client.delete("none"))


async def test_an_api_that_stays_away_is_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def away(request: httpx.Request) -> httpx.Response:
        return httpx.Response(503, headers={"Retry-After": "2"}, content=b"")

    transport = httpx.MockTransport(away)
    with (
        Haystream("http://x", "t", transport=transport, pause=pauses.append, rng=random.Random(1)) as client,
        pytest.raises(ApiUnavailable, match="unavailable"),
    ):
        client.me()
    assert len(pauses) == client_module.TRIES - 1
    assert min(pauses) >= 2.0
    assert len(set(pauses)) == len(pauses)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"token": ""}, "HAYSTREAM_API_TOKEN"),
        ({"token": "é"}, "HAYSTREAM_API_TOKEN"),
        ({"token": "a\nb"}, "HAYSTREAM_API_TOKEN"),
        ({"address": "http://[::1"}, "HAYSTREAM_API"),
        ({"ca_file": Path(__file__)}, "HAYSTREAM_API_CA_FILE"),
    ],
)
async def test_what_no_api_can_be_asked_with_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=rf"\b{named}\b"):
        Haystream(**{"address": "https://x", "token": "t"} | given)


async def test_certificates_may_lie_in_a_folder_by_their_hashes(tmp_path: Path) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(404))
    with Haystream("https://x", "t", ca_file=tmp_path, transport=transport) as client, pytest.raises(ApiProblem):
        client.me()


async def test_certificates_that_all_programs_are_to_use_are_named_by_their_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file")
    with pytest.raises(UserError, match=r"/no/such/file.*\(SSL_CERT_FILE\)"):
        Haystream("https://x", "t")


@pytest.mark.parametrize("proxy", ["nonsense://proxy", "http://[::1"])
async def test_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(UserError, match=r"\bHTTPS_PROXY\b") as refused:
        Haystream("https://x", "t")
    assert "HAYSTREAM_API" not in str(refused.value)


async def test_a_server_that_is_none_of_ours_is_said_to_be() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=b"<html>"))
    with (
        Haystream("http://x", "t", transport=transport) as client,
        pytest.raises(ApiUnavailable, match="no haystream"),
    ):
        client.me()


async def test_who_decides_at_a_prompt_is_told_that_there_is_no_such_item(
    address: str, world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    await filled(address, world)
    monkeypatch.setattr(queue, "connected", lambda _: Haystream(address, "kim"))

    async def said(item_id: str) -> list[str]:
        given = "team/q", item_id, Outcome.RELEVANT
        await asyncio.to_thread(queue.run_verdict, *given, config=None, json=False)
        return capfd.readouterr().err.splitlines()

    (there,) = await said("item-1")
    assert there.startswith("item-1 is relevant")
    assert (await said("item-l"))[1:] == ["there is no item item-l yet: the verdict counts when it comes"]


class Torn(httpx.SyncByteStream):
    """An answer whose connection is lost after its first piece."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"fact,at\n"
        raise httpx.RemoteProtocolError("peer closed connection")


async def test_an_export_that_breaks_off_is_said_to_and_leaves_a_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Torn()))
    monkeypatch.setattr(queue, "connected", lambda _: nullcontext(Haystream("http://x", "t", transport=transport)))
    file = tmp_path / "audit.csv"
    file.write_text("a whole one\n")
    with pytest.raises(ApiUnavailable, match="the export broke off, and is not whole"):
        queue.run_export("q", audit=True, form="csv", to=file, config=None)
    assert contents(tmp_path) == {"audit.csv": "a whole one\n"}


async def test_an_export_takes_the_place_of_the_file_once_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=b"fact,at\n"))
    monkeypatch.setattr(queue, "connected", lambda _: nullcontext(Haystream("http://x", "t", transport=transport)))
    queue.run_export("q", audit=True, form="csv", to=tmp_path / "audit.csv", config=None)
    assert contents(tmp_path) == {"audit.csv": "fact,at\n"}
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    queue.run_export("q", audit=True, form="csv", to=pipe, config=None)
    assert os.read(reading, 100) == b"fact,at\n"
    os.close(reading)
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)
    reading, writing = os.pipe()
    with os.fdopen(writing):
        queue.run_export("q", audit=True, form="csv", to=Path(f"/proc/self/fd/{writing}"), config=None)
    assert os.read(reading, 100) == b"fact,at\n"
    os.close(reading)


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}
