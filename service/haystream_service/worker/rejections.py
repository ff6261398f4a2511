"""Records that are no query's events, on their way to become dead letters."""

from collections.abc import Iterable

from haystream.errors import Rejected
from haystream_service.kafka.records import Record
from haystream_service.worker.mailbox import Mailbox
from haystream_service.worker.shared import Shared


class Rejections:
    """A mailbox of them for each partition, whose other records do not wait for a dead letter."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.mailboxes: dict[int, Mailbox[tuple[Record, Rejected]]] = {}

    def post(self, record: Record, why: Rejected) -> None:
        """Have the record made a dead letter and then acknowledged."""
        if record.partition not in self.mailboxes:
            self.mailboxes[record.partition] = Mailbox(
                self._tell, max_batch=self._shared.limits.max_batch, on_bug=self._shared.on_bug
            )
        self.mailboxes[record.partition].post((record, why))

    async def drop(self, partitions: Iterable[int]) -> None:
        """Forget what has no dead letter yet: it is not acknowledged, so who has the partition next gets it."""
        for mailbox in [self.mailboxes.pop(partition) for partition in partitions if partition in self.mailboxes]:
            async with mailbox.dropped():
                pass

    async def _tell(self, rejected: Iterable[tuple[Record, Rejected]]) -> None:
        for record, why in rejected:
            await self._shared.reject(record, why)
            record.ack()
