"""The metrics table, and the bound on the number of series."""

import platform
import re
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from haystream.errors import Code
from haystream.memory.copies import Template
from haystream_service.labelled_gauges import OTHER, QueryNumbers, show_largest
from haystream_service.metrics import (
    OBJECTIVE_SECONDS,
    TABLE,
    ApiMetrics,
    Metric,
    Metrics,
    new_registry,
    table,
)
from haystream_service.settings import Settings


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    return Metrics(registry, labelled_queries=2)


def shown(registry: CollectorRegistry, name: str) -> dict[str | None, float]:
    """The gauge's values by `query` label."""
    return {
        sample.labels.get("query"): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    }


@pytest.mark.parametrize("metric", TABLE, ids=lambda metric: metric.attribute)
def test_names_and_help_keep_prometheus_conventions(metric: Metric[Any]) -> None:
    assert re.fullmatch(r"haystream_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Counter)
    assert metric.help.endswith(".")
    assert bool(metric.buckets) == (metric.kind is Histogram)
    assert list(metric.buckets) == sorted(set(metric.buckets))


def test_the_exposition_holds_exactly_the_table(registry: CollectorRegistry, metrics: Metrics) -> None:
    text = generate_latest(registry).decode()
    exposed = set(re.findall(r"^# HELP (\w+) ", text, re.MULTILINE))
    assert exposed == {metric.name for metric in table(Metrics)}


def test_the_apis_exposition_holds_exactly_its_table() -> None:
    registry = CollectorRegistry()
    ApiMetrics(registry)
    exposed = set(re.findall(r"^# HELP (\w+) ", generate_latest(registry).decode(), re.MULTILINE))
    assert exposed == {metric.name for metric in table(ApiMetrics)}


def test_the_buckets_hold_the_objective_and_more_than_a_full_batch() -> None:
    assert 0.25 in Metrics.verdict_to_ranking.buckets
    assert max(Metrics.batch_events.buckets) > Settings().max_batch


@pytest.mark.parametrize(
    "metric", [m for m in TABLE if m.name.endswith("_seconds") and m.buckets], ids=lambda m: m.name
)
def test_times_that_somebody_waits_for_are_told_apart_at_the_objective(metric: Metric[Any]) -> None:
    assert OBJECTIVE_SECONDS in metric.buckets or metric is Metrics.engine_settle


def test_no_series_says_when_it_was_made(registry: CollectorRegistry, metrics: Metrics) -> None:
    assert "_created" not in generate_latest(registry).decode()


def test_what_runs_is_told(registry: CollectorRegistry, metrics: Metrics) -> None:
    labels = {"version": version("haystream"), "python": platform.python_version()}
    assert registry.get_sample_value("haystream_build_info", labels) == 1


def test_known_counters_start_at_zero(registry: CollectorRegistry, metrics: Metrics) -> None:
    assert {registry.get_sample_value("haystream_dead_letters_total", {"code": code}) for code in Code} == {0.0}
    assert registry.get_sample_value("haystream_server_errors_total", {"server": "redis"}) == 0.0
    assert registry.get_sample_value("haystream_events_total", {"kind": "item", "outcome": "known"}) == 0.0


def test_two_workers_in_one_process_do_not_share_a_registry(metrics: Metrics) -> None:
    second = CollectorRegistry()
    Metrics(second, labelled_queries=2)
    metrics.rankings_published.inc()
    assert second.get_sample_value("haystream_rankings_published_total") == 0.0


def test_queries_past_the_limit_share_one_series(registry: CollectorRegistry, metrics: Metrics) -> None:
    for number, query in enumerate(["a", "b", "c", "d"], start=1):
        metrics.queries.report(
            query, QueryNumbers(screened=10 * number, found=number, discrepancy=number / 2, drift=number / 4)
        )
    assert shown(registry, "haystream_query_screened") == {"a": 10, "b": 20, OTHER: 30 + 40}
    assert shown(registry, "haystream_query_found") == {"a": 1, "b": 2, OTHER: 3 + 4}
    assert shown(registry, "haystream_query_discrepancy") == {"a": 0.5, "b": 1, OTHER: 2}
    assert shown(registry, "haystream_drift") == {"a": 0.25, "b": 0.5, OTHER: 1}


def test_a_later_report_replaces_the_earlier_one(registry: CollectorRegistry, metrics: Metrics) -> None:
    for query in ("a", "b", "c"):
        metrics.queries.report(query, QueryNumbers(screened=1, found=1, discrepancy=1, drift=0))
        metrics.queries.report(query, QueryNumbers(screened=5, found=2, discrepancy=1, drift=0))
    assert shown(registry, "haystream_query_screened") == {"a": 5, "b": 5, OTHER: 5}


def test_a_forgotten_query_frees_its_place(registry: CollectorRegistry, metrics: Metrics) -> None:
    for query in ("a", "b", "c"):
        metrics.queries.report(query, QueryNumbers(screened=1, found=0, discrepancy=0, drift=0))
    metrics.queries.forget("a")
    assert shown(registry, "haystream_query_screened") == {"b": 1, OTHER: 1}
    metrics.queries.report("c", QueryNumbers(screened=2, found=0, discrepancy=0, drift=0))
    assert shown(registry, "haystream_query_screened") == {"b": 1, "c": 2, OTHER: 0}
    metrics.queries.forget("never seen")


def test_a_query_called_other_does_not_hide_the_others(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.queries.report(OTHER, QueryNumbers(screened=3, found=1, discrepancy=0, drift=0))
    metrics.queries.report("a", QueryNumbers(screened=1, found=0, discrepancy=0, drift=0))
    assert shown(registry, "haystream_query_screened") == {"a": 1, OTHER: 3}


def test_of_many_collections_the_largest_have_a_series_each(registry: CollectorRegistry, metrics: Metrics) -> None:
    def shown() -> dict[str, float]:
        (family,) = (each for each in registry.collect() if each.name == "haystream_collection_memory_bytes")
        return {sample.labels["collection"]: sample.value for sample in family.samples}

    gauge = metrics.collection_memory
    show_largest(gauge, {"a": 5.0, "b": 1.0, "c": 7.0, OTHER: 100.0}, limit=2)
    assert shown() == {"c": 7.0, "a": 5.0, OTHER: 101.0}
    show_largest(gauge, {"b": 2.0}, limit=2)  # the others are let go of
    assert shown() == {"b": 2.0, OTHER: 0.0}


def test_a_registry_shows_the_process_too() -> None:
    assert new_registry().get_sample_value("process_resident_memory_bytes") is not None


def test_memory_that_copies_share_counts_once() -> None:
    template = Template((np.ones(4 << 20),))
    before = new_registry().get_sample_value("process_resident_memory_bytes")
    copies = [template.copy()[0] for _ in range(8)]
    assert sum(float(copy.sum()) for copy in copies) == 8 * (4 << 20)
    after = new_registry().get_sample_value("process_resident_memory_bytes")
    assert before is not None
    assert after is not None
    assert after - before < 16 << 20  # of 8 times 32 MiB
    copies[0][:] = 2.0
    own = new_registry().get_sample_value("process_resident_memory_bytes")
    assert own is not None
    assert own - after > 30 << 20
