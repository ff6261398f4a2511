"""A store that goes back to what it was: a backup is restored, a replica that lagged becomes the master."""

import asyncio
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

from haystream.facts.merging import ItemLog
from haystream_service.store.memory import MemoryStore

BY_ITSELF = {"_claims", "_logs"}
"""What of a store is copied apart: others hold the one object, and wait for the other."""


class StoreCopy:
    """All that a store holds at one time."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._logs = {name: list(log.entries) for name, log in store._logs.items()}
        self._held = _copied(store.claims.queries)
        self._rest = _copied({name: value for name, value in vars(store).items() if name not in BY_ITSELF})

    def put_back(self) -> None:
        """The store is as it was then; its clients are not told."""
        store = self._store
        vars(store).update(_copied(self._rest))
        store.claims.queries = _copied(self._held)
        for name, log in store._logs.items():
            log.entries, log.known = list(self._logs.get(name, ())), ItemLog()
            for entry in log.entries:
                log.known.add(entry)
            log.grown.set()
            log.grown = asyncio.Event()


def _copied(value: Any) -> Any:
    """The same in containers of its own; facts, which nobody changes, are shared."""
    if isinstance(value, dict):
        twin = copy(value)
        for key, each in value.items():
            twin[key] = _copied(each)
        return twin
    if isinstance(value, set | list | bytearray):
        return copy(value)
    if is_dataclass(value) and not value.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        twin = copy(value)
        for each in fields(value):
            setattr(twin, each.name, _copied(getattr(value, each.name)))
        return twin
    return value
