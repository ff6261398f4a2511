"""The demo: the play on the in-memory stage and against scripted workers, its stage, its screen, its summary."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from rich.console import Console

from haystream_service import cli
from haystream_service.commands import demo
from haystream_service.demo import play as playing
from haystream_service.demo import stage as staging
from haystream_service.demo.bus import Bus, MemoryBus
from haystream_service.demo.play import NoAnswer, play
from haystream_service.demo.progress import Progress, Screened
from haystream_service.demo.screen import draw
from haystream_service.demo.stage import Stage, WorkerProcess, stage
from haystream_service.errors import UserError
from haystream_service.local import KafkaServer, ServerUnavailable, ValkeyServer
from haystream_service.sources import Source, synthetic
from haystream_service.wire import NextItems
from haystream_service.wire.records import EstimateRecord, RankedItemRecord, ShareRecord
from haystream_service.worker.memory import MemoryBroker

LONG = 3600.0
SMALL = synthetic(seed=1, edges=56, items_per_edge=5)
TINY = synthetic(seed=3, edges=56, items_per_edge=0.3)


@pytest.fixture(autouse=True)
def no_pace(monkeypatch):
    """As fast as it goes: nothing is spread over the time."""
    monkeypatch.setattr(playing, "STREAMING", 0.0)
    monkeypatch.setattr(playing, "READING", 0.0)
    monkeypatch.setattr(playing, "FASTEST", float("inf"))


async def played(bus: Bus, source: Source, *, seconds: float = LONG, screenings: int = 1000) -> Progress:
    return await play(bus, source, seconds=seconds, screenings=screenings, on_progress=lambda _: None)


# ---- on the in-memory stage ----


@pytest_asyncio.fixture
async def in_memory() -> AsyncIterator[Bus]:
    async with AsyncExitStack() as stack:
        yield await staging._in_memory(stack)


@pytest.mark.asyncio
async def test_it_finds_more_than_random(in_memory):
    source = synthetic(seed=3, edges=200, items_per_edge=20)  # relevant: 4 % of its items
    seen: list[int] = []
    progress = await play(
        in_memory, source, seconds=LONG, screenings=120, on_progress=lambda p: seen.append(p.verdicts)
    )
    assert progress.verdicts == progress.screened == len(progress.latencies) == 120
    assert progress.random_found == 120 * source.relevant / len(source)
    assert progress.times_random == progress.found / progress.random_found
    assert progress.times_random >= 2
    assert set(range(1, 121)) <= set(seen)
    last = progress.recent[-1]
    assert last.relevant == source.truth(last.item_id)
    assert last.because


@pytest.mark.asyncio
async def test_it_stops_when_nothing_is_left(in_memory):
    progress = await played(in_memory, TINY)
    assert progress.items == progress.verdicts == progress.screened == len(progress.latencies) == len(TINY)
    assert progress.found == TINY.relevant
    assert progress.elapsed == progress.elapsed < LONG


# ---- against scripted workers ----


class ScriptedBus:
    """A worker that answers a verdict with the items that it always answers with. `sent`: what it was told."""

    def __init__(self, item_ids: tuple[str, ...], *, deaf_to: str = "", stale: bool = False) -> None:
        self._items = tuple(
            RankedItemRecord(item_id=i, rank=n, score=0.5, mean=0.5, sd=0.1, participants=("a", "b"), because=())
            for n, i in enumerate(item_ids, start=1)
        )
        self._deaf_to = deaf_to
        self._stale = stale
        self._rankings: asyncio.Queue[NextItems] = asyncio.Queue()
        self.sent: list[tuple[str, str]] = []

    async def send(self, topic: str, key: str, value: bytes) -> None:
        self.sent.append((topic, json.loads(value).get("item_id", "")))
        verdicts = sum(topic == "verdicts" for topic, _ in self.sent)
        if topic != self._deaf_to:
            if self._stale:  # published again by one who is behind
                self._rankings.put_nowait(self._ranking(-1, verdicts + 1000))
            self._rankings.put_nowait(self._ranking(verdicts, verdicts))

    async def send_items(self, items: list[tuple[str, bytes]]) -> None:
        self.sent += [("items", item_id) for item_id, _ in items]

    async def next_ranking(self) -> NextItems:
        return await self._rankings.get()

    def _ranking(self, revision: int, screened: int) -> NextItems:
        return NextItems.model_construct(
            revision=revision,
            screened=screened,
            found=0,
            expected_remaining=EstimateRecord(mean=1.0, sd=1.0),
            items=self._items if screened < 1000 else (),
        )


@pytest.mark.asyncio
async def test_no_item_is_read_twice():
    wanted = tuple(item.item_id for item in TINY)
    bus = ScriptedBus(wanted)
    await played(bus, TINY)
    assert [item_id for topic, item_id in bus.sent if topic == "verdicts"] == list(wanted)


@pytest.mark.asyncio
async def test_older_rankings_are_not_looked_at(monkeypatch):
    wanted = tuple(item.item_id for item in TINY)
    bus = ScriptedBus(wanted, stale=True)
    # The stale ones come first at the opening too, where the first ranking of all is taken for what it is.
    progress = await played(bus, TINY)
    assert progress.screened == len(TINY)


@pytest.mark.asyncio
async def test_it_stops_at_so_many_screenings():
    bus = ScriptedBus(tuple(item.item_id for item in TINY))
    assert (await played(bus, TINY, screenings=3)).verdicts == 3


@pytest.mark.asyncio
@pytest.mark.parametrize("topic", ["queries", "verdicts"])
async def test_a_ranking_that_does_not_come_is_said(monkeypatch, topic):
    monkeypatch.setattr(playing, "PATIENCE", 0.01)
    bus = ScriptedBus(tuple(item.item_id for item in TINY), deaf_to=topic)
    with pytest.raises(UserError, match=r"no ranking came for 0\.01 seconds"):
        await played(bus, TINY)


@pytest.mark.asyncio
async def test_items_that_are_never_ranked_are_said():
    with pytest.raises(NoAnswer, match=r"no item was ranked within 0\.01 seconds"):
        await played(ScriptedBus(()), TINY, seconds=0.01)


@pytest.mark.asyncio
async def test_what_fails_beside_the_analyst_ends_the_play(monkeypatch):
    bus = ScriptedBus(())

    async def fail(items: list[tuple[str, bytes]]) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(bus, "send_items", fail)
    with pytest.raises(ZeroDivisionError):
        await played(bus, TINY)


@pytest.mark.asyncio
async def test_a_bug_of_the_worker_ends_the_play():
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failed.set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await played(MemoryBus(MemoryBroker(), failed), TINY)


def test_the_end_of_the_workers_log_is_kept():
    worker = WorkerProcess({})
    try:
        worker.log.write_text("first\nit broke\n")
        ended = r"no answer; the haystream worker has ended\n(.*\n)?it broke"
        with pytest.raises(NoAnswer, match=ended), staging._explained(worker):
            raise NoAnswer("no answer")
    finally:
        worker.close()


# ---- the stage ----


@pytest.fixture
def no_java(monkeypatch):
    def missing(self: KafkaServer) -> KafkaServer:
        raise ServerUnavailable("no Java here\nmore about it")

    monkeypatch.setattr(KafkaServer, "start", missing)
    monkeypatch.setattr(ValkeyServer, "start", lambda self: self)
    for variable in ("HAYSTREAM_KAFKA", "HAYSTREAM_REDIS"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.asyncio
@pytest.mark.usefixtures("no_java")
async def test_without_java_it_runs_in_memory_and_says_why():
    async with stage() as on:
        assert (on.kafka, on.redis) == ("in memory (this process): no Java here", "in memory (this process)")
        assert isinstance(on.bus, MemoryBus)


@pytest.mark.asyncio
async def test_named_servers_that_do_not_answer_are_named(monkeypatch):
    monkeypatch.setattr(ValkeyServer, "start", lambda self: self)
    monkeypatch.delenv("HAYSTREAM_REDIS", raising=False)
    monkeypatch.setenv("HAYSTREAM_KAFKA", "127.0.0.1:1")
    with pytest.raises(UserError, match=r"no Kafka answers at 127\.0\.0\.1:1 \(HAYSTREAM_KAFKA\)"):
        async with stage():
            pass


@pytest.mark.asyncio
async def test_a_start_that_is_cancelled_is_broken_off(monkeypatch):
    server = ValkeyServer()
    entered, stopped = asyncio.Event(), []
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def start(self: ValkeyServer) -> ValkeyServer:
        loop.call_soon_threadsafe(entered.set)
        asyncio.run_coroutine_threadsafe(ended.wait(), loop).result()
        raise ServerUnavailable("it was stopped while starting")

    def stop(self: ValkeyServer) -> None:
        stopped.append(self)
        loop.call_soon_threadsafe(ended.set)

    monkeypatch.setattr(ValkeyServer, "start", start)
    monkeypatch.setattr(ValkeyServer, "stop", stop)
    async with AsyncExitStack() as stack:
        starting = asyncio.ensure_future(staging.started(stack, server))
        await entered.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    assert stopped[0] is server
    assert not server.data_dir.exists()


# ---- what a person or a program gets ----

ON = Stage(ScriptedBus(()), "a Kafka", "a Redis")


def progress_of(source: Source, *, verdicts: int) -> Progress:
    progress = Progress(source, 50, items=len(source), verdicts=verdicts, screened=verdicts)
    if verdicts:
        because = (ShareRecord(participants=("ann@example.org", "bob"), share=0.25),)
        progress.found, progress.expected_remaining = 1234, EstimateRecord(mean=77.4, sd=5.6)
        progress.latencies = [0.001, 0.0025, 4.0]
        progress.recent.append(Screened("m1", ("ann@example.org", "x" * 30), True, because))
        progress.recent.append(Screened("m2", ("bob", "cho", "dan"), False, because))
    return progress


def test_the_summary_keeps_its_contract():
    summary = demo.summary(progress_of(SMALL, verdicts=40), ON)
    assert json.loads(json.dumps(summary)) == summary
    assert summary["runs_on"] == {"kafka": "a Kafka", "redis": "a Redis"}
    assert (summary["items"], summary["verdicts"], summary["screened"]) == (len(SMALL), 40, 40)
    assert summary["found"] == 1234
    assert summary["random"] == {"found": round(40 * SMALL.relevant / len(SMALL), 1)}
    latency = summary["latency_ms"]
    assert isinstance(latency, dict)
    assert list(latency) == ["p50", "p95", "p99"]
    assert latency["p50"] == 2.5
    assert summary["expected_remaining"] == {"mean": 77.4, "sd": 5.6}


def test_a_summary_of_nothing_has_no_numbers_that_are_none():
    summary = demo.summary(progress_of(SMALL, verdicts=0), ON)
    assert summary["latency_ms"] == {"p50": None, "p95": None, "p99": None}
    assert summary["expected_remaining"] is None
    assert "NaN" not in json.dumps(summary)


def test_the_result_in_words():
    words = demo.in_words(progress_of(SMALL, verdicts=40))
    assert words.isascii()
    assert f"screened 40 of {len(SMALL)} items and found 1,234 of {SMALL.relevant} relevant ones" in words
    assert "p50 2.5 ms" in words


def drawn(progress: Progress, *, width: int, encoding: str = "utf-8") -> str:
    class Sink:
        def __init__(self) -> None:
            self.encoding = encoding

        def write(self, text: str) -> int:
            return len(text.encode(encoding))  # as strict as a terminal of that encoding

        def flush(self) -> None: ...

    console = Console(record=True, width=width + 2, file=Sink(), soft_wrap=True)  # type: ignore[arg-type]
    console.print(draw(progress, "a [bold] title", width=width))
    return console.export_text()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_screen_shows_how_it_goes(encoding):
    text = drawn(progress_of(SMALL, verdicts=40), width=78, encoding=encoding)
    random = 40 * SMALL.relevant / len(SMALL)
    for shown in (
        "a [bold] title",
        "1,234 relevant",
        f"{random:.0f} relevant",
        f"{len(SMALL)} of {len(SMALL)} items",
        "40 of 50",
        "77 expected, give or take 6",
        "p50 2.5 ms",
        "p99 3,920.1 ms",
        "ann - xxxxxxxxxxxxxxxxxx..",
        "bob - cho - dan",
        "+0.250",
    ):
        assert shown in text


@pytest.mark.parametrize("verdicts", [0, 40])
@pytest.mark.parametrize("width", [30, 78, 100])
def test_the_screen_fits(width, verdicts):
    lines = drawn(progress_of(SMALL, verdicts=verdicts), width=width).splitlines()
    assert {len(line.rstrip()) for line in lines} == {width}
    assert not any("nan" in line.lower() for line in lines)


@pytest.fixture
def haystream(monkeypatch, capfd) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["haystream", "demo", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capfd.readouterr()
        return left.value.code, out, err  # type: ignore[return-value]

    return call


@pytest.mark.usefixtures("no_java")
def test_one_json_object_and_nothing_else(haystream, tmp_path):
    mails = tmp_path / "mails.csv"
    rows = "".join(f"m{i},p{i % 3},p{i % 3 + 1},{i % 2}\n" for i in range(20)) + "m99,a,a,1\n"
    mails.write_text("item_id,sender,recipients,relevant\n" + rows)
    code, out, err = haystream("--headless", "--json", "--source", mails)
    assert code == 0
    result = json.loads(out)
    assert (result["screened"], result["verdicts"], result["items"], result["found"]) == (20, 20, 20, 10)
    assert result["runs_on"]["kafka"].startswith("in memory")
    assert "1 left out: 1 too_few_participants" in err
    assert "runs on in memory (this process): no Java here; in memory (this process)" in err


@pytest.mark.usefixtures("no_java")
def test_simulations_of_any_size(haystream):
    code, out, _ = haystream("--headless", "--screenings", 3, "--edges", 60)
    assert code == 0
    assert out.startswith("screened 3 of ")
    assert len(demo._simulated(0, 20_000)) < 1.01 * demo.MOST_ITEMS


@pytest.mark.parametrize("arguments", [("--source", "none.csv"), ("--edges", 3), ("--seconds", 0)])
def test_wrong_use_starts_nothing(haystream, arguments):
    code, out, err = haystream(*arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert "starting" not in err


# ---- on real servers, as a process of its own ----

MARK = "DEMO_TEST_MARK"


class Demo:
    """A `haystream demo` process; whatever descends from it carries its mark in the environment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ours = {name: value for name, value in os.environ.items() if not name.startswith("HAYSTREAM_")}
        self._environment = {**ours, MARK: str(folder), "TMPDIR": str(folder)}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from haystream_service.cli import main; main()", "demo", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )

    def left(self) -> list[str]:
        """Processes and files that it has left behind."""
        processes = [p.parent.name for p in Path("/proc").glob("[0-9]*/environ") if self._is_ours(p)]
        return processes + [path.name for path in self._folder.glob("haystream-*")]

    def _is_ours(self, environ: Path) -> bool:
        try:
            return f"{MARK}={self._folder}".encode() in environ.read_bytes().split(b"\0")
        except OSError:  # it has just ended, or is not ours to look at
            return False


@pytest.mark.asyncio
@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.usefixtures("kafka", "valkey")
async def test_it_runs_on_real_servers_and_leaves_nothing(tmp_path):
    ours = Demo(tmp_path)
    process = await ours.start("--headless", "--json", "--seconds", "15", "--screenings", "100")
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    result = json.loads(out)
    for server in ("kafka", "redis"):
        assert "(started here)" in result["runs_on"][server]
    assert result["screened"] == result["verdicts"] > 0
    assert ours.left() == []


@pytest.mark.asyncio
@pytest.mark.kafka
@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.usefixtures("kafka", "valkey")
@pytest.mark.parametrize(
    ("number", "at", "times"), [(signal.SIGINT, b"starting", 3), (signal.SIGTERM, b"runs on", 1)]
)
async def test_a_signal_stops_everything_however_often_it_comes(tmp_path, number, at, times):
    ours = Demo(tmp_path)
    process = await ours.start("--headless")
    assert process.stderr is not None
    async for line in process.stderr:
        if at in line:
            break
    for _ in range(times):
        process.send_signal(number)
    out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert err.decode().splitlines()[-1] == "stopped"
    assert b"Traceback" not in err
    assert ours.left() == []
