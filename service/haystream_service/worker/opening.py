"""How an owner gets hold of its query: from the store, or new from the first settings that come."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import cast

from haystream.errors import QueryFailed, Rejected
from haystream.events import Query, Status, Verdict
from haystream.query.engine_choice import check_supported
from haystream.query.state import QueryState
from haystream_service.kafka.records import OWNED, Kind, Offsets
from haystream_service.store.base import Fenced, Note, Position, Span, Spans, StoredQuery, VerdictsLost
from haystream_service.worker.batch import Batch, Delivery, decode
from haystream_service.worker.endings import shorter
from haystream_service.worker.exclusive import Turn
from haystream_service.worker.folding import restore
from haystream_service.worker.followers import Follower, Followers, Listener
from haystream_service.worker.holding import Deleted, Elsewhere, Held, Loaded
from haystream_service.worker.intake import collection_deleted
from haystream_service.worker.mailbox import Mailbox
from haystream_service.worker.shared import Shared
from haystream_service.worker.troubles import Troubles, computing

log = logging.getLogger(__name__)


class Opening:
    """Loads or opens one query, and keeps to its collection from then on.

    `listener` hears of what the collection gets.
    """

    def __init__(
        self,
        query_id: str,
        partition: int,
        shared: Shared,
        followers: Followers,
        *,
        listener: Listener,
    ) -> None:
        self.follower: Follower | None = None
        """The query's collection, once its settings are known."""
        self.settings_came = asyncio.Event()
        """Set when settings were delivered: whoever waits for them looks into the mailbox again."""
        self._query_id = query_id
        self._partition = partition
        self._ends: Offsets = (0, 0, 0)
        self._shared = shared
        self._followers = followers
        self._listener = listener

    async def get_hold(
        self, batch: Batch, mailbox: Mailbox[Delivery], troubles: Troubles, *, seen: Callable[[], int | None]
    ) -> tuple[Held, Note | None]:
        """What is had of the query, which is loaded or opened if it can be; and its note, where that is to be taken
        up then.

        What was passed over is added to the batch, and what comes while its settings are waited for, too.

        Raises:
            Fenced: it has an earlier revision in the store than was `seen` when it began to be read.
        """
        batch.forget_again()
        note = await troubles.read()
        if troubles.stopped is not None:
            return None, None
        # What an assignment finds out while the query is read may be newer than what is read: nothing is lost then.
        expected = seen() or 0
        stored, lost = await self._stored()
        loaded: Loaded | None
        if stored is None:
            loaded, note = await self._open(batch, mailbox, note, troubles)
        elif stored.revision < expected:
            raise Fenced(self._query_id, expected, stored.revision)
        elif stored.partition != self._partition:
            return Elsewhere(stored.partition), None
        elif stored.settings.status == Status.DELETED:
            return Deleted(stored.revision, stored.position), None
        else:
            if troubles.listed:  # who opened it may have done so when the store had gone back
                note = await troubles.adopt_unknown(note)
            if lost is not None:
                note = await self._read_again(lost, troubles)
            again = await self._passed_over(note.passed)
            loaded = await self._load(stored, again, troubles)
            batch.add_again(again)
        return loaded, note if loaded and (note.passed or troubles.listed) else None

    async def _stored(self) -> tuple[StoredQuery | None, VerdictsLost | None]:
        """The query as it was saved, None where nobody has opened it; and whether it lacks verdicts."""
        shared, lost = self._shared, None
        with computing():
            load = partial(shared.store.load_query, self._query_id)
            try:
                stored = await shared.retry(load, permit=shared.loads)
            except VerdictsLost as less:
                stored, lost = less.left, less
        if stored is None:
            # Nobody has opened it, or everything is gone: a verdict must not be refused for the latter.
            await shared.check_not_lost()
        elif stored.partition == self._partition:
            self._ends = await shared.check_same_topics(self._query_id, stored.partition, stored.position)
        return stored, lost

    async def _read_again(self, lost: VerdictsLost, troubles: Troubles) -> Note:
        """The query's note, in which all its verdicts are to be read once more: somebody deleted some in the store.

        Raises `VerdictsLost` where Kafka has not all of them any more, either.
        """
        verdicts = Span(0, lost.left.position.verdicts_offset)
        again = (delivery.event for delivery in await self._passed_over(Spans(verdicts=verdicts)))
        known = {verdict.verdict_id for verdict in lost.left.verdicts}
        if len(known | {event.verdict_id for event in again if isinstance(event, Verdict)}) < lost.had:
            raise lost
        log.error("query %r: %s; all are read from Kafka again", self._query_id, lost.said)
        note = await troubles.have_read_again(verdicts)
        # After that: until they are read, the note says that they have to be.
        expect = partial(self._shared.store.expect_verdicts, self._query_id, len(known))
        await self._shared.retry(expect)
        return note

    async def _passed_over(self, spans: Spans) -> list[Delivery]:
        """What was passed over and is an event, read once more."""
        shared, key = self._shared, self._query_id.encode()
        deliveries = []
        for kind, span in zip(OWNED, spans, strict=True):
            if span is not None:
                records = await shared.retry(partial(shared.again, kind, self._partition, key, span))
                for record in records:
                    with suppress(Rejected):  # which has its dead letter
                        deliveries.append(Delivery(record, decode(record), again=True))
        return deliveries

    async def _load(self, stored: StoredQuery, again: Sequence[Delivery], troubles: Troubles) -> Loaded:
        """The state that the saved facts make, with the newest settings that came while the query was stopped."""
        settings = newest(stored.settings, again)
        follower = await self._follow(settings, at_least=stored.position.cursor)
        async with troubles.attempt(stored.position, permit=self._shared.loads):
            with self._shared.metrics.load.time(), computing():
                state = QueryState(settings, follower.collection, tolerance=self._shared.limits.tolerance)
                await follower.originals.make(state, verdicts=len(stored.verdicts))
                parts = restore(state, stored.verdicts, stored.leases)
                # One part a turn: verdicts of other queries of the collection go between.
                while await follower.exclusive(lambda: next(parts, False), in_thread=True, turn=Turn.GROWTH):
                    pass
        history = self._shared.written.history
        return Loaded(
            state,
            stored.revision,
            replace(stored.position, history=history),
            stored.touched,
            backlog=self._ends,
            unsaved_settings=settings != stored.settings,
            # Who had not noticed that the store had gone back may have saved what they made of another log.
            finished=stored.unfinished or stored.position.of_another(history),
            unfinished=stored.unfinished,
        )

    async def _settings_or_all_read(self) -> None:
        """Return when settings came, or when the queries are read as far as they go now."""
        shared = self._shared
        waits = [
            asyncio.ensure_future(shared.retry(lambda: shared.caught_up(self._partition))),
            asyncio.ensure_future(self.settings_came.wait()),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()
        finally:
            for wait in waits:
                wait.cancel()

    async def _open(
        self, batch: Batch, mailbox: Mailbox[Delivery], note: Note, troubles: Troubles
    ) -> tuple[Loaded | None, Note]:
        """The query, opened if its settings are there, or come; its note, with what came before them."""
        if batch.deliveries and not batch.of(Kind.QUERY) and note.passed.queries is None:
            await self._settings_or_all_read()
            while taken := mailbox.take():
                batch.add(taken)
        if not batch.of(Kind.QUERY) and note.passed.queries is None:
            return None, note
        note = await troubles.adopt_unknown(note)
        batch.add_again(await self._passed_over(note.passed))
        return await self._opened(batch, troubles), note

    async def _opened(self, batch: Batch, troubles: Troubles) -> Loaded | None:
        """The new query that the first good settings in the batch ask for; bad ones are rejected in the batch."""
        for delivery in batch.of(Kind.QUERY):
            if delivery in batch.rejected:
                continue
            settings = cast(Query, delivery.event)
            try:
                check_supported(settings)
            except Rejected as error:
                batch.rejected[delivery] = error
                continue
            if await self._shared.retry(partial(self._shared.store.is_deleted, settings.collection)):
                batch.rejected[delivery] = collection_deleted(settings.collection)
                continue
            follower = await self._follow(settings)
            async with troubles.attempt(Position()):
                with computing():
                    state = QueryState(settings, follower.collection, tolerance=self._shared.limits.tolerance)
                    await follower.originals.make(state, verdicts=0)
            return Loaded(state, saved=Position(history=self._shared.written.history))
        return None

    def leave(self) -> None:
        """Let go of the collection."""
        if self.follower is not None:
            self._followers.leave(self.follower, self._query_id)
            self.follower = None

    async def _follow(self, settings: Query, *, at_least: int = 0) -> Follower:
        """The query's collection, with all that its log holds now."""
        shared, name = self._shared, settings.collection
        count = await shared.retry(lambda: shared.store.entry_count(name))
        if count < at_least:
            if await shared.retry(lambda: shared.store.is_deleted(name)):
                refused = collection_deleted(name)
                raise QueryFailed(refused.code, refused.detail)
            await shared.written.read_items_again(name)
            raise shorter(name, count, self._query_id, at_least)
        while True:
            follower = self._followers.join(settings.view, self._query_id, self._listener, instead_of=self.follower)
            if self.follower not in {None, follower}:
                self.leave()  # of a query that was stopped while it was opened, or what is stale
            self.follower = follower
            # Where other queries follow it, a burst of items is let in slowly: the rest comes to this one with it.
            await follower.reach(max(at_least, follower.collection.left_at) if follower.followed_by else count)
            if not follower.stale:
                await follower.snapshots.recall(settings)
            if not follower.stale:
                return follower


def newest(settings: Query, again: Sequence[Delivery]) -> Query:
    """The last settings that would have been taken: it may be the old ones that cannot be computed."""
    for delivery in again:
        if isinstance(delivery.event, Query) and delivery.event.view == settings.view:
            with suppress(Rejected):
                check_supported(delivery.event)
                settings = delivery.event
    return settings
