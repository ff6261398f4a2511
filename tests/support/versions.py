"""A story in three parts, told while versions take turns; and a worker of another version than this."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from haystream.events import Event, Item, Outcome, Policy, Query, Status, Verdict
from haystream.models import DEFAULT_PRIORS
from haystream_service.local.services import WorkerProcess

ROOT = Path(__file__).parents[2]


def part(number: int) -> list[Event]:
    """Of three, the first opens the queries. Later ones have new items, and change and retract verdicts."""
    queries: list[Event] = [
        Query("greedy", policy=Policy("greedy")),
        Query("ucb/ä {1}", prior=DEFAULT_PRIORS["relevance"], policy=Policy("bayes-ucb")),
        Query("idle", policy=Policy("greedy")),
    ]
    items = [
        Item(f"m{n}", "default", f"p{n % 7}", (f"p{n % 5 + 7}", *(["hub"] if n % 3 else [])))
        for n in range(20 * number, 20 * number + 20)
    ]
    verdicts = [
        Verdict(f"v{number}-{n}", query, item.item_id, "zoe", list(Outcome)[n % 3], _decided(number, n))
        for n, item in enumerate(items)
        for query in ("greedy", "ucb/ä {1}")[: 1 + n % 2]
    ]
    again = Verdict(f"again-{number}", "greedy", "m1", "kim", Outcome.RELEVANT, _decided(number, 99))
    status: list[Event] = [Query("idle", policy=Policy("greedy"), status=Status.PAUSED)] if number else []
    return [*(queries if number == 0 else []), *items, *verdicts, again, *status]


def _decided(number: int, n: int) -> int:
    return 1_700_000_000_000_000 + 1000 * number + n


class OtherWorker(WorkerProcess):
    """A worker from a checkout of another version."""

    def __init__(self, checkout: Path, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._path = _path(checkout)

    def environment(self) -> dict[str, str]:
        """With that version before this one."""
        return {**super().environment(), "PYTHONPATH": self._path}

    def program(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run that version's `haystream` with the worker's settings, until it ends."""
        command = [*self.command()[:-1], *arguments]
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True)


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """The repository as it was at that commit, with its machine code compiled."""
    with TemporaryDirectory() as folder:
        tree = Path(folder) / "haystream"
        add = ["git", "worktree", "add", "--quiet", "--detach", str(tree), commit]
        subprocess.run(add, cwd=ROOT, check=True)
        try:
            warm = [sys.executable, "-c", "from haystream.warm import warm; warm()"]
            subprocess.run(warm, check=True, env={**os.environ, "PYTHONPATH": _path(tree)})
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def _path(tree: Path) -> str:
    return os.pathsep.join(str(tree / name) for name in ("core", "service"))
