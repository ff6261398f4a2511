"""Collections' logs in Redis or Valkey: a stream of what is known of items, and where each item's last entry is.

Records of one item are put together in Python, by the one rule that there is (`haystream.merging`): the script
answers what is known, and takes what was made from that only while it still is.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from haystream.errors import Rejected
from haystream.events import ItemFact
from haystream.merging import merge
from haystream_service.store.base import Appended
from haystream_service.store.facts import encode_entry, read_entry
from haystream_service.store.redis_calls import RedisCalls, Script
from haystream_service.store.tables import DIGEST_BYTES, digest

ITEMS_A_SCRIPT = 500
"""A script holds up every other client while it runs: this many items take about 2 ms."""

READ_BYTES = 4 << 20
"""After so many no more entries are read with one answer: most have some 100 bytes, but one may have a million."""

AWAITED = 20
"""Entries of an answer that was waited for: what more there is comes with the next."""

_ANSWERS = {1: Appended.ADDED, 0: Appended.KNOWN, -1: Appended.CONFLICT, -2: Appended.DELETED, -3: None}
"""None: it has to be told again."""


class _Known(NamedTuple):
    """What the log says of an item, and which entry does."""

    number: bytes
    entry: bytes


class RedisLog:
    """The logs of a `RedisStore`'s collections."""

    def __init__(self, calls: RedisCalls) -> None:
        self._calls = calls
        self._append, self._find, self._read = Script("append.lua"), Script("find.lua"), Script("read_log.lua")

    async def append(self, collection: str, facts: Sequence[ItemFact]) -> list[Appended]:
        """`Store.append_items`."""
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
                entry = before = read_entry(last.entry)
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
        answers = await self._calls.run(self._append, self._names(collection), arguments)
        return [_Known(*answer) if isinstance(answer, list) else _ANSWERS[answer] for answer in answers]

    async def read(self, collection: str, after: int, *, limit: int, wait: float = 0.0) -> list[ItemFact]:
        """`Store.read_items`."""
        log, redis = self._names(collection)[0], self._calls.redis
        entries = await self._calls.run(self._read, [log], [after, limit, READ_BYTES])
        if not entries and wait > 0:
            # Answers at once where there is something. A BLOCK of 0 milliseconds would mean: for ever.
            async with self._calls.answering(log, extra=wait):
                block = max(1, int(wait * 1000))
                streams = await redis.xread({log: f"{after}-0"}, count=min(limit, AWAITED), block=block)
            entries = [fields[b"item"] for _, fields in streams[0][1]] if streams else []
        return list(map(read_entry, entries))

    async def length(self, collection: str) -> int:
        """`Store.entry_count`."""
        log, _ = self._names(collection)
        async with self._calls.answering(log):
            return int(await self._calls.redis.xlen(log))

    async def items(self, collection: str) -> int:
        """`Store.item_count`."""
        _, ids = self._names(collection)
        async with self._calls.answering(ids):
            count = int(await self._calls.redis.hlen(ids))
        return 0 if count == 1 and await self.deleted(collection) else count

    async def deleted(self, collection: str) -> bool:
        """`Store.is_deleted`: then there is an item with an empty id."""
        _, ids = self._names(collection)
        async with self._calls.answering(ids):
            return bool(await self._calls.redis.hexists(ids, ""))

    async def find(self, collection: str, item_ids: Sequence[str]) -> list[ItemFact | None]:
        """`Store.find_items`, in one script."""
        if not item_ids:
            return []
        arguments = [b"%d" % DIGEST_BYTES, *(item_id.encode() for item_id in item_ids)]
        entries = await self._calls.run(self._find, self._names(collection), arguments)
        return [None if entry is None else read_entry(entry) for entry in entries]

    def _names(self, collection: str) -> tuple[str, str]:
        return self._calls.keys.log(collection), self._calls.keys.ids(collection)


def _with(known: ItemFact, fact: ItemFact) -> tuple[ItemFact, Appended]:
    """All that is known of the item with this fact, and what became of that."""
    try:
        entry = merge(known, fact)
    except Rejected:
        return known, Appended.CONFLICT
    return entry, Appended.KNOWN if entry == known else Appended.ADDED
