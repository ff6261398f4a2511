"""Every metric haystream has, in one table: the attributes of `Metrics`.

Dashboards, alerts and the documentation may use only what stands here (tests/deploy holds them to
it). There is no global registry: the composition root makes one with `new_registry` and hands it in.
"""

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Generic, TypeVar, overload

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

from haystream.errors import Code
from haystream_service.labelled_gauges import QueryGauges
from haystream_service.process_memory import OwnProcess

Kind = TypeVar("Kind", bound=Counter | Gauge | Histogram)

OBJECTIVE_SECONDS = 0.25
"""What is promised: of the verdicts of 30 days 99 % are ranked within this time (docs/monitoring.md)."""
SERVERS = ("kafka", "redis")
STAGES = ("queue", "settle", "save", "publish")
EVENT_KINDS = ("query", "item", "verdict", "lease")
RECORD_OUTCOMES = ("read", "kept", "gone", "unavailable")
FACT_TOPICS = ("queries", "items", "verdicts", "leases")
EVENT_OUTCOMES = ("applied", "known", "rejected")

# Dense around what is promised and around what is usual (a few ms at the median).
_LATENCY = (
    0.001,
    0.002,
    0.003,
    0.005,
    0.008,
    0.012,
    0.02,
    0.03,
    0.05,
    0.1,
    0.15,
    0.2,
    OBJECTIVE_SECONDS,
    0.3,
    0.4,
    0.5,
    1,
    2,
    5,
    10,
    30,
    60,
)
# What does not take long: one answer of Redis or of Kafka, one turn of the event loop.
_ANSWER = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, OBJECTIVE_SECONDS, 0.5, 1, 5, 30)
# What nobody waits for with every verdict: rebalances, loading, new items.
_LONG = (0.05, 0.1, OBJECTIVE_SECONDS, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600)
# From one local update to a rebuild of a large query.
_ENGINE = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 20, 60)
# Past the largest batch by default (HAYSTREAM_MAX_BATCH), so that a full one is told from a larger one.
_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
_PARTICIPANTS = (*_COUNTS, 10_000, 100_000, 1_000_000)


class Metric(Generic[Kind]):
    """A line of the table. On an instance of `Metrics` the attribute is the prometheus object itself."""

    def __init__(
        self,
        kind: type[Kind],
        name: str,
        help_text: str,
        *,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = (),
    ) -> None:
        self.kind = kind
        self.name = name
        """As Prometheus shows it; a counter's ends in _total."""
        self.help = help_text
        self.labels = tuple(labels)
        self.buckets = tuple(buckets)

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute = name

    @overload
    def __get__(self, instance: None, owner: type) -> "Metric[Kind]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> Kind: ...
    def __get__(self, instance: object | None, owner: type) -> "Metric[Kind] | Kind":
        # Reached through the class only: an instance has its own attribute of this name (`Metrics.__init__`).
        return self

    def build(self, registry: CollectorRegistry) -> Kind:
        """The prometheus object, registered."""
        options: dict[str, Any] = {"buckets": self.buckets} if self.buckets else {}
        return self.kind(self.name, self.help, self.labels, registry=registry, **options)


class MetricsTable:
    """A table of metrics: the attributes of a subclass; on an instance, the live ones."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # Else a second series beside each says when its process made it.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        for metric in table(type(self)):
            self.__dict__[metric.attribute] = metric.build(registry)


def table(of: type[MetricsTable]) -> tuple[Metric[Any], ...]:
    """The metrics of a table, in the order they are documented in."""
    return tuple(metric for metric in vars(of).values() if isinstance(metric, Metric))


class Metrics(MetricsTable):
    """A worker's. `labelled_queries` bounds the series with a `query` label."""

    verdict_to_ranking = Metric(
        Histogram,
        "haystream_verdict_to_ranking_seconds",
        "From a verdict's Kafka timestamp to the acknowledged publish of the ranking that reflects it.",
        buckets=_LATENCY,
    )
    verdicts_late = Metric(
        Counter,
        "haystream_verdicts_late_total",
        "Verdicts without an answer after 250 ms, counted then or soon after, whether they ever get one or not.",
    )
    oldest_verdict_age = Metric(
        Gauge,
        "haystream_oldest_unprocessed_verdict_age_seconds",
        "How long the oldest verdict of this worker's partitions that has no answer has waited; 0 where none does. "
        "From its Kafka timestamp once it is fetched, before that from when it was first seen that one is there.",
    )
    stage = Metric(
        Histogram,
        "haystream_stage_seconds",
        "A verdict's way: queue (from its Kafka timestamp until its batch begins; each verdict), then, each batch: "
        "settle (folding in, with the wait for its collection), save, publish.",
        labels=("stage",),
        buckets=_LATENCY,
    )
    item_to_log = Metric(
        Histogram,
        "haystream_item_to_log_seconds",
        "From an item's Kafka timestamp until it is in the log of its collection; of the oldest of each batch.",
        buckets=_LONG,
    )
    log_to_ranking = Metric(
        Histogram,
        "haystream_log_to_ranking_seconds",
        "From reading new items from their collection's log to the acknowledged ranking of a query that has them; "
        "of the oldest of each batch. Those that change no order wait for HAYSTREAM_TOTALS_SECONDS, or longer in "
        "hundreds of queries.",
        buckets=_LONG,
    )
    events = Metric(
        Counter,
        "haystream_events_total",
        "Records read, by kind (query, item, verdict, lease) and outcome (applied, known, rejected).",
        labels=("kind", "outcome"),
    )
    items_withdrawn = Metric(
        Counter,
        "haystream_items_withdrawn_total",
        "Records that take an item back, and said something new.",
    )
    dead_letters = Metric(
        Counter, "haystream_dead_letters_total", "Records sent to dead-letters, by code.", labels=("code",)
    )
    records_missed = Metric(
        Counter,
        "haystream_records_missed_total",
        "Offsets that were removed from a topic (without the prefix) before they were read: so many at most.",
        labels=("topic",),
    )
    leases_live = Metric(Gauge, "haystream_leases_live", "Leases that are not over, of this worker's queries.")
    leases_expired = Metric(
        Counter, "haystream_leases_expired_total", "Leases that ended because their time was over."
    )
    outbox_records = Metric(
        Gauge, "haystream_lease_outbox_records", "Facts about leases that are not known to be in Kafka yet."
    )
    outbox_age = Metric(
        Gauge,
        "haystream_lease_outbox_age_seconds",
        "How long the oldest of them has been in Redis; 0 where there is none.",
    )
    rankings_published = Metric(
        Counter, "haystream_rankings_published_total", "Rankings published and acknowledged by the broker."
    )
    batch_events = Metric(
        Histogram,
        "haystream_batch_events",
        "Events folded in and saved in one batch, by mailbox (query, collection).",
        labels=("mailbox",),
        buckets=_COUNTS,
    )
    mailbox_events = Metric(
        Gauge,
        "haystream_mailbox_events",
        "Events that wait in this worker's mailboxes, by mailbox (query, collection).",
        labels=("mailbox",),
    )
    consumer_lag = Metric(
        Gauge,
        "haystream_consumer_lag_records",
        "Records between the last one acknowledged and the end of an assigned partition.",
        labels=("topic", "partition"),
    )
    consumer_offset = Metric(
        Gauge,
        "haystream_consumer_offset",
        "Offset after the last record acknowledged on an assigned partition: one that stands still shows.",
        labels=("topic", "partition"),
    )
    stalled_partitions = Metric(
        Gauge,
        "haystream_stalled_partitions",
        "Assigned partitions that have records to read and have not moved for a minute.",
    )
    engine_settle = Metric(
        Histogram,
        "haystream_engine_settle_seconds",
        "Bringing one query's posterior up to date with a batch.",
        buckets=_ENGINE,
    )
    load = Metric(
        Histogram,
        "haystream_load_seconds",
        "Computing one query from what Redis has of it, once its collection is read.",
        buckets=_LONG,
    )
    touched_participants = Metric(
        Histogram,
        "haystream_touched_participants",
        "Participants whose mean moved in one settling.",
        buckets=_PARTICIPANTS,
    )
    query_screened = Metric(
        Gauge,
        "haystream_query_screened",
        "Items read with a verdict that counts; `other` is a sum.",
        labels=("query",),
    )
    query_found = Metric(
        Gauge, "haystream_query_found", "Items found relevant; `other` is a sum.", labels=("query",)
    )
    query_discrepancy = Metric(
        Gauge,
        "haystream_query_discrepancy",
        "Bayes linear discrepancy of a query's verdicts from its prior; `other` is the largest.",
        labels=("query",),
    )
    drift = Metric(
        Gauge,
        "haystream_drift",
        "By how much the last entries of a query's posterior that were solved afresh had been off; "
        "`other` is the largest.",
        labels=("query",),
    )
    owned_queries = Metric(Gauge, "haystream_owned_queries", "Queries that this worker is the writer of.")
    queries_in_memory = Metric(
        Gauge, "haystream_queries_in_memory", "Queries of this worker whose state is in its memory."
    )
    queries_slim = Metric(
        Gauge,
        "haystream_queries_slim",
        "Queries in this worker's memory that have given up what they compute again when something comes for them.",
    )
    queries_put_away = Metric(
        Gauge,
        "haystream_queries_put_away",
        "Queries of this worker whose state is in Redis alone until an event for them comes.",
    )
    quarantined_queries = Metric(
        Gauge, "haystream_quarantined_queries", "Queries of this worker that are stopped: `haystream query list`."
    )
    growth_backlog = Metric(
        Gauge,
        "haystream_growth_backlog_items",
        "New items in memory that queries are to take in at once and have not, summed over queries.",
    )
    tending_backlog = Metric(
        Gauge,
        "haystream_tending_backlog_queries",
        "Queries that took new items in by estimate, which is not made exact yet.",
    )
    collection_items = Metric(
        Gauge, "haystream_collection_items", "Items in this worker's memory, of all its collections."
    )
    collection_edges = Metric(
        Gauge,
        "haystream_collection_edges",
        "Pairs of participants in this worker's memory, of all its collections.",
    )
    collection_memory = Metric(
        Gauge,
        "haystream_collection_memory_bytes",
        "About what a collection takes of this worker's memory, its scopes and what queries share included.",
        labels=("collection",),
    )
    collections = Metric(
        Gauge,
        "haystream_collections",
        "Collections in this worker's memory: all of their items, or those of one scope.",
        labels=("items",),
    )
    redis = Metric(
        Histogram,
        "haystream_redis_seconds",
        "One answer of Redis to a script: append (items), save, load, probe (the watch) and others.",
        labels=("script",),
        buckets=_ANSWER,
    )
    publish = Metric(
        Histogram,
        "haystream_publish_seconds",
        "One message to Kafka, from sending to its acknowledgement, by topic (without the prefix).",
        labels=("topic",),
        buckets=_ANSWER,
    )
    rebalance = Metric(
        Histogram,
        "haystream_rebalance_seconds",
        "From this worker's partitions being taken away to the next ones being assigned.",
        buckets=_LONG,
    )
    event_loop_lag = Metric(
        Histogram,
        "haystream_event_loop_lag_seconds",
        "How late the event loop called what was due, ten times a second.",
        buckets=_ANSWER,
    )
    server_errors = Metric(
        Counter,
        "haystream_server_errors_total",
        "Requests that a server (kafka, redis) failed, refused or did not answer in time.",
        labels=("server",),
    )
    server_retries = Metric(
        Counter,
        "haystream_server_retries_total",
        "Requests made again after such an error.",
        labels=("server",),
    )
    fenced_writes = Metric(
        Counter, "haystream_fenced_writes_total", "Saves refused because another writer had been there."
    )
    ready = Metric(
        Gauge,
        "haystream_ready",
        "1 if Kafka and Redis answer, partitions are assigned, their queries loaded and none stands still, else 0.",
    )
    build_info = Metric(
        Gauge,
        "haystream_build_info",
        "1; the labels say what runs: haystream's version and Python's.",
        labels=("version", "python"),
    )

    def __init__(self, registry: CollectorRegistry, *, labelled_queries: int) -> None:
        super().__init__(registry)
        # A counter that first appears at 1 shows no increase: have the known series there from the start.
        for code in Code:
            self.dead_letters.labels(code.value)
        for topic in FACT_TOPICS:
            self.records_missed.labels(topic)
        for server in SERVERS:
            self.server_errors.labels(server)
            self.server_retries.labels(server)
        for stage in STAGES:
            self.stage.labels(stage)
        self.build_info.labels(*_build()).set(1)
        for kind in EVENT_KINDS:
            for outcome in EVENT_OUTCOMES:
                self.events.labels(kind, outcome)
        self.queries = QueryGauges(
            self.query_screened, self.query_found, self.query_discrepancy, self.drift, limit=labelled_queries
        )


class ApiMetrics(MetricsTable):
    """Those of a replica of the API."""

    api_requests = Metric(
        Counter,
        "haystream_api_requests_total",
        "Requests that the API has answered, by method, route and status; those that no route answers are `none`.",
        labels=("method", "route", "code"),
    )
    api_request = Metric(
        Histogram,
        "haystream_api_request_seconds",
        "From a request's headers to the end of its answer, by route, but for streams.",
        labels=("route",),
        buckets=_LATENCY,
    )
    record_read = Metric(
        Histogram,
        "haystream_api_record_read_seconds",
        "Reading the records of items from Kafka, of one request, where that succeeded.",
        buckets=_LATENCY,
    )
    records = Metric(
        Counter,
        "haystream_api_records_total",
        "Subjects and texts of items: read from Kafka, kept from before, gone from Kafka, or unavailable.",
        labels=("outcome",),
    )
    api_ready = Metric(
        Gauge,
        "haystream_api_ready",
        "1 if this replica takes requests; 0 where it is starting or stopping, or waits for what /readyz says.",
    )
    redis = Metrics.redis
    publish = Metrics.publish
    event_loop_lag = Metrics.event_loop_lag
    server_errors = Metrics.server_errors
    build_info = Metrics.build_info

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        for outcome in RECORD_OUTCOMES:
            self.records.labels(outcome)
        for server in SERVERS:
            self.server_errors.labels(server)
        self.build_info.labels(*_build()).set(1)


def _build() -> tuple[str, str]:
    return version("haystream"), platform.python_version()


TABLE: tuple[Metric[Any], ...] = tuple(dict.fromkeys((*table(Metrics), *table(ApiMetrics))))
"""All metrics, in the order they are documented in."""


def new_registry() -> CollectorRegistry:
    """A registry with the process's own memory, CPU and file descriptors in it."""
    registry = CollectorRegistry()
    registry.register(OwnProcess())
    return registry
