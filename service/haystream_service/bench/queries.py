"""What open queries cost, as their number on one collection grows: memory, rows in the store, time.

Runs in a process of its own. Everything goes through the fold, as in a worker; what a worker adds (Kafka, Redis,
JSON) is not in here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from gc import collect
from itertools import islice
from time import perf_counter
from typing import NamedTuple, SupportsFloat

import numpy as np

from haystream.events import Event, Query
from haystream.fold import State, step
from haystream.memory.arrays import Floats
from haystream.memory.copies import held_bytes
from haystream.posterior.rows import EDGE_COLUMNS, PARTICIPANT_COLUMNS
from haystream.query.state import QueryState
from haystream.query.watchers import Watchers
from haystream.ranking.ranked import RankedItem
from haystream.warm import warm
from haystream_service.bench import graphs
from haystream_service.bench.names import GraphName
from haystream_service.bench.search import Arrivals, Search
from haystream_service.console import notes
from haystream_service.process_memory import resident_bytes

FIRST = 50
"""Verdicts of a query that are timed apart: the common mean that it learns moves most with these."""
FIRST_QUERY = "first"
"""The query that makes what all share: what it leaves behind is no other query's cost."""
IN_TURN = 100
"""So many queries are judged in turn. Where more are open, all others are slim before it, as in a worker where
nothing came for them in the last minute."""
ALONE = 10
"""Queries that are judged once more with no other open: what they take alone, and in turn, is of the same verdicts.
"""
AT_ONCE = 1000
"""Items that a collection takes in at once, as in a worker."""
RELOADED = 3
"""Queries that are made again from their facts, at each number of open ones."""
LEAST_ARRIVED, MOST_ARRIVED = 5, 40
"""New items, and as many new edges, at each number of open queries."""
TOGETHER = 5
"""So many come until queries that they did not concern catch up: as where one comes a second, by the default of
`HAYSTREAM_TOTALS_SECONDS`."""
NUMBER, FLOAT = 4, 8
"""Bytes: of a row's number, and of each of its columns."""


class Following(StrEnum):
    """What a query's verdicts are on."""

    RANDOM = "random items"
    RANKING = "its first item"


@dataclass(frozen=True, slots=True)
class Job:
    """One graph to measure on."""

    graph: GraphName
    edges: int
    items_per_edge: int
    queries: tuple[int, ...]
    """Numbers of open queries, ascending."""
    following: Following
    verdicts: int
    """In each, more than FIRST."""
    seconds: float
    """For new items, and for new edges, at each number of queries."""
    memory: int
    """Bytes of the process beyond which no more queries are opened."""
    seed: int
    tolerance: float


@dataclass(frozen=True, slots=True)
class Row:
    """What was found with so many queries open, times in milliseconds."""

    graph: str
    edges: int
    following: str
    queries: int
    memory_per_query: float
    """Bytes of the process, less those without any query open. Of more than IN_TURN all are slim but those that
    were judged last, of the ones that this number has more than the one before, IN_TURN at most."""
    shared_bytes: int
    """Beside these, what all of them share: above all the originals that they are copies of, newer ones too."""
    slim_per_query: float
    """The same when all are slim (`QueryState.slim`), as those are that nothing comes for."""
    stored_per_query: float
    """Bytes of the rows of a query's tables, of one of them."""
    open_ms: float
    """Settings to first ranking: a median over the queries that were opened last."""
    load_ms: float
    """From settings and verdicts to the same, a median."""
    first_verdicts_ms: float
    """Verdict to ranking, of a query's first FIRST: a mean, since a few of them cost most. With one query open, of
    ALONE queries one after the other; else of every second one."""
    later_verdicts_ms: float
    """The same of the others; where the first ones are of every second query, of the rest of the queries, at the
    same moments."""
    times_alone: float
    """How many times as long those after the first FIRST took as in the same queries alone, in the same minutes: of
    medians."""
    slim_verdict_ms: float
    """Verdict to ranking, of a query that is slim: a median over the last IN_TURN."""
    first_verdicts_p50_ms: float
    """As `first_verdicts_ms`, but a median; so is the next."""
    later_verdicts_p50_ms: float
    new_item_ms: float
    """A new item on a known edge to the rankings of all queries that it concerns, once all were asked: a median."""
    new_item_mean_ms: float
    new_item_concerns: float
    """The share of the queries that it concerned."""
    new_item_later_ms: float
    """For each query that it did not concern: to take it in later, with others, to rank, and to undo drift."""
    new_edge_ms: float
    """The same of a new item on a new edge."""
    new_edge_mean_ms: float
    new_edge_concerns: float
    new_edge_later_ms: float
    new_edge_nobody_ms: float | None
    """As `new_edge_ms`, of those that concerned no query; None where each concerned some."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One graph. `failed`: what was not measured, and why."""

    graph: str
    edges: int
    participants: int
    items: int
    collection_bytes: int
    """Memory of the process with the collection and no query."""
    rows: list[Row]
    failed: list[str]


def measure(job: Job) -> Measured:
    """What open queries cost on one graph; reports its phases on standard error."""
    warm()
    state = State(tolerance=job.tolerance)
    collection = state.collection(graphs.COLLECTION)
    notes.print(f"  {job.graph} {job.edges:,}: folding items in")
    items = graphs.items(job.graph, edges=job.edges, items_per_edge=job.items_per_edge, seed=job.seed)
    while some := tuple(islice(items, AT_ONCE)):  # the log is in a server: it takes no memory of a worker
        collection.add_all(some)
        if job.graph == GraphName.THREADS and collection.graph.edges >= job.edges:
            break
    collect()
    size = collection.graph.edges, len(collection.graph), len(collection)
    of_collection = resident_bytes()
    notes.print(f"  {job.graph} {job.edges:,}: what all queries share")
    step(state, Query(FIRST_QUERY))
    _rest(state.queries.pop(FIRST_QUERY))
    rows: list[Row] = []
    failed: list[str] = []
    bench = _Bench(job, state, of_collection)
    for queries in job.queries:
        needed = bench.needed(queries)
        if needed > job.memory:
            failed.append(
                f"{queries:,} queries, verdicts on {job.following}: they would take {needed / 2**30:.1f} GiB, and"
                f" {job.memory / 2**30:g} are allowed (--memory)"
            )
            notes.print(f"  {failed[-1]}")
            continue
        notes.print(f"  {job.graph} {job.edges:,}: {queries:,} queries, verdicts on {job.following}")
        rows.append(bench.with_open(queries))
    return Measured(job.graph, *size, of_collection, rows, failed)


class _Stored:
    """How many rows a query's tables have."""

    def __init__(self, query: QueryState) -> None:
        self._query = query
        self._people = self._edges = 0

    def drain(self) -> None:
        """Write what has changed, as a store would."""
        changes = self._query.drain()
        self._people = max(self._people, 1 + max(changes.participants.place.tolist(), default=-1))
        self._edges = max(self._edges, 1 + max(changes.edges.place.tolist(), default=-1))

    def nbytes(self) -> int:
        """Of those rows."""
        people, edges = NUMBER + FLOAT * PARTICIPANT_COLUMNS, NUMBER + FLOAT * EDGE_COLUMNS
        return people * self._people + edges * self._edges


class _Bench:
    """Queries on one collection, more and more of them."""

    def __init__(self, job: Job, state: State, of_collection: int) -> None:
        self._job = job
        self._state = state
        self._collection = state.collection(graphs.COLLECTION)
        rng = np.random.default_rng([job.seed, 1])
        self._arrivals = Arrivals(self._collection, rng)
        collect()
        self._of_collection = of_collection
        self._none_open = _own_bytes()
        self._per_query = 0.0
        self._searches: dict[str, Search] = {}
        self._tops: dict[str, Sequence[RankedItem]] = {}
        """What was ranked first after a query's last verdict."""

    def needed(self, queries: int) -> float:
        """Bytes that so many would take in all, by what fewer did."""
        return self._of_collection + self._shared() + queries * self._per_query

    def _shared(self) -> int:
        return self._none_open - self._of_collection + held_bytes()

    def with_open(self, queries: int) -> Row:
        """What it costs to open as many more, to give verdicts in these, and to have all of them open."""
        names = [_name(number) for number in range(len(self._state.queries), queries)]
        stored, opened = self._open(names)
        seconds, alone = self._verdicts(names, names[:ALONE] if queries > 1 else [], stored)
        stored_bytes = stored.nbytes()
        del stored
        collect()
        self._per_query = (_own_bytes() - self._none_open) / queries
        shared = self._shared()
        slim, of_slim = self._slim(names[-IN_TURN:])
        if queries == 1:
            seconds = alone = np.array([self._alone(_name(number)) for number in range(ALONE)])
        loaded = [self._load(self._state.queries[name]) for name in names[:RELOADED]]
        item, edge = self._arriving(self._arrivals.on_known_edge), self._arriving(self._arrivals.on_new_edge)
        first, later = np.hsplit(seconds, [FIRST])
        if len(names) > 1:
            first, later = first[1::2], later[::2, :FIRST]  # of the same moments
        return Row(
            graph=self._job.graph,
            edges=self._job.edges,
            following=self._job.following,
            queries=queries,
            memory_per_query=round(self._per_query),
            shared_bytes=shared,
            slim_per_query=round(slim / queries),
            stored_per_query=stored_bytes,
            open_ms=milliseconds(np.median(opened)),
            load_ms=milliseconds(np.median(loaded)),
            first_verdicts_ms=milliseconds(np.mean(first)),
            later_verdicts_ms=milliseconds(np.mean(later)),
            times_alone=round(float(np.median(seconds[:ALONE, FIRST:]) / np.median(alone[:, FIRST:])), 2),
            slim_verdict_ms=milliseconds(np.median(of_slim)),
            first_verdicts_p50_ms=milliseconds(np.median(first)),
            later_verdicts_p50_ms=milliseconds(np.median(later)),
            new_item_ms=item.median_ms,
            new_item_mean_ms=item.mean_ms,
            new_item_concerns=item.concerned,
            new_item_later_ms=item.later_ms,
            new_edge_ms=edge.median_ms,
            new_edge_mean_ms=edge.mean_ms,
            new_edge_concerns=edge.concerned,
            new_edge_later_ms=edge.later_ms,
            new_edge_nobody_ms=edge.nobody_ms,
        )

    def _open(self, names: list[str]) -> tuple[_Stored, list[float]]:
        """The rows that the first of these has written, and the seconds that each took to open."""
        stored: list[_Stored] = []
        seconds: list[float] = []
        for name in names:
            begin = perf_counter()
            step(self._state, Query(name))
            query = self._state.queries[name]
            query.ranking()
            seconds.append(perf_counter() - begin)
            _finish(query)
            if not stored:
                stored.append(_Stored(query))
                stored[0].drain()
            else:
                query.drain()
        return stored[0], seconds

    def _load(self, known: QueryState) -> float:
        """The seconds that it takes to make a query again from its facts."""
        begin = perf_counter()
        query = QueryState(known.settings, known.collection, tolerance=self._job.tolerance)
        for verdict in known.verdicts.values():
            query.apply_verdict(verdict)
        query.ranking()
        return perf_counter() - begin

    def _verdicts(self, names: list[str], like: list[str], stored: _Stored) -> tuple[Floats, Floats]:
        """The seconds of each verdict in these queries, which are judged in turn, shape (len(names), verdicts), and
        of those in queries `like` some, each with no other open, meanwhile, shape (len(like), verdicts).

        Every second of those in turn begins FIRST verdicts after the first, so that another's first verdicts are of
        the same moments as its later ones.
        """
        searches = list(map(self._search, names, names))
        seconds = np.empty((len(names), self._job.verdicts))
        alone: list[list[float]] = []
        rounds = self._job.verdicts + FIRST
        for begin in range(0, len(names), IN_TURN):
            if len(self._state.queries) > IN_TURN:
                self._make_slim()
            for turn in range(rounds):
                for at, search in enumerate(searches[begin : begin + IN_TURN], start=begin):
                    number = turn - FIRST * (at % 2)
                    if 0 <= number < self._job.verdicts:
                        seconds[at, number] = self._verdict(search, None if at else stored)
                while len(alone) * rounds < len(like) * (turn + 1):
                    alone.append(self._alone(like[len(alone)]))
        return seconds, np.array(alone)

    def _search(self, name: str, like: str) -> Search:
        """The analyst of an open query, who searches as that of another does."""
        rng = np.random.default_rng([self._job.seed, 2, *like.encode()])
        following = float(self._job.following is Following.RANKING)
        self._searches[name] = Search(name, self._collection, rng, following=following)
        self._tops[name] = self._state.queries[name].ranking().items
        return self._searches[name]

    def _alone(self, like: str) -> list[float]:
        """The seconds of each verdict in a query like this one, which gets the same with no other open."""
        queries, name = self._state.queries, f"{like} alone"
        others = dict(queries)
        queries.clear()
        step(self._state, Query(name))
        search = self._search(name, like)
        _finish(queries[name])
        queries[name].drain()
        seconds = [self._verdict(search) for _ in range(self._job.verdicts)]
        del self._searches[name], self._tops[name]
        queries.clear()
        queries.update(others)
        return seconds

    def _verdict(self, search: Search, stored: _Stored | None = None) -> float:
        """Give one; the seconds until the ranking that knows of it."""
        query = self._state.queries[search.query_id]
        verdict = search.verdict(self._tops[search.query_id])
        begin = perf_counter()
        step(self._state, verdict)
        self._tops[search.query_id] = query.ranking().items
        seconds = perf_counter() - begin
        _finish(query)
        (query if stored is None else stored).drain()
        return seconds

    def _make_slim(self) -> None:
        for query in self._state.queries.values():
            query.slim()
        collect()

    def _slim(self, names: list[str]) -> tuple[int, list[float]]:
        """The bytes that queries take when all are slim; the seconds of a verdict in each of these."""
        self._make_slim()
        return _own_bytes() - self._none_open, [self._verdict(self._searches[name]) for name in names]

    def _enough(self, seconds: list[float]) -> bool:
        whole = len(seconds) % TOGETHER == 0
        return whole and (len(seconds) >= MOST_ARRIVED or sum(seconds) >= self._job.seconds)

    def _arriving(self, arrive: Callable[[], Event]) -> "_Arrived":
        """Items come, one at a time, with time in between: as a worker takes them in."""
        queries, watchers = list(self._state.queries.values()), Watchers.of(self._collection)
        at_once: list[float] = []
        nobody: list[float] = []
        later, waited = 0.0, 0
        while len(at_once) < LEAST_ARRIVED or not self._enough(at_once):
            begin = perf_counter()
            step(self._state, arrive())
            asked = filter(None, map(self._state.queries.get, watchers.to_ask()))
            concerned = [query for query in asked if query.concerned()]
            for query in concerned:
                query.ranking()
            at_once.append(perf_counter() - begin)
            if not concerned:
                nobody.append(at_once[-1])
            waited += len(queries) - len(concerned)
            for query in concerned:
                _rest(query)
            if len(at_once) % TOGETHER == 0:
                behind = [query for query in queries if query.behind]
                begin = perf_counter()
                for query in behind:
                    query.ranking()
                    query.finish()
                later += perf_counter() - begin
                for query in behind:
                    _rest(query)
        return _Arrived(
            milliseconds(np.median(at_once)),
            milliseconds(np.mean(at_once)),
            round(1.0 - waited / (len(queries) * len(at_once)), 4),
            milliseconds(later / max(waited, 1)),
            milliseconds(np.median(nobody)) if nobody else None,
        )


class _Arrived(NamedTuple):
    """What items that came cost: see `Row`."""

    median_ms: float
    mean_ms: float
    concerned: float
    later_ms: float
    nobody_ms: float | None


def _name(number: int) -> str:
    """Of an open query."""
    return f"q{number}"


def _own_bytes() -> int:
    """The memory of the process without what copies are made of."""
    return resident_bytes() - held_bytes()


def _finish(query: QueryState) -> None:
    """Do what a worker does for a query when nobody waits."""
    query.finish()
    while query.foresee():
        pass


def _rest(query: QueryState) -> None:
    """The same of one that others may open as copies of."""
    _finish(query)
    query.drain()
    kept = query.kept_original()
    assert kept is not None
    if kept.due:
        original = kept.begun(ahead=True)
        assert original is not None
        original.make(query.settings.policy)
        kept.take(original)
    if kept.lags:
        kept.lead()


def milliseconds(seconds: SupportsFloat) -> float:
    """Rounded to a microsecond."""
    return round(1e3 * float(seconds), 3)
