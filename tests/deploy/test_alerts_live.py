"""Real faults, real alerts: each is told by the right page or ticket, and no other, and that resolves.

Kafka, Valkey, two workers, analysts that answer every ranking, and a queue API that is asked all the while;
Prometheus with the rules of deploy/prometheus, from the same source with every time 10 times shorter; Alertmanager
with deploy/alertmanager, only without its waits for more of the same. A table of the times is printed.

With `--faults all` (`make alerts`) two faults more, and times that are 3 times shorter: a group of consumers takes
its ten seconds to notice that a worker is gone, however short the times of the rules are.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from support.forked import ForkedApi
from support.monitoring import Alertmanager, Prometheus, Receiver, Told, receiving, sent_to
from support.pipeline import Pipeline, settings_on, until
from support.queue_api import EVERYTHING, write_keys

from haystream.events import Item, Outcome, Query, Verdict
from haystream.query.engine_choice import MOST_FOR_REFERENCE
from haystream_service.api.access import Role
from haystream_service.client import ApiProblem, ApiUnavailable, Haystream
from haystream_service.kafka.connection import consumer_arguments
from haystream_service.local import KafkaServer, ValkeyServer
from haystream_service.local.services import WorkerProcess
from haystream_service.settings import Settings
from haystream_service.wire import decode_ranking

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.redis, pytest.mark.slow]

FASTER = {"sample": 10, "all": 3}
"""HaystreamNoReadyWorker pages after 18 s or a minute in place of three, and so on."""
QUERIES = [f"case-{number}" for number in range(4)]
PEOPLE = 40
THINKING = 0.4
"""Seconds from a ranking to the analyst's verdict."""
CALLING = 0.2
"""Seconds between two requests to the API."""
ALLOWED = "0.15"
"""The share of verdicts that may be late, in place of 0.01, so that a page needs nine of ten: the machine that this
runs on may have other work. While a fault lasts it is all of them."""
BILL = "HaystreamObjectiveAtRisk"
"""The ticket that says what faults have cost of the month's budget: it may follow any of them."""
SLOWEST_SECONDS = 300.0
"""A worker that is away is told after ten minutes, so here after three and a third at most."""
RUN_SECONDS = 900
"""For all of it."""
QUIET_SECONDS = 5.0
"""After a page: for another to come that must not."""


class Analysts:
    """New items all the time, and a verdict on the first item of every ranking, by an analyst for each query."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.verdicts = 0
        self._pipeline = pipeline
        self._going = asyncio.Event()
        self._judged: dict[str, set[str]] = {query: set() for query in QUERIES}
        self._newest: dict[str, list[str]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def go(self) -> None:
        """Begin, or go on."""
        self._going.set()
        if not self._tasks:
            self._tasks = [asyncio.create_task(work) for work in (self._write(), self._read())]
            self._tasks += [asyncio.create_task(self._judge(query)) for query in QUERIES]

    def pause(self) -> None:
        """Say nothing for a while."""
        self._going.clear()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _say(self, event: Item | Verdict) -> None:
        await self._going.wait()
        while True:
            with contextlib.suppress(KafkaError, OSError):
                await self._pipeline.say(event)
                return
            await asyncio.sleep(0.2)

    async def _write(self) -> None:
        number = 0
        while True:
            ends = (number % PEOPLE, (number * 7 + number // PEOPLE + 1) % PEOPLE)
            if ends[0] != ends[1]:
                await self._say(Item(f"item-{number}", "default", f"p{ends[0]}", (f"p{ends[1]}",)))
            number += 1
            await asyncio.sleep(0.1)

    async def _read(self) -> None:
        settings = self._pipeline.settings
        consumer = AIOKafkaConsumer(
            settings.topic("next-items"), **consumer_arguments(settings), auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            async for record in consumer:
                ranking = decode_ranking(record.value)
                self._newest[ranking.query_id] = [item.item_id for item in ranking.items]
        finally:
            await consumer.stop()

    async def _judge(self, query: str) -> None:
        judged = self._judged[query]
        while True:
            await asyncio.sleep(THINKING)
            item = next((item for item in self._newest.get(query, []) if item not in judged), None)
            if item is not None:
                outcome = Outcome.RELEVANT if len(judged) % 3 == 0 else Outcome.IRRELEVANT
                decided = 1_700_000_000_000_000 + len(judged)
                await self._say(Verdict(f"{query}-{item}", query, item, "kim", outcome, decided))
                judged.add(item)
                self.verdicts += 1


class Callers:
    """Who uses the API: looks at a query, and sends an item that somebody reads, as often as that goes."""

    def __init__(self, api: ForkedApi) -> None:
        self.answered = 0
        self._going = threading.Event()
        self._going.set()
        self._client = Haystream(api.address, "boss", timeout=10.0, pause=lambda _: time.sleep(CALLING))
        self._task = asyncio.create_task(asyncio.to_thread(self._call))

    def _call(self) -> None:
        calls = itertools.cycle((lambda: self._client.progress(QUERIES[0]), self._send, self._read))
        while self._going.is_set():
            with contextlib.suppress(ApiProblem, ApiUnavailable):
                next(calls)()
                self.answered += 1
            time.sleep(CALLING)

    def _send(self) -> None:
        item = {"item_id": f"said-{self.answered}", "sender": "ann", "recipients": ["bob"], "text": "At noon?"}
        self._client.send_items("said", [json.dumps(item).encode()])

    def _read(self) -> None:
        self._client.item("said", "said-1")

    async def close(self) -> None:
        self._going.clear()
        await self._task
        self._client.__exit__(None, None, None)


@dataclass(frozen=True)
class Fault:
    """What is broken, how it is mended, and who has to be told of it."""

    name: str
    strike: Callable[["Scene"], Awaitable[object]]
    mend: Callable[["Scene"], Awaitable[object]]
    pages: frozenset[str] = frozenset()
    tickets: frozenset[str] = frozenset()
    """One of these has to come, where nobody is paged; none but these may."""
    in_sample: bool = True


@dataclass
class Scene:
    """What runs."""

    kafka: KafkaServer
    valkey: ValkeyServer
    pipeline: Pipeline
    workers: list[WorkerProcess]
    api: ForkedApi
    analysts: Analysts
    callers: Callers
    prometheus: Prometheus
    receiver: Receiver
    rows: list[tuple[str, ...]] = field(default_factory=list)

    async def stop_kafka_without_traffic(self) -> None:
        """Nobody says anything any more, and all is answered: then Kafka goes."""
        self.analysts.pause()
        await self.pipeline.drained()
        await asyncio.to_thread(self.kafka.kill)

    async def poison(self) -> None:
        """Open a query that cannot be computed."""
        await self.pipeline.say(Query("poisoned", "large", engine="reference"))

    async def heal(self) -> None:
        """What HaystreamQueriesQuarantined's page says: better settings, then release it."""
        await self.pipeline.say(Query("poisoned", "large"))
        self.analysts.pause()
        await self.pipeline.drained()
        ran = await self.pipeline.program("query", "release", "poisoned")
        assert ran.code == 0, ran


def called(name: str) -> frozenset[str]:
    return frozenset({f"Haystream{name}"})


FAULTS = [
    Fault(
        "a query is poisoned",
        Scene.poison,
        Scene.heal,
        tickets=called("QueriesQuarantined") | called("DeadLetters"),
    ),
    Fault(
        "Valkey stops",
        lambda scene: asyncio.to_thread(scene.valkey.kill),
        lambda scene: asyncio.to_thread(scene.valkey.start),
        pages=called("NoReadyWorker"),
        tickets=called("ServerErrors"),
    ),
    Fault(
        "Kafka stops, with traffic",
        lambda scene: asyncio.to_thread(scene.kafka.kill),
        lambda scene: asyncio.to_thread(scene.kafka.start),
        pages=called("NoReadyWorker"),
        tickets=called("ServerErrors"),
    ),
    Fault(
        "Kafka stops, without traffic",
        Scene.stop_kafka_without_traffic,
        lambda scene: asyncio.to_thread(scene.kafka.start),
        pages=called("NoReadyWorker"),
        tickets=called("ServerErrors"),
    ),
    Fault(
        "a worker of two is killed",
        lambda scene: asyncio.to_thread(scene.workers[1].kill),
        lambda scene: asyncio.to_thread(scene.workers[1].start),
        tickets=called("WorkerNotReady"),
        in_sample=False,
    ),
    Fault(
        "the one replica of the API is killed",
        lambda scene: asyncio.to_thread(scene.api.kill),
        lambda scene: asyncio.to_thread(scene.api.start),
        pages=called("ApiAway"),
        in_sample=False,
    ),
]


@pytest.fixture
def settings(own_kafka: KafkaServer, own_valkey: ValkeyServer, topic_prefix: str) -> Settings:
    return settings_on(own_kafka, own_valkey, topic_prefix)


@pytest.fixture
def faster(pytestconfig: pytest.Config) -> int:
    """By how much the rules' times are shorter."""
    return FASTER[pytestconfig.getoption("faults")]


@pytest.fixture
def rules(root: Path, tmp_path: Path, faster: int) -> Path:
    """The rules, with shorter times."""
    to = tmp_path / "alerts.yml"
    render = [sys.executable, root / "deploy" / "prometheus" / "render", "--faster", str(faster), "--to", to]
    subprocess.run(render, check=True)
    written = to.read_text()
    to.write_text(re.sub(r"(\* |> )0\.01\b", rf"\g<1>{ALLOWED}", written))
    assert to.read_text() != written
    return to


@pytest.fixture
def told(tool: Callable[[str], str], unavailable: Callable[[str], NoReturn], load: Any) -> Iterator[Any]:
    """Alertmanager's address, and the receiver of what it says."""
    if not Path("/usr/share/prometheus/alertmanager/default.tmpl").exists():
        unavailable("Alertmanager's templates are not in /usr/share/prometheus/alertmanager")
    with receiving() as receiver:
        at_once = {"group_wait": "1s", "group_interval": "1s"}
        config = sent_to(load("deploy/alertmanager/alertmanager.yml"), receiver.url, **at_once)
        with Alertmanager(tool("prometheus-alertmanager"), config) as alertmanager:
            yield alertmanager, receiver


@pytest_asyncio.fixture
async def scene(
    own_kafka: KafkaServer,
    own_valkey: ValkeyServer,
    pipeline: Pipeline,
    rules: Path,
    told: tuple[Alertmanager, Receiver],
    tool: Callable[[str], str],
    load: Any,
    tmp_path: Path,
) -> AsyncIterator[Scene]:
    workers = [await pipeline.worker() for _ in range(2)]
    write_keys(tmp_path / "keys.json", ("boss", list(Role), [EVERYTHING]))
    api = ForkedApi(pipeline.environment(), tmp_path / "keys.json")
    await asyncio.to_thread(api.start)
    await pipeline.say(*(Query(query) for query in QUERIES))
    pairs = range(MOST_FOR_REFERENCE + 1)
    await pipeline.say(*(Item(f"large-{n}", "large", "hub", (f"spoke-{n}",)) for n in pairs))
    alertmanager, receiver = told
    config = load("deploy/prometheus/prometheus.yml")
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(rules)]
    where = {"haystream-worker": workers, "haystream-api": [api]}
    for job in config["scrape_configs"]:
        targets = [f"127.0.0.1:{process.port}" for process in where[job["job_name"]]]
        job["static_configs"] = [{"targets": targets, "labels": {"namespace": "check"}}]
    config["alerting"] = {
        "alertmanagers": [{"static_configs": [{"targets": [alertmanager.url.removeprefix("http://")]}]}]
    }
    analysts = Analysts(pipeline)
    with Prometheus(tool("prometheus"), config) as prometheus:
        callers = Callers(api)
        scene = Scene(own_kafka, own_valkey, pipeline, workers, api, analysts, callers, prometheus, receiver)
        analysts.go()
        try:
            yield scene
        finally:
            await callers.close()
            await asyncio.to_thread(api.close)
        await analysts.close()


async def well(scene: Scene) -> bool:
    """Whether both workers are ready, no page is out and nothing is about to be told. A ticket may stay open."""
    ready = await asyncio.to_thread(scene.prometheus.ask, "query", query="sum(haystream_ready) == 2")
    alerts = (await asyncio.to_thread(scene.prometheus.ask, "alerts"))["alerts"]
    named = [alert for alert in alerts if alert["labels"]["alertname"] != BILL]
    calm = all(alert["state"] == "firing" and alert["labels"]["severity"] == "warning" for alert in named)
    return bool(ready["result"]) and calm


async def play(scene: Scene, fault: Fault) -> list[str]:
    """Strike, wait for whoever is told, mend, wait until that resolves; what was wrong."""
    expected = fault.pages or fault.tickets
    before = len(scene.receiver.told)
    old = {(told.name, told.began) for told in scene.receiver.told}

    def came() -> list[Told]:
        return [t for t in scene.receiver.told[before:] if t.firing and (t.name, t.began) not in old]

    struck = time.monotonic()
    await fault.strike(scene)

    async def is_told() -> bool:
        return any(told.name in expected for told in came())

    await until(is_told, f"{fault.name}: {', '.join(expected)} is told", patience=SLOWEST_SECONDS)
    first = next(told for told in came() if told.name in expected)
    await asyncio.sleep(QUIET_SECONDS)
    mended = time.monotonic()
    await fault.mend(scene)
    scene.analysts.go()

    def ended() -> Told | None:
        which = first.name, first.began
        return next((t for t in scene.receiver.told if not t.firing and (t.name, t.began) == which), None)

    async def resolved() -> bool:
        return ended() is not None

    await until(resolved, f"{fault.name}: {first.name} resolves")
    end = ended()
    assert end is not None
    others = sorted({told.name for told in came()} - {first.name})
    scene.rows.append(
        (
            fault.name,
            first.receiver,
            first.name,
            f"{first.at - struck:.0f}",
            f"{end.at - mended:.0f}",
            ", ".join(others) or "–",
        )
    )
    pages = {told.name for told in came() if told.receiver == "pages"}
    tickets = {told.name for told in came() if told.receiver == "tickets"}
    wrong = []
    if pages != fault.pages:
        wrong.append(f"{fault.name}: pages {sorted(pages)} in place of {sorted(fault.pages)}")
    if not tickets <= fault.tickets | {BILL}:
        wrong.append(f"{fault.name}: tickets {sorted(tickets - fault.tickets)}, too")
    beside = [told.name for told in came() if told.receiver == "pages" and first.at < told.at < end.at]
    if first.receiver == "pages" and set(beside) - {first.name}:
        wrong.append(f"{fault.name}: {beside} told while {first.name} was out")
    return wrong


def without_answer(prometheus: Prometheus, folder: Path) -> list[str]:
    """The panels of the dashboards of which a question had no answer at any time."""
    now = time.time()
    over = {"start": f"{now - RUN_SECONDS:.0f}", "end": f"{now:.0f}", "step": "5"}
    empty = []
    for path in sorted(folder.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                expr = target["expr"].replace("$__rate_interval", "5m")
                expr = re.sub(r"\$(namespace|instance|query)", ".*", expr)
                if not prometheus.ask("query_range", query=expr, **over)["result"]:
                    empty.append(f"{path.stem}: {panel['title']}: {expr}")
    return empty


def table(rows: list[tuple[str, ...]]) -> str:
    """The rows below their headings, in columns."""
    headings = ("fault", "told as", "first", "after s", "resolved s after mending", "told beside it")
    rows = [headings, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(headings))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


@pytest.mark.timeout(RUN_SECONDS)
async def test_each_fault_is_told_once_by_the_right_name_and_resolves(
    scene: Scene,
    faster: int,
    root: Path,
    pytestconfig: pytest.Config,
    shown: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "aiokafka")  # it says a hundred times that a server is away
    wrong = []
    try:
        await until(lambda: well(scene), "all is well at first")
        every = pytestconfig.getoption("faults") == "all"
        for fault in (fault for fault in FAULTS if every or fault.in_sample):
            wrong += await play(scene, fault)
            await until(lambda: well(scene), f"all is well after: {fault.name}")
    finally:
        alerts = scene.prometheus.ask("alerts")["alerts"]
        still = sorted(f"{alert['labels']['alertname']} {alert['state']}" for alert in alerts)
        shown(f"Every time of the rules is {faster} times shorter here.\n{table(scene.rows)}")
        shown(f"open in the end: {', '.join(still) or 'none'}")
    assert wrong == []
    assert scene.analysts.verdicts > 100
    assert scene.callers.answered > 100
    assert without_answer(scene.prometheus, root / "deploy" / "grafana" / "dashboards") == []

    async def all_resolved() -> bool:
        told = [told for told in scene.receiver.told if told.name != BILL]
        fired, ended = ({(t.name, t.began) for t in told if t.firing == firing} for firing in (True, False))
        return fired <= ended

    await until(all_resolved, "every alert that was told resolves")
