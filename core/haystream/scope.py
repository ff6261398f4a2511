"""A query's scope: which items of its collection there are for it. It is as if no other item had ever come."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol


class Described(Protocol):
    """What a scope asks an item."""

    @property
    def sent_at(self) -> int | None:
        """When it was sent, in microseconds since the Unix epoch."""
        ...

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """Keys with their values as canonical JSON."""
        ...

    def people(self) -> tuple[str, ...]:
        """Everyone on the item."""
        ...


@dataclass(frozen=True, slots=True)
class Scope:
    """Conditions that all have to hold; at least one is given. Made by `scope`, so that equal ones are equal.

    `since` and `before` are in microseconds since the Unix epoch: since ≤ sent_at < before. Somebody of `anybody`
    is on the item, where there are any, and nobody of `nobody`. `labels` are all among the item's.
    """

    since: int | None
    before: int | None
    anybody: frozenset[str]
    nobody: frozenset[str]
    labels: tuple[tuple[str, str], ...]

    def admits(self, item: Described) -> bool:
        """Whether the item is there for the query, by what is known of it."""
        people = item.people()
        return (
            self._in_time(item.sent_at)
            and not (self.anybody and self.anybody.isdisjoint(people))
            and self.nobody.isdisjoint(people)
            and all(label in item.labels for label in self.labels)
        )

    def _in_time(self, sent_at: int | None) -> bool:
        if self.since is None and self.before is None:
            return True
        if sent_at is None:
            return False
        return (self.since is None or self.since <= sent_at) and (self.before is None or sent_at < self.before)

    @property
    def key(self) -> str:
        """A name for it, 32 hexadecimal digits: the same in every process, another for every other scope."""
        content = [self.since, self.before, sorted(self.anybody), sorted(self.nobody), self.labels]
        return blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def scope(
    *,
    since: int | None = None,
    before: int | None = None,
    anybody: Iterable[str] = (),
    nobody: Iterable[str] = (),
    labels: Iterable[tuple[str, str]] = (),
) -> Scope | None:
    """The scope with these conditions; None where there are none, as everything is in it then."""
    made = Scope(since, before, frozenset(anybody), frozenset(nobody), tuple(sorted(labels)))
    return None if made == Scope(None, None, frozenset(), frozenset(), ()) else made
