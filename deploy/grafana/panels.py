"""What the dashboards ask of Prometheus, panel by panel: `render` writes them for Grafana, `draw` draws a demo run.

The dollars are Grafana's: variables that a reader chooses, and the interval that suits the zoom.
"""

from dataclasses import dataclass
from typing import Literal

HERE = 'namespace=~"$namespace", instance=~"$instance"'
"""What every question about a worker is limited to."""
QUERY = f'{HERE}, query=~"$query"'
Kind = Literal["lines", "heat", "number"]


@dataclass(frozen=True)
class Panel:
    """One picture: its questions, each with what a series is called, and the unit of the answers."""

    title: str
    meaning: str
    unit: str
    asks: tuple[tuple[str, str], ...]
    kind: Kind = "lines"
    width: int = 8


@dataclass(frozen=True)
class Board:
    """A dashboard: rows of panels."""

    uid: str
    title: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    by_query: bool = False


def of(metric: str, *matchers: str) -> str:
    """The metric's series that are chosen."""
    return f"{metric}{{{', '.join([HERE, *matchers])}}}"


def rate(metric: str, *matchers: str) -> str:
    """How fast a counter grows, a second."""
    return f"rate({of(metric, *matchers)}[$__rate_interval])"


def summed(expr: str, *by: str) -> str:
    """The sum over all series but for these labels."""
    return f"sum by ({', '.join(by)}) ({expr})" if by else f"sum({expr})"


def quantile(q: float, histogram: str, *by: str) -> str:
    """The quantile of what was observed lately."""
    return f"histogram_quantile({q}, {summed(rate(f'{histogram}_bucket'), 'le', *by)})"


def quantiles(histogram: str) -> tuple[tuple[str, str], ...]:
    """The median and the 99th percentile, each with its name."""
    return tuple((quantile(q, histogram), f"p{q * 100:g}") for q in (0.5, 0.99))


def heat(title: str, meaning: str, histogram: str, unit: str = "s", width: int = 8) -> Panel:
    """How many observations fell into each bucket."""
    ask = summed(f"increase({of(f'{histogram}_bucket')}[$__rate_interval])", "le")
    return Panel(title, meaning, unit, ((ask, "{{le}}"),), kind="heat", width=width)


BAD = 'haystream:verdicts_bad:ratio_rate{}{{namespace=~"$namespace"}}'

PIPELINE = Board(
    "haystream-pipeline",
    "haystream: pipeline",
    (
        (
            "What analysts notice",
            (
                Panel(
                    "Oldest verdict without an answer",
                    "Whoever gave it has waited for so long. A minute of it pages.",
                    "s",
                    ((f"max({of('haystream_oldest_unprocessed_verdict_age_seconds')})", "oldest"),),
                ),
                heat(
                    "Verdict to ranking",
                    "From a verdict's timestamp in Kafka to the acknowledged ranking that reflects it.",
                    "haystream_verdict_to_ranking_seconds",
                ),
                Panel(
                    "Verdict to ranking, quantiles",
                    "99 % are to be within 250 ms.",
                    "s",
                    quantiles("haystream_verdict_to_ranking_seconds"),
                ),
                Panel(
                    "Verdicts that are late",
                    "Without an answer after 250 ms, whether they get one later or never.",
                    "reqps",
                    ((summed(rate("haystream_verdicts_late_total")), "late"),),
                ),
                Panel(
                    "How fast the budget is used",
                    "1 uses up the 1 % of 30 days in 30 days. 14.4 over an hour pages, and 6 over six.",
                    "none",
                    tuple((f"max({BAD.format(window)}) / 0.01", window) for window in ("5m", "1h", "6h", "3d")),
                ),
                Panel(
                    "Bad verdicts of 30 days",
                    "The objective allows 1 %.",
                    "percentunit",
                    ((f"max({BAD.format('30d')})", "bad"),),
                    kind="number",
                    width=4,
                ),
                Panel(
                    "Workers that are ready",
                    "Of so many that there are.",
                    "none",
                    (
                        (summed(of("haystream_ready")), "ready"),
                        (f"count({of('haystream_ready')})", "there"),
                    ),
                    kind="number",
                    width=4,
                ),
            ),
        ),
        (
            "Where the time goes",
            (
                Panel(
                    "Stages of a verdict's way, p99",
                    "queue: in Kafka and the mailbox; settle: computing, and waiting for its turn; save; publish.",
                    "s",
                    ((quantile(0.99, "haystream_stage_seconds", "stage"), "{{stage}}"),),
                ),
                Panel(
                    "Redis, p99 of one answer",
                    "By script. A save that takes longer than this has tried again.",
                    "s",
                    ((quantile(0.99, "haystream_redis_seconds", "script"), "{{script}}"),),
                ),
                Panel(
                    "Kafka, p99 of one acknowledgement",
                    "By topic, without the prefix.",
                    "s",
                    ((quantile(0.99, "haystream_publish_seconds", "topic"), "{{topic}}"),),
                ),
                heat(
                    "Event loop: how late",
                    "Everything in a worker waits for as long.",
                    "haystream_event_loop_lag_seconds",
                ),
                Panel(
                    "Events in a batch",
                    "A lone verdict goes straight through; a burst coalesces.",
                    "none",
                    quantiles("haystream_batch_events"),
                ),
                Panel(
                    "Waiting in mailboxes",
                    "Read from Kafka, not yet computed.",
                    "none",
                    ((summed(of("haystream_mailbox_events"), "mailbox"), "{{mailbox}}"),),
                ),
            ),
        ),
        (
            "Traffic",
            (
                Panel(
                    "Records read",
                    "By kind, and what became of them.",
                    "reqps",
                    (
                        (summed(rate("haystream_events_total"), "kind", "outcome"), "{{kind}} {{outcome}}"),
                        (summed(rate("haystream_items_withdrawn_total")), "items withdrawn"),
                    ),
                ),
                Panel(
                    "Rankings published",
                    "And acknowledged by the broker.",
                    "reqps",
                    ((summed(rate("haystream_rankings_published_total")), "rankings"),),
                ),
                Panel(
                    "Leases",
                    "Items that analysts have, facts about them that are not in Kafka yet, leases that ran out.",
                    "none",
                    (
                        (summed(of("haystream_leases_live")), "live"),
                        (summed(of("haystream_lease_outbox_records")), "facts in the outbox"),
                        (summed("increase(" + of("haystream_leases_expired_total") + "[5m])"), "expired in 5 min"),
                    ),
                ),
                Panel(
                    "Oldest fact in the outbox",
                    "How long ago something happened to a lease that is not in Kafka yet.",
                    "s",
                    ((f"max({of('haystream_lease_outbox_age_seconds')})", "age"),),
                ),
                Panel(
                    "Dead letters",
                    "By code, in five minutes; and records that were removed from a topic before they were read.",
                    "none",
                    (
                        (
                            f"{summed('increase(' + of('haystream_dead_letters_total') + '[5m])', 'code')} > 0",
                            "{{code}}",
                        ),
                        (summed(of("haystream_records_missed_total"), "topic"), "{{topic}}, missed"),
                    ),
                ),
                Panel(
                    "Items into their log, and from there to a ranking, p99",
                    "Those that change no order wait for the totals' turn.",
                    "s",
                    (
                        (quantile(0.99, "haystream_item_to_log_seconds"), "Kafka to log"),
                        (quantile(0.99, "haystream_log_to_ranking_seconds"), "log to ranking"),
                    ),
                ),
                Panel(
                    "Consumer lag",
                    "Records from the last acknowledged to the end.",
                    "none",
                    (
                        (summed(of("haystream_consumer_lag_records"), "topic"), "{{topic}}"),
                        (summed(of("haystream_stalled_partitions")), "partitions that stand still"),
                    ),
                ),
                Panel(
                    "Offsets",
                    "How fast each topic is acknowledged.",
                    "reqps",
                    (
                        (
                            f"sum by (topic) (deriv({of('haystream_consumer_offset')}[$__rate_interval]))",
                            "{{topic}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "The queue API",
            (
                Panel(
                    "API replicas that are ready",
                    "Of so many that there are.",
                    "none",
                    (
                        (summed(of("haystream_api_ready")), "ready"),
                        (f"count({of('haystream_api_ready')})", "there"),
                    ),
                    kind="number",
                    width=4,
                ),
                Panel(
                    "API requests",
                    "By status: 5xx is ours, 4xx the caller's.",
                    "reqps",
                    ((summed(rate("haystream_api_requests_total"), "code"), "{{code}}"),),
                    width=10,
                ),
                Panel(
                    "API answers, p99",
                    "By route, but for streams.",
                    "s",
                    ((quantile(0.99, "haystream_api_request_seconds", "route"), "{{route}}"),),
                    width=10,
                ),
                Panel(
                    "What items say",
                    "Subjects and texts that were asked for, by where they came from.",
                    "reqps",
                    ((summed(rate("haystream_api_records_total"), "outcome"), "{{outcome}}"),),
                    width=12,
                ),
                Panel(
                    "Records of items read from Kafka, p99",
                    "For all that one request asks for.",
                    "s",
                    ((quantile(0.99, "haystream_api_record_read_seconds"), "p99"),),
                    width=12,
                ),
            ),
        ),
        (
            "Servers and workers",
            (
                Panel(
                    "Errors and retries",
                    "Requests that Kafka or Redis failed, refused or did not answer in time.",
                    "reqps",
                    (
                        (summed(rate("haystream_server_errors_total"), "server"), "{{server}} errors"),
                        (summed(rate("haystream_server_retries_total"), "server"), "{{server}} retries"),
                    ),
                ),
                Panel(
                    "Rebalances",
                    "How many in five minutes, and how long they took.",
                    "none",
                    (
                        (f"sum(increase({of('haystream_rebalance_seconds_count')}[5m]))", "rebalances"),
                        (quantile(0.99, "haystream_rebalance_seconds"), "p99, seconds"),
                    ),
                ),
                Panel(
                    "Fenced writes",
                    "Saves that were refused, since another writer had been there.",
                    "reqps",
                    ((summed(rate("haystream_fenced_writes_total"), "instance"), "{{instance}}"),),
                ),
                Panel(
                    "Memory",
                    "Resident, by worker.",
                    "bytes",
                    (
                        (
                            f'process_resident_memory_bytes{{job=~".*haystream-worker.*", {HERE}}}',
                            "{{instance}}",
                        ),
                    ),
                ),
                Panel(
                    "Collections in memory",
                    "What memory grows with.",
                    "none",
                    (
                        (summed(of("haystream_collection_items")), "items"),
                        (summed(of("haystream_collection_edges")), "pairs"),
                        (f"sum by (items) ({of('haystream_collections')})", "collections, {{items}}"),
                    ),
                ),
                Panel(
                    "Memory of collections",
                    "About what each takes, with its scopes and what queries share; the smaller ones together.",
                    "bytes",
                    ((f"sum by (collection) ({of('haystream_collection_memory_bytes')})", "{{collection}}"),),
                ),
                Panel(
                    "What runs",
                    "Workers and replicas of the API, by version.",
                    "none",
                    (
                        (
                            f"count by (version, python) ({of('haystream_build_info')})",
                            "{{version}}, Python {{python}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)

MODEL = Board(
    "haystream-model",
    "haystream: model health",
    (
        (
            "Computing",
            (
                heat(
                    "Settling a batch",
                    "Bringing one query's posterior up to date, without any waiting.",
                    "haystream_engine_settle_seconds",
                    width=12,
                ),
                heat(
                    "Participants that moved",
                    "In one settling: a verdict costs its neighbourhood.",
                    "haystream_touched_participants",
                    unit="none",
                    width=12,
                ),
            ),
        ),
        (
            "What is put off",
            (
                Panel(
                    "Growth backlog",
                    "New items in memory that queries are to take in at once and have not, summed over queries.",
                    "none",
                    ((summed(of("haystream_growth_backlog_items")), "items"),),
                ),
                Panel(
                    "Tending backlog",
                    "Queries that took new items in by estimate, which is not made exact yet.",
                    "none",
                    ((summed(of("haystream_tending_backlog_queries")), "queries"),),
                ),
                heat("Loading a query", "Computing it from what Redis has of it.", "haystream_load_seconds"),
            ),
        ),
        (
            "How far to trust it",
            (
                Panel(
                    "Drift, the largest",
                    "How far entries that were solved afresh had been off. Promised: 1e-4.",
                    "none",
                    ((f"max({of('haystream_drift')})", "largest"),),
                    width=12,
                ),
                Panel(
                    "Discrepancy, the largest",
                    "How far a query's verdicts are from what its prior said: a Bayes linear discrepancy.",
                    "none",
                    ((f"max({of('haystream_query_discrepancy')})", "largest"),),
                    width=12,
                ),
            ),
        ),
    ),
)


def each(metric: str) -> str:
    """The gauge of each query that is chosen."""
    return f"sum by (query) ({metric}{{{QUERY}}})"


QUERIES = Board(
    "haystream-queries",
    "haystream: queries",
    (
        (
            "All of them",
            (
                Panel(
                    "Queries",
                    "Owned by the workers; in memory, slim there, or put away until an event comes; stopped.",
                    "none",
                    tuple(
                        (summed(of(f"haystream_{name}")), text)
                        for name, text in (
                            ("owned_queries", "owned"),
                            ("queries_in_memory", "in memory"),
                            ("queries_slim", "slim"),
                            ("queries_put_away", "put away"),
                            ("quarantined_queries", "stopped"),
                        )
                    ),
                    width=24,
                ),
            ),
        ),
        (
            "One by one",
            (
                Panel(
                    "Screened",
                    "Items read with a verdict that counts.",
                    "none",
                    ((each("haystream_query_screened"), "{{query}}"),),
                ),
                Panel("Found", "Items found relevant.", "none", ((each("haystream_query_found"), "{{query}}"),)),
                Panel(
                    "Found of screened",
                    "Falls as little is left to find.",
                    "percentunit",
                    ((f"{each('haystream_query_found')} / ({each('haystream_query_screened')} > 0)", "{{query}}"),),
                ),
                Panel(
                    "Discrepancy",
                    "How far the verdicts are from what the prior said.",
                    "none",
                    ((f"max by (query) (haystream_query_discrepancy{{{QUERY}}})", "{{query}}"),),
                    width=12,
                ),
                Panel(
                    "Drift",
                    "How far entries that were solved afresh had been off.",
                    "none",
                    ((f"max by (query) (haystream_drift{{{QUERY}}})", "{{query}}"),),
                    width=12,
                ),
            ),
        ),
    ),
    by_query=True,
)

BOARDS = (PIPELINE, MODEL, QUERIES)
