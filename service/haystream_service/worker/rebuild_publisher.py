"""Where a worker's results go while the store is rebuilt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka import TopicPartition

from haystream.errors import Code
from haystream_service.kafka.records import SOURCES, Kind
from haystream_service.store.claims import Outgoing
from haystream_service.wire import as_id, decode_dead_letter
from haystream_service.worker.transport import Publisher


@dataclass(slots=True)
class RebuildPublisher:
    """A `Publisher` that keeps the last ranking of each query, and rejects in silence what was rejected before.

    What was acknowledged to Kafka, and is rejected now, was rejected when it first came, and has its dead letter.
    Of what came since, while nobody worked, it is written now: nobody reads that any more.
    """

    publisher: Publisher
    committed: Mapping[TopicPartition, int]
    """Up to where records were acknowledged before. None at all says that nobody knows: topics may be a copy."""
    rankings: dict[str, bytes] = field(default_factory=dict)
    rejected: int = 0
    letters: int = 0
    refused_settings: dict[str, str] = field(default_factory=dict)
    """By the id that is their key, why settings were rejected last."""
    restated: dict[str, tuple[int, bytes, int]] = field(default_factory=dict)
    withdrawn: set[str] = field(default_factory=set)

    async def publish_ranking(self, query_id: str, value: bytes) -> None:
        """Keep it, in place of an earlier one."""
        self.rankings[query_id] = value

    async def withdraw_ranking(self, query_id: str) -> None:
        """Keep none, and that readers are to be told so."""
        self.rankings.pop(query_id, None)
        self.withdrawn.add(query_id)

    async def publish_dead_letter(self, key: bytes | None, value: bytes) -> None:
        """Count it, and keep what it says of settings; write it where nobody can have done so."""
        letter, _ = decode_dead_letter(value)
        place = TopicPartition(letter.source.topic, letter.source.partition)
        if self.committed and letter.source.offset >= self.committed.get(place, 0):
            await self.publisher.publish_dead_letter(key, value)
            self.letters += 1
        elif letter.error.code == Code.QUARANTINED:
            return  # new, perhaps, and told of by itself
        else:
            self.rejected += 1
        query_id = as_id(key)
        if query_id is not None and letter.source.topic.endswith(f".{SOURCES[Kind.QUERY]}"):
            self.refused_settings[query_id] = f"{letter.error.code}: {letter.error.detail}"

    async def publish_leases(self, records: Sequence[Outgoing]) -> None:
        """Never called: nobody claims while the store is rebuilt."""
        raise AssertionError(f"{len(records)} leases in a rebuild")

    async def restate_settings(self, query_id: str, partition: int, value: bytes, restates: int) -> None:
        """Keep what has to be written once more."""
        self.restated[query_id] = partition, value, restates
