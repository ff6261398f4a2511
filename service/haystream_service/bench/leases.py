"""What leases that are over cost a query: what they take in Redis, and the time to load and to fold them.

    python -m haystream_service.bench.leases [HOW MANY]

Beside them as many verdicts, which such a query has as well. Starts a Valkey of its own, and prints JSON.
"""

import asyncio
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import perf_counter
from typing import Any, cast

import orjson
import redis

from haystream.collection.collection import Collection
from haystream.events import Action, LeaseFact, Outcome, Query, Verdict
from haystream.query.state import QueryState
from haystream_service.local import ValkeyServer
from haystream_service.store.base import Change, Position
from haystream_service.store.redis import RedisStore

QUERY = "bench"
AT_ONCE = 1000
BEGAN = 1_800_000_000_000_000


def leases(count: int) -> list[LeaseFact]:
    """Leases by fifty analysts, with ids as long as ours are."""
    return [
        LeaseFact(
            f"{n:032x}",
            QUERY,
            f"item-{n}@example.org",
            f"analyst-{n % 50}",
            Action.CLAIMED,
            BEGAN + n,
            BEGAN + n + 600_000_000,
            1 + n % 50,
            1 / (3 + n),
            1 / (7 + n),
        )
        for n in range(count)
    ]


def verdicts(count: int) -> list[Verdict]:
    """As many, one on each item."""
    return [
        Verdict(f"{n:032x}", QUERY, f"item-{n}@example.org", f"analyst-{n % 50}", Outcome.IRRELEVANT, BEGAN + n)
        for n in range(count)
    ]


class Saves:
    """Saves of a query without items."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._revision = 0

    async def __call__(self, **facts: Any) -> None:
        """Save these facts."""
        state = QueryState(Query(QUERY), Collection("default"))
        state.settle()
        change = Change(
            query_id=QUERY,
            partition=0,
            expected=self._revision,
            revision=self._revision + 1,
            position=Position(),
            touched=0,
            settings=state.settings,
            ranking=b"{}",
            tables=state.drain(),
            **{"verdicts": (), **facts},
        )
        await self._store.save_query(change)
        self._revision += 1


def parts(facts: list[Any]) -> Iterator[list[Any]]:
    """The facts, some at once."""
    return (facts[at : at + AT_ONCE] for at in range(0, len(facts), AT_ONCE))


async def measure(count: int) -> dict[str, Any]:
    """Bytes and milliseconds, of leases that are over and of verdicts."""
    found: dict[str, Any] = {"count": count}
    with ValkeyServer() as server:
        for kind in ("leases", "verdicts"):
            with cast(Any, redis.Redis.from_url(server.url)) as client:
                client.execute_command("FLUSHALL", "SYNC")
                store = RedisStore.connect(server.url, timeout=60)
                save = Saves(store)
                await save()
                before = client.info("memory")["used_memory"]
                if kind == "leases":
                    for some in parts(leases(count)):
                        await save(leases=some)
                        await save(leases=[replace(fact, action=Action.EXPIRED) for fact in some])
                else:
                    for some in parts(verdicts(count)):
                        await save(verdicts=some)
                taken = client.info("memory")["used_memory"] - before
            began = perf_counter()
            stored = await store.load_query(QUERY)
            loaded = perf_counter() - began
            await store.close()
            assert stored is not None
            state = QueryState(Query(QUERY), Collection("default"))
            fold: Callable[[Any], bool] = state.apply_lease if kind == "leases" else state.apply_verdict
            facts = stored.leases if kind == "leases" else stored.verdicts
            assert len(facts) == count
            began = perf_counter()
            for fact in facts:
                fold(fact)
            folded = perf_counter() - began
            found[kind] = {
                "bytes_each": round(taken / count),
                "load_ms": round(1e3 * loaded),
                "fold_ms": round(1e3 * folded),
            }
    return found


if __name__ == "__main__":
    parser = ArgumentParser(
        prog="python -m haystream_service.bench.leases", description=str(__doc__).splitlines()[0]
    )
    parser.add_argument("count", metavar="HOW MANY", type=int, nargs="?", default=100_000)
    sys.stdout.write(orjson.dumps(asyncio.run(measure(parser.parse_args().count))).decode() + "\n")
