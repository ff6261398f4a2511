"""The engine on one graph: builds a query, gives it verdicts, items and edges, and times every step.

Runs in a process of its own, so that its peak of memory is that of this graph alone. The first items are read and
added as a worker does it, and all else goes through the fold; Kafka and Redis are not in here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import perf_counter

import numpy as np

from haystream.collection.collection import Collection
from haystream.engines.local.inverse.prior_inverse import shared_precision, shared_precisions
from haystream.events import Event, Policy, Query, Verdict, View
from haystream.fold import State, step
from haystream.query.state import QueryState
from haystream.ranking.ranked import Ranking
from haystream.warm import warm
from haystream_service.bench import baselines, graphs
from haystream_service.bench.names import GraphName
from haystream_service.bench.samples import Samples, Timing, timing, within
from haystream_service.bench.search import Arrivals, Search
from haystream_service.console import notes
from haystream_service.store.facts import encode_entry, read_entry
from haystream_service.worker.followers import ENTRIES_A_READ

QUERY = "bench"
MOST = 2000
"""Samples of an operation, at most: enough for a 99th percentile."""
SHARE = 0.05
"""Of the items, what share one operation may give verdicts on: a search reads a small part of what there is."""
BEFORE = 1000
"""Verdicts that a query has when it starts cold."""
IDLE = "idle"
"""The part of a start that follows when the first ranking is out, while nobody waits."""
POLICIES = ("look-ahead-by-set", "look-ahead", "bayes-ucb", "thompson")
"""Policies to compare: the default and the same made of pairs, and two whose scores move with every verdict even
where the posterior does not."""


@dataclass(frozen=True, slots=True)
class Job:
    """One graph to measure. `seconds` is the budget of each operation."""

    graph: GraphName
    edges: int
    items_per_edge: int
    seconds: float
    seed: int
    tolerance: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found on one graph."""

    edges: int
    participants: int
    items: int
    operations: dict[str, Timing]
    first_start_s: dict[str, float]
    """What it takes the first time, in seconds: what a cold start takes from a snapshot is computed here."""
    cold_start_s: dict[str, float]
    """Where the cold start's time went, in seconds, and how long it then has to tend to itself in idle time."""
    changed_bytes: float
    """Median size of the table rows that a verdict changed, which a worker writes to Redis."""
    changed_edges: float
    """Median number of edges whose table row a verdict changed."""
    peak_bytes: int
    """Peak resident memory of the process, which has nothing else in it but Python and its libraries."""
    idle_bytes: int
    """Resident memory before anything was built."""
    baselines: list[baselines.Row]


def measure(job: Job) -> Measured:
    """What everything costs on one graph; reports its phases on standard error."""
    warm()
    idle = peak_memory()
    say = _teller(job)
    say("folding items in")
    state, search, first, cold = _started_cold(job, say)
    query = state.queries[QUERY]
    collection = query.collection
    size = collection.graph.edges, len(collection.graph), len(collection)
    rng = np.random.default_rng([job.seed, 1])
    bench = _Bench(state, query, search, Samples(), job.seconds)
    say("verdicts")
    before, known = baselines.Counts.of(query), len(search.screenings)
    changed_bytes, changed_edges = bench.verdicts()
    peak = peak_memory()
    say("baselines")
    rows = baselines.on_graph(
        query, before, search.screenings[known:], job.seconds, graph=job.graph, tolerance=state.tolerance
    )
    say("changed verdicts, items, edges")
    bench.changes()
    arrivals = Arrivals(collection, rng)
    bench.arrivals("new-item", arrivals.on_known_edge)
    bench.arrivals("new-edge", arrivals.on_new_edge)
    for policy in POLICIES:
        say(policy)
        bench.policy(policy)
    operations = bench.samples.timings()
    operations["cold-start"] = timing([sum(cold.values()) - cold[IDLE]])
    return Measured(*size, operations, first, cold, changed_bytes, changed_edges, peak, idle, rows)


def _teller(job: Job) -> Callable[[str], None]:
    begin = perf_counter()

    def say(phase: str) -> None:
        notes.print(f"  {job.graph} {job.edges:,}: {phase} ({perf_counter() - begin:.0f} s)")

    return say


def _started_cold(job: Job, say: Callable[[str], None]) -> tuple[State, Search, dict[str, float], dict[str, float]]:
    """A query made twice from its facts: for the first time, then from the snapshot that the first time leaves.

    Returns the state, who searches in it, and the seconds that each part of both starts took.
    """
    state, items = State(tolerance=job.tolerance), "items"
    collection, seconds = _read(job)
    state.collections[View(graphs.COLLECTION)] = collection
    first = {items: seconds}
    search = Search(QUERY, collection, np.random.default_rng([job.seed, 2]))
    verdicts = [search.verdict(()) for _ in range(min(BEFORE, int(SHARE * len(collection))))]
    say("first posterior")
    first |= _start(state, [])
    ((key, precision),) = shared_precisions(collection).items()
    snapshot = precision.snapshot()
    state.queries.clear()
    collection.shared.clear()
    say("cold start")
    begin = perf_counter()
    shared_precision(collection, *key).restore(snapshot)
    cold = {items: first[items], "snapshot": perf_counter() - begin}
    return state, search, first, cold | _start(state, verdicts)


def _read(job: Job) -> tuple[Collection, float]:
    """The collection as a worker reads it from its log, and the seconds that this takes: parsing entries and adding
    them. Neither what simulates and packs them is in that, nor Redis.
    """
    items = graphs.items(job.graph, edges=job.edges, items_per_edge=job.items_per_edge, seed=job.seed)
    collection, seconds = Collection(graphs.COLLECTION), 0.0
    while packed := list(map(encode_entry, islice(items, ENTRIES_A_READ))):
        begin = perf_counter()
        collection.add_all(list(map(read_entry, packed)))
        seconds += perf_counter() - begin
        if job.graph == GraphName.THREADS and collection.graph.edges >= job.edges:
            break
    return collection, seconds


def _start(state: State, verdicts: list[Verdict]) -> dict[str, float]:
    """Open the query, and the seconds of each part of that."""
    seconds = {}
    begin = perf_counter()
    step(state, Query(QUERY))
    for verdict in verdicts:
        step(state, verdict)
    state.queries[QUERY].settle()
    seconds["posterior"] = perf_counter() - begin
    begin = perf_counter()
    state.queries[QUERY].ranking()
    seconds["top-50"] = perf_counter() - begin
    begin = perf_counter()
    state.queries[QUERY].finish()
    seconds[IDLE] = perf_counter() - begin
    return seconds


@dataclass(slots=True)
class _Bench:
    state: State
    query: QueryState
    search: Search
    samples: Samples
    seconds: float

    def verdicts(self) -> tuple[float, float]:
        """Verdict by verdict: the whole, and its parts. Returns the medians of bytes and of edges changed."""
        changed, edges, top = [], [], self.query.ranking().items
        self.query.drain()
        for _ in self._within():
            verdict = self.search.verdict(top)
            begin = perf_counter()
            step(self.state, verdict)
            self.query.settle()
            settled = perf_counter()
            top = self.query.ranking().items
            ranked = perf_counter()
            changes = self.query.drain()
            drained = perf_counter()
            self.samples.add("verdict", ranked - begin)
            self.samples.add("posterior", settled - begin)
            self.samples.add("top-50", ranked - settled)
            self.samples.add("drain", drained - ranked)
            self.query.finish()
            self.samples.add("idle", perf_counter() - drained)
            rows = (changes.participants, changes.edges)
            changed.append(sum(table.index.nbytes + table.rows.nbytes for table in rows))
            edges.append(len(changes.edges.index))
        return float(np.median(changed)), float(np.median(edges))

    def changes(self) -> None:
        """Verdicts that are taken back or turned round."""
        for _ in self._within():
            self._fold("changed-verdict", self.search.change())

    def arrivals(self, operation: str, arrive: Callable[[], Event]) -> None:
        """New items."""
        for _ in self._within():
            self._fold(operation, arrive())

    def policy(self, name: str) -> None:
        """Verdicts under another policy; then back to the first."""
        first = self.query.settings
        step(self.state, replace(first, policy=Policy(name)))
        top = self.query.ranking().items
        for _ in self._within():
            top = self._fold(f"verdict-{name}", self.search.verdict(top)).items
        step(self.state, first)
        self.query.settle()

    def _fold(self, operation: str, event: Event) -> Ranking:
        """One event in, and the ranking out."""
        begin = perf_counter()
        step(self.state, event)
        ranking = self.query.ranking()
        self.samples.add(operation, perf_counter() - begin)
        self.query.drain()
        self.query.finish()  # what a worker does when nobody waits
        return ranking

    def _within(self) -> Iterator[int]:
        return within(self.seconds, most=min(MOST, int(SHARE * len(self.query.collection)), self.search.unjudged()))


def peak_memory() -> int:
    """Peak resident memory of this process, in bytes.

    Linux says it per program (VmHWM); elsewhere `ru_maxrss` has to do, which a forked child inherits.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024
