"""How much memory this process has: a page that several copies of an array map counts once, and not for each."""

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from haystream.memory.copies import held_bytes

STATUS = Path("/proc/self/status")
RESIDENT = "process_resident_memory_bytes"


def resident_bytes() -> int:
    """What is the process's own, what it maps of files, and what copies are made of; 0 where nobody says."""
    try:
        fields = dict(line.split(":", 1) for line in STATUS.read_text().splitlines() if ":" in line)
        return sum(int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssFile")) + held_bytes()
    except (OSError, KeyError, IndexError, ValueError):
        return 0


class OwnProcess(Collector):
    """Prometheus' metrics of this process, with the memory that it has."""

    def __init__(self) -> None:
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        """The metrics, as of now."""
        resident = resident_bytes()
        for metric in self._process.collect():
            if metric.name == RESIDENT and resident:
                metric = GaugeMetricFamily(RESIDENT, "Resident memory in bytes, what copies share once.", resident)
            yield metric
