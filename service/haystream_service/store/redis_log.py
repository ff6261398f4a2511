"""Collections' logs in Redis or Valkey: a stream of what is known of items, and where each item's last entry is.

Records of one item are put together in Python, by the one rule that there is (`haystream.facts.merging`): the
script answers what is known, and takes what was made from that only while it still is.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any, NamedTuple, cast

from typing_extensions import override

from haystream.errors import Rejected
from haystream.events import ItemFact
from haystream.facts.merging import merge
from haystream_service.store.base import Appended, Logs, StoreDamaged
from haystream_service.store.facts import encode_entry, read_entry
from haystream_service.store.redis_calls import RedisPart, Script
from haystream_service.store.shapes import Unreadable
from haystream_service.store.tables import DIGEST_BYTES, digest

log = logging.getLogger(__name__)

ITEMS_A_SCRIPT = 500
"""A script holds up every other client while it runs: this many items take about 2 ms."""

READ_BYTES = 4 << 20
"""After so many no more entries are read with one answer: most have some 100 bytes, but one may have a million."""

ENTRIES_AWAITED = 20
"""Entries of an answer that was waited for: what more there is comes with the next."""

LEFT_SECONDS = 3600
"""For so long what was made anew stays of a process that ended before it was put into its place."""

_ANSWERS = {1: Appended.ADDED, 0: Appended.KNOWN, -1: Appended.CONFLICT, -2: Appended.DELETED, -3: None}
"""None: it has to be told again."""


class _Known(NamedTuple):
    """What the log says of an item, and which entry does."""

    number: bytes
    entry: bytes


class RedisLogs(RedisPart, Logs):
    """The logs of a `RedisStore`'s collections."""

    _append = Script("append.lua")
    _find = Script("find.lua")
    _read_log = Script("read_log.lua")
    _put_ids = Script("restore_ids.lua")
    _delete_collection = Script("delete_collection.lua")

    @override
    async def append_items(self, collection: str, facts: Sequence[ItemFact]) -> list[Appended]:
        answers: list[Appended] = []
        for start in range(0, len(facts), ITEMS_A_SCRIPT):
            answers += await self._append_some(collection, facts[start : start + ITEMS_A_SCRIPT])
        return answers

    async def _append_some(self, collection: str, facts: Sequence[ItemFact]) -> list[Appended]:
        answers: dict[int, Appended] = {}
        said: dict[str, list[int]] = {}
        """By item of which something else is known, which of the facts are on it."""
        known: dict[str, _Known] = {}
        later: list[int] = []
        """Those of the facts that have to be told again."""
        tried = await self._tell(collection, ((fact, b"") for fact in facts))
        for place, (fact, answer) in enumerate(zip(facts, tried, strict=True)):
            if isinstance(answer, _Known):
                known[fact.item_id] = answer
                said.setdefault(fact.item_id, []).append(place)
            elif answer is None:
                later.append(place)
            else:
                answers[place] = answer
        while known:
            merged = {}
            for item_id, last in known.items():
                with self._reading(*self._log_keys(collection)):
                    entry = before = _entry_of(item_id, last.entry)
                for place in said[item_id]:
                    entry, answers[place] = _with(entry, facts[place])
                if entry != before:
                    merged[item_id] = entry, last.number
            again = dict(zip(merged, await self._tell(collection, merged.values()), strict=True)) if merged else {}
            for item_id, answer in again.items():
                if answer is Appended.DELETED:
                    answers |= dict.fromkeys(said[item_id], answer)
                elif answer is None:
                    later += said[item_id]
            # Somebody else has appended to it meanwhile.
            known = {item_id: answer for item_id, answer in again.items() if isinstance(answer, _Known)}
        if later:
            rest = await self._append_some(collection, [facts[place] for place in later])
            answers |= zip(later, rest, strict=True)
        return [answers[place] for place in range(len(facts))]

    async def _tell(
        self, collection: str, entries: Iterable[tuple[ItemFact, bytes]]
    ) -> list[Appended | _Known | None]:
        """Offer entries, each with the number of the one that it was made from."""
        arguments: list[bytes] = []
        for entry, made_from in entries:
            arguments += (entry.item_id.encode(), digest(entry), encode_entry(entry), made_from)
        answers = await self._asked(self._append, collection, arguments)
        return [_Known(*answer) if isinstance(answer, list) else _ANSWERS[answer] for answer in answers]

    @override
    async def read_items(self, collection: str, after: int, *, limit: int, wait: float = 0.0) -> list[ItemFact]:
        log, _ = self._log_keys(collection)
        entries = await self._run(self._read_log, [log], [after, limit, READ_BYTES])
        with self._reading(log):
            if not entries and wait > 0:
                # Answers at once where there is something. A BLOCK of 0 milliseconds would mean: for ever.
                async with self._answering(log, extra=wait):
                    block = max(1, int(wait * 1000))
                    streams = await self._redis.xread(
                        {log: f"{after}-0"}, count=min(limit, ENTRIES_AWAITED), block=block
                    )
                entries = [fields.get(b"item", b"") for _, fields in streams[0][1]] if streams else []
            return list(map(read_entry, entries))

    @override
    async def entry_count(self, collection: str) -> int:
        log, _ = self._log_keys(collection)
        async with self._answering(log):
            return int(await self._redis.xlen(log))

    @override
    async def item_count(self, collection: str) -> int:
        _, ids = self._log_keys(collection)
        async with self._answering(ids):
            count = int(await self._redis.hlen(ids))
        if not count and await self.entry_count(collection):
            await self._restore_ids(collection)
            return await self.item_count(collection)
        return 0 if count == 1 and await self.is_deleted(collection) else count

    @override
    async def find_item(self, collection: str, item_id: str) -> ItemFact | None:
        return (await self.find_items(collection, [item_id]))[0]

    @override
    async def find_items(self, collection: str, item_ids: Sequence[str]) -> list[ItemFact | None]:
        if not item_ids:
            return []
        arguments = [b"%d" % DIGEST_BYTES, *(item_id.encode() for item_id in item_ids)]
        entries = await self._asked(self._find, collection, arguments)
        with self._reading(*self._log_keys(collection)):
            return [
                None if entry is None else _entry_of(item_id, entry)
                for item_id, entry in zip(item_ids, entries, strict=True)
            ]

    @override
    async def delete_collection(self, collection: str) -> None:
        await self._run(self._delete_collection, self._log_keys(collection), [])
        await self._unlink(self._keys.derived(collection))

    @override
    async def is_deleted(self, collection: str) -> bool:
        _, ids = self._log_keys(collection)
        async with self._answering(ids):
            return bool(await self._redis.hexists(ids, ""))  # then there is an item with an empty id

    @override
    async def save_snapshot(self, collection: str, name: str, raw: bytes, *, seconds: int | None = None) -> None:
        async with self._answering():
            await self._redis.set(self._keys.snapshot(collection, name), raw, ex=seconds)

    @override
    async def read_snapshot(self, collection: str, name: str) -> bytes | None:
        key = self._keys.snapshot(collection, name)
        with suppress(StoreDamaged):  # it is written anew
            async with self._answering(key):
                return cast(bytes | None, await self._redis.get(key))
        return None

    async def _asked(self, script: Script, collection: str, arguments: Sequence[bytes]) -> Any:
        """What a script answers that needs `ids`."""
        while (answer := await self._run(script, self._log_keys(collection), arguments)) is None:
            await self._restore_ids(collection)
        return answer

    async def _restore_ids(self, collection: str) -> None:
        """Make `ids`, which somebody has deleted, anew of the log. Meanwhile nobody appends to that."""
        log_key, ids = self._log_keys(collection)
        made = f"{ids}:{token_hex(8)}"
        log.error("Redis has %s and lacks %s, which is made anew", log_key, ids)
        after = items = 0
        while entries := await self.read_items(collection, after, limit=ITEMS_A_SCRIPT):
            said = {
                entry.item_id: digest(entry) + b"%d" % number
                for number, entry in enumerate(entries, start=after + 1)
            }
            async with self._answering(made):
                items += await self._redis.hset(made, mapping=said)
                await self._redis.expire(made, LEFT_SECONDS)
            after += len(entries)
        if after:
            await self._run(self._put_ids, [ids, made], [items])

    def _log_keys(self, collection: str) -> tuple[str, str]:
        return self._keys.log(collection), self._keys.ids(collection)


def _entry_of(item_id: str, raw: bytes) -> ItemFact:
    """The entry that `ids` says is the item's last. Raises `Unreadable`."""
    entry = read_entry(raw)
    if entry.item_id != item_id:
        raise Unreadable("an item's number", f"that of an entry on {item_id!r}", entry.item_id)
    return entry


def _with(known: ItemFact, fact: ItemFact) -> tuple[ItemFact, Appended]:
    """All that is known of the item with this fact, and what became of that."""
    try:
        entry = merge(known, fact)
    except Rejected:
        return known, Appended.CONFLICT
    return entry, Appended.KNOWN if entry == known else Appended.ADDED
